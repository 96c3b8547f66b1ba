package weir_test

import (
	"strings"
	"testing"
	"time"

	"weir/internal/weir"
)

func TestParseMoment(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2030-01-31T08:00:00+01:00":      "2030-01-31T07:00:00Z",
		"2030-01-31T08:00:00.123456789Z": "2030-01-31T08:00:00.123456789Z",
		"9999-12-31T23:59:59Z":           "9999-12-31T23:59:59Z",
		"9999-12-31T23:59:59.9999999Z":   "9999-12-31T23:59:59Z",
		"1066-10-14T09:00:00Z":           "1970-01-01T00:00:00Z",
		"0001-01-01T00:00:00Z":           "1970-01-01T00:00:00Z",
		"9999-12-31T23:59:59-12:00":      "",
		"2030-01-31T08:00:00":            "",
		"2030-01-31":                     "",
		"tomorrow":                       "",
		"":                               "",
		"12345-01-01T00:00:00Z":          "",
		"2030-02-30T00:00:00Z":           "",
		"2030-01-31t08:00:00z":           "2030-01-31T08:00:00Z",
		"2016-12-31T23:59:60Z":           "2017-01-01T00:00:00Z",
		"1990-12-31T15:59:60.5-08:00":    "1991-01-01T00:00:00.5Z",
		"2030-01-31T08:00:60Z":           "", // a leap second ends a month
		"2030-01-30T23:59:60Z":           "",
		"2016-12-31T23:59:61Z":           "",
		"2030-01-31T08:00:00+24:00":      "",
		"2030-01-31T08:00:00+23:60":      "",
		"2030-01-31T08:00:00,5Z":         "",
		"2030-01-31T8:00:00Z":            "",
		"2030-01-31T24:00:00Z":           "",
		"2030-01-31 08:00:00Z":           "",
		"2030-01-31T08:00:00.Z":          "",
		"2030-01-31T08:00:00Z\n":         "",
	} {
		got, err := weir.ParseMoment(text)
		if (err == nil) != (want != "") || (err == nil && got.Format(time.RFC3339Nano) != want) {
			t.Errorf("%q: got %s, %v, want %q", text, got.Format(time.RFC3339Nano), err, want)
		}
	}
}

func TestParseMoment_LostPlus(t *testing.T) {
	t.Parallel()
	const hint = "write + as %2B"
	for text, isExpected := range map[string]bool{
		"2030-01-31T08:00:00 01:00": true,
		"2030-01-31T08:00:00":       false,
		"2030-01-31 08:00:00+01:00": false,
		"soon 01:00":                false,
	} {
		_, err := weir.ParseMoment(text)
		if err == nil || strings.Contains(err.Error(), hint) != isExpected {
			t.Errorf("%q: got the error %v, want the hint %q in it: %t", text, err, hint,
				isExpected)
		}
	}
}

func TestParseDelay(t *testing.T) {
	t.Parallel()
	from := time.Date(2028, 1, 31, 12, 0, 0, 0, time.FixedZone("", 3600))
	for text, want := range map[string]string{
		"90s":                  "2028-01-31T11:01:30Z",
		"1h30m":                "2028-01-31T12:30:00Z",
		"0s":                   "2028-01-31T11:00:00Z",
		"PT1.5S":               "2028-01-31T11:00:01.5Z",
		"P1DT2H":               "2028-02-01T13:00:00Z",
		"P1M":                  "2028-03-02T11:00:00Z", // 31 February is 2 March
		"P2W":                  "2028-02-14T11:00:00Z",
		"P7000Y":               "9028-01-31T11:00:00Z",
		"P9000Y":               "",
		"-5m":                  "",
		"-PT5M":                "",
		"P0.5Y":                "",
		"PT99999999999999999S": "",
		"P99999999999999999D":  "",
		"5":                    "",
		"soon":                 "",
		"":                     "",
		"P":                    "",
		"PT":                   "",
		"P1DT":                 "",
		"-P":                   "",
		"P1":                   "",
		"PT1":                  "",
		"P1H":                  "",
		"PD":                   "",
		"PTS":                  "",
		"P1YP1M":               "",
		"PT1HT1M":              "",
		"PT1S1H":               "",
		"P1D1D":                "",
		"PT1.2.3S":             "",
		"PT٣S":                 "",
		"\x20PT1S":             "",
		"pt1s":                 "",
	} {
		got, err := weir.ParseDelay(text, from)
		if (err == nil) != (want != "") || (err == nil && got.Format(time.RFC3339Nano) != want) {
			t.Errorf("%q: got %s, %v, want %q", text, got.Format(time.RFC3339Nano), err, want)
		}
	}
}

// FuzzParseDelay holds delays and moments against their rules: a due time lies in the years that
// Weir stores, and a delay never before its start.
func FuzzParseDelay(f *testing.F) {
	for _, text := range []string{"90s", "PT90S", "P1DT2H", "P", "PT", "-1h", "P1.5D", "P9999Y", "PT1e9S",
		"2030-01-31T08:00:00Z", "2030-01-31t08:00:60z", "1e300h"} {
		f.Add(text)
	}

	from := time.Date(2030, 1, 31, 8, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		if at, err := weir.ParseDelay(text, from); err == nil && (at.Before(from) || at.Year() > 9999) {
			t.Errorf("%q: got %s, want a time from %s to the year 9999", text, at, from)
		}
		if at, err := weir.ParseMoment(text); err == nil && (at.Year() < 0 || at.Year() > 9999) {
			t.Errorf("%q: got %s, want a year up to 9999", text, at)
		}
	})
}
