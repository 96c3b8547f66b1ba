package recur

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// Each expression that checkCron accepts must be one that the library reads, too. Its problems must
// not be the library's.
func TestCheckCron(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"* * * * *", "*/5 * * * *", "0 0 1,15 * *",
		"0 9-17/2 * * mon-fri", "0 22-2 * * *",
		"0 22-2/2 * * *", "5-1 * * * *", "0 0 * * fri-mon", "0 0 28-3 * *", "0 0 * nov-feb *",
		"0 0 * JAN Sun",
		"5/15 * * * *",
		"0 0 ? * 7", "1 2 3 4 5 6", "59 59 23 31 12 7", "*/1 * * * *", "@hourly", "@daily",
		"@midnight", "@weekly",
		"@monthly", "@yearly", "@annually", "@every 90s"} {
		if err := checkCron(text); err != nil {
			t.Errorf("%s: got %v, want no error", text, err)
		}
		if err := (&Plan{}).parseCron(text); err != nil {
			t.Errorf("%s: the plan has the error %v, want none", text, err)
		}
	}

	ofLibrary := regexp.MustCompile(`option|strconv|descriptor|bounds|parse int|hash`)
	for text, want := range map[string]string{
		"*-5 * * * *":       `minute "*-5": a range begins with a value; for every 5-th value write */5`,
		"1,,2 * * * *":      `minute "1,,2": there is no value between two commas`,
		", * * * *":         "there is no value between two commas",
		"1, * * * *":        "there is no value between two commas",
		"60 * * * *":        `"60" is not a number from 0 to 59`,
		"+5 * * * *":        `"+5" is not a number`,
		"-5 * * * *":        `"" is not a number`,
		"1-2-3 * * * *":     `"2-3" is not a number`,
		"* * 0 * *":         `day of month "0": "0" is not a number from 1 to 31`,
		"* * * * 8":         "from 0 to 7 or a name such as mon",
		"* * * * Monday":    `"Monday" is not a number from 0 to 7 or a name such as mon`,
		"0 0 L * *":         "Weir does not know L, W, # and H",
		"0 0 15W * *":       "Weir does not know L, W, # and H",
		"0 0 * * fri#3":     "Weir does not know",
		"H * * * *":         "Weir does not know",
		"*/0 * * * *":       `the step "0" is not a number above 0`,
		"*/ * * * *":        `the step "" is not a number above 0`,
		"*/5/5 * * * *":     `the step "5/5" is not a number`,
		"*/-5 * * * *":      `the step "-5" is not a number`,
		"*/60 * * * *":      "the step 60 leaves only the first of 60 values",
		"1-3/5 * * * *":     "the step 5 leaves only the first of 3 values",
		"* * * *":           "there are 4",
		"* * * * * * *":     "there are 7",
		"":                  "there are 0",
		"@reboot":           `there is no "@reboot"; possible are @hourly`,
		"@Daily":            `there is no "@Daily"`,
		"0 0 1 Januar *":    `"Januar" is not a number from 1 to 12 or a name such as jan`,
		"0 0 1 jan-Dez sun": `"Dez" is not a number`,
	} {
		err := checkCron(text)
		if err == nil || !strings.Contains(err.Error(), want) ||
			ofLibrary.MatchString(err.Error()) {
			t.Errorf("%q: got %v, want %q and no words of the library", text, err, want)
		}

		if err := (&Plan{}).parseCron(text); err != nil && ofLibrary.MatchString(err.Error()) {
			t.Errorf("%q: the plan has the error %v, want no words of the library", text, err)
		}
	}
}

func TestPlan_RangesOverTheEndOfAField(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{ // the first runs from Thursday, 2026-01-01T00:00 on
		"0 22-1 * * *":    "01T00 01T01 01T22 01T23 02T00 02T01",
		"0 0 * * fri-mon": "02T00 03T00 04T00 05T00 09T00 10T00",
	} {
		p, err := NewPlan(Definition{Cron: text, TimeZone: "UTC"}, time.Time{})
		if err != nil {
			t.Fatal(err)
		}

		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(-1)
		var got []string
		for range 6 {
			at = p.Next(at)
			got = append(got, at.Format("02T15"))
		}

		if strings.Join(got, " ") != want {
			t.Errorf("%s: got the runs %v, want %s", text, got, want)
		}
	}
}
