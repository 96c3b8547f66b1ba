package diagnosis

import (
	"strings"
	"testing"
	"time"

	"weir/internal/calendar"
	"weir/internal/settings"
)

func TestCheckCalendar(t *testing.T) {
	t.Parallel()
	s, err := settings.Load(newEnvironment(t,
		minimal+`calendar:
  timezone: Europe/Berlin
  closed:
    - { name: night freeze, days: [fri, sat], from: 22:00, to: "06:00" }
    - { name: year end, from: 2026-12-24T12:00, to: 2027-01-02T00:00 }
`))
	if err != nil {
		t.Fatal(err)
	}

	times, err := calendar.New(s.Calendar)
	if err != nil {
		t.Fatal(err)
	}

	for moment, closed := range map[string]string{"2026-06-12T20:00:00Z": "night freeze",
		"2026-12-25T00:00:00Z": "year end", "2026-06-11T20:00:00Z": ""} {
		at, err := time.Parse(time.RFC3339, moment)
		if err != nil {
			t.Fatal(err)
		}

		f := (&System{Calendar: times}).checkCalendar(at)
		if _, reason, _ := times.At(at); reason != closed ||
			(closed != "") != strings.HasPrefix(f.Detail, "closed ("+closed+") until 202") {
			t.Errorf("at %s: got closed by %q and the detail %q, want %q in both", moment, reason,
				f.Detail, closed)
		}
	}
}
