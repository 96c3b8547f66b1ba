package recur_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/netresearch/go-cron"

	"weir/internal/recur"
	"weir/internal/weir"
)

func newPlan(t *testing.T, expr, zone string) *recur.Plan {
	t.Helper()
	p, err := recur.NewPlan(recur.Definition{Cron: expr, TimeZone: zone}, parseDay("2000-01-01"))
	if err != nil {
		t.Fatalf("NewPlan(%q) = %v, want no error", expr, err)
	}
	return p
}

func parseDay(s string) time.Time {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		panic(err)
	}
	return t
}

func TestPlan_Next(t *testing.T) {
	t.Parallel()

	// key: zone and name; value: the first day, and the day after the last day
	stretches := map[string][2]string{
		"Europe/Berlin spring":     {"2026-03-27", "2026-03-31"},
		"Europe/Berlin autumn":     {"2026-10-23", "2026-10-27"},
		"America/New_York spring":  {"2026-03-06", "2026-03-10"},
		"America/New_York autumn":  {"2026-10-30", "2026-11-03"},
		"America/Sao_Paulo spring": {"2018-11-02", "2018-11-06"}, // the day begins at 01:00
		// at midnight the clocks are set back to 23:00
		"America/Sao_Paulo autumn":  {"2018-02-16", "2018-02-20"},
		"Australia/Lord_Howe april": {"2026-04-03", "2026-04-07"}, // a change of half an hour
		"Australia/Lord_Howe oct":   {"2026-10-02", "2026-10-06"},
		"Pacific/Apia 2011":         {"2011-12-28", "2012-01-02"}, // a whole day is left out
		"Antarctica/Troll march":    {"2026-03-27", "2026-03-31"}, // a change of two hours
		"Antarctica/Troll oct":      {"2026-10-23", "2026-10-27"},
		"Asia/Kathmandu none":       {"2026-03-27", "2026-03-30"},
		// later than all clock changes in the zone's table
		"Europe/Berlin leap year":   {"2096-12-29", "2097-01-02"},
		"Europe/Berlin far spring":  {"2096-03-23", "2096-03-27"},
		"Africa/Casablanca ramadan": {"2026-02-13", "2026-02-17"},
		"America/Havana spring":     {"2026-03-06", "2026-03-10"}, // the day begins at 01:00
	}

	exprs := []string{"30 2 * * *", "*/15 * * * *", "0 * * * *", "0 0 * * *", "@daily",
		"*/20 2 * * *", "15 */2 * * *", "45 1,23 * * *", "59 23 * * sun", "10 0-23 * * *"}

	for name, s := range stretches {
		zone, _, _ := strings.Cut(name, " ")
		t.Run(strings.ReplaceAll(name, "/", "-"), func(t *testing.T) {
			t.Parallel()
			for _, expr := range exprs {
				from, to := parseDay(s[0]), parseDay(s[1])
				want := listByMinutes(t, expr, zone, from, to)
				var got []string
				p := newPlan(t, expr, zone)
				for at := p.Next(from.Add(-1)); at.Before(to); at = p.Next(at) {
					got = append(got, at.Format(time.RFC3339))
				}

				if fmt.Sprint(got) != fmt.Sprint(want) || len(got) == 0 && expr != "59 23 * * sun" {
					t.Errorf("%s in %s:\n got %v\nwant %v", expr, zone, got, want)
				}
			}
		})
	}
}

// listByMinutes returns each minute at which the local clock shows a time of the cron fields. If
// the clock shows a time twice, only the first of the two minutes counts. But if the hour field
// names every hour, both minutes count.
func listByMinutes(t *testing.T, expr, zone string, from, to time.Time) []string {
	t.Helper()
	location, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}

	spec, err := cron.ParseStandard("TZ=UTC " + expr)
	if err != nil {
		t.Fatal(err)
	}

	hour := strings.Fields(expr)
	everyHour := len(hour) == 5 && (hour[1] == "*" || hour[1] == "0-23")
	shown := map[time.Time]bool{}
	var out []string
	for at := from.AddDate(0, 0, -2); at.Before(to); at = at.Add(time.Minute) {
		_, offset := at.In(location).Zone()

		// the local time that a wall clock shows
		wall := at.Add(time.Duration(offset) * time.Second)
		if spec.Next(wall.Add(-time.Second)).Equal(wall) && (everyHour || !shown[wall]) &&
			!at.Before(from) {
			out = append(out, at.Format(time.RFC3339))
		}

		shown[wall] = true
	}

	return out
}

func TestPlan_NextEdges(t *testing.T) {
	t.Parallel()
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for name, c := range map[string]struct {
		d           recur.Definition
		after, want string // an empty want means that no occurrence follows
	}{
		"SixFields": {recur.Definition{Cron: "15 30 2 * * *", TimeZone: "UTC"},
			"2026-01-01T00:00:00Z", "2026-01-01T02:30:15Z"},
		"AfterIsExclusive": {recur.Definition{Cron: "0 12 * * *", TimeZone: "UTC"},
			"2026-01-01T12:00:00Z", "2026-01-02T12:00:00Z"},
		"StartIsInclusive": {recur.Definition{Cron: "0 12 * * *", TimeZone: "UTC",
			Start: at("2027-01-01T12:00:00Z")}, "2026-01-01T12:00:00Z", "2027-01-01T12:00:00Z"},
		"EndIsExclusive": {recur.Definition{Cron: "0 12 * * *", TimeZone: "UTC",
			End: at("2026-01-02T12:00:00Z")}, "2026-01-01T12:00:00Z", ""},
		"EveryFromAnchor": {recur.Definition{Cron: "@every 90m", TimeZone: "UTC"},
			"2000-01-01T02:00:00Z", "2000-01-01T03:00:00Z"},
		"EveryFromStart": {recur.Definition{Cron: "@every 7s", TimeZone: "UTC",
			Start: at("2026-01-01T00:00:03Z")}, "2025-01-01T00:00:00Z", "2026-01-01T00:00:03Z"},
		"EveryKeepsItsPace": {recur.Definition{Cron: "@every 7s", TimeZone: "UTC"},
			"2000-01-01T00:00:13.999Z", "2000-01-01T00:00:14Z"},
		"EveryLongAfter": {recur.Definition{Cron: "@every 24h", TimeZone: "UTC"},
			"2700-05-05T05:00:00Z", "2700-05-06T00:00:00Z"},
		"LeapDayOverACentury": {recur.Definition{Cron: "0 0 29 2 *", TimeZone: "Europe/Berlin"},
			"2096-03-01T00:00:00Z", "2104-02-28T23:00:00Z"},
		"DayOfMonthOrWeek": {recur.Definition{Cron: "0 0 13 * fri", TimeZone: "UTC"},
			"2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"},
		"TheLastYear": {recur.Definition{Cron: "@yearly", TimeZone: "UTC"}, "9998-06-01T00:00:00Z",
			"9999-01-01T00:00:00Z"},
		"NothingAfterTheLast": {recur.Definition{Cron: "@yearly", TimeZone: "UTC"},
			"9999-06-01T00:00:00Z", ""},
		"ANewYearInItsOwnZone": {recur.Definition{Cron: "@yearly", TimeZone: "Asia/Tokyo"},
			"2026-06-01T00:00:00Z", "2026-12-31T15:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := recur.NewPlan(c.d, parseDay("2000-01-01"))
			if err != nil {
				t.Fatal(err)
			}

			got := p.Next(at(c.after))
			if c.want == "" && !got.IsZero() || c.want != "" && !got.Equal(at(c.want)) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestNewPlan_Refuses(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]recur.Definition{
		"Empty":              {TimeZone: "UTC"},
		"FourFields":         {Cron: "* * * *", TimeZone: "UTC"},
		"SevenFields":        {Cron: "* * * * * * *", TimeZone: "UTC"},
		"TooManyNumbers":     {Cron: strings.Repeat("1,", 150) + "1 * * * *", TimeZone: "UTC"},
		"AnEmptyField":       {Cron: ", * * * * *", TimeZone: "UTC"},
		"ADayThatNeverComes": {Cron: "0 0 31 2 *", TimeZone: "UTC"},
		"AZoneInTheFields":   {Cron: "TZ=Europe/Berlin 0 0 * * *", TimeZone: "UTC"},
		"AZoneWithoutEnd":    {Cron: "CRON_TZ=x", TimeZone: "UTC"},
		"EveryHalfSecond":    {Cron: "@every 500ms", TimeZone: "UTC"},
		"EveryAndAHalf":      {Cron: "@every 1.5s", TimeZone: "UTC"},
		"EveryNothing":       {Cron: "@every ", TimeZone: "UTC"},
		"EveryNegative":      {Cron: "@every -1h", TimeZone: "UTC"},
		"AWord":              {Cron: "@reboot", TimeZone: "UTC"},
		"NoSuchZone":         {Cron: "@daily", TimeZone: "Mars/Phobos"},
		"TheMachinesZone":    {Cron: "@daily", TimeZone: "Local"},
		"APath":              {Cron: "@daily", TimeZone: "../etc/passwd"},
		"EndBeforeStart": {Cron: "@daily", TimeZone: "UTC", Start: parseDay("2026-02-01"),
			End: parseDay("2026-01-01")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := recur.NewPlan(d, parseDay("2000-01-01"))
			var e *weir.Error
			if !errors.As(err, &e) || e.Kind != weir.Invalid || len(e.Problems) != 1 ||
				e.Problems[0].Path == "" {
				t.Errorf("got %v, want one problem with its path", err)
			}
		})
	}
}

func TestPlan_Preview(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		expr, zone, from string
		runs             string // local times
		skipped, doubled string
	}{
		"AFixedTimeInSpring": {"30 2 * * *", "Europe/Berlin", "2026-03-27",
			"27T02:30+01:00 28T02:30+01:00 30T02:30+02:00", "29T02:30", ""},
		"AFixedTimeInAutumn": {"30 2 * * *", "Europe/Berlin", "2026-10-24",
			"24T02:30+02:00 25T02:30+02:00first 26T02:30+01:00", "", "25T02:30x1"},
		"IntervalsInSpring": {"*/30 * * * *", "Europe/Berlin", "2026-03-29",
			"29T01:00+01:00 29T01:30+01:00 29T03:00+02:00", "29T02:00 29T02:30", ""},
		"IntervalsInAutumn": {"0 * * * *", "America/New_York", "2026-11-01",
			"31T20:00-04:00 31T21:00-04:00 31T22:00-04:00 31T23:00-04:00 01T00:00-04:00 01T01:00-04:00first " +
				"01T01:00-05:00second 01T02:00-05:00", "", "01T01:00x2"},
		"AMidnightThatIsMissing": {"@daily", "America/Sao_Paulo", "2018-11-03",
			"03T00:00-03:00 05T00:00-02:00", "04T00:00", ""},
		"EveryHasNoLocalTimes": {"@every 1h", "Europe/Berlin", "2026-03-29",
			"29T01:00+01:00 29T03:00+02:00", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := strings.Fields(c.runs)
			got := newPlan(t, c.expr, c.zone).Preview(parseDay(c.from).Add(-time.Second), len(want))
			var runs, skipped, doubled []string
			for _, r := range got.Runs {
				runs = append(runs, r.Local.Format("02T15:04-07:00")+string(r.Doubled))
			}

			for _, s := range got.Skipped {
				skipped = append(skipped, s.Local.Format("02T15:04"))
			}

			for _, d := range got.Doubled {
				doubled = append(doubled, fmt.Sprintf("%sx%d", d.Local.Format("02T15:04"), d.Runs))
			}

			if strings.Join(runs, " ") != strings.Join(want, " ") ||
				strings.Join(skipped, " ") != c.skipped ||
				strings.Join(doubled, " ") != c.doubled {
				t.Errorf("got runs %v, skipped %v, doubled %v, want %v, [%s] and [%s]", runs,
					skipped, doubled, want, c.skipped, c.doubled)
			}
		})
	}
}
