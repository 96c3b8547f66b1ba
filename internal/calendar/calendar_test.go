package calendar_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"weir/internal/calendar"
)

func mustNew(t *testing.T, s calendar.Settings) *calendar.Calendar {
	t.Helper()
	c, err := calendar.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func parseTime(t *testing.T, text string) time.Time {
	t.Helper()
	moment, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return moment
}

var berlin = calendar.Settings{TimeZone: "Europe/Berlin", Closed: []calendar.Window{
	{Name: "night freeze", Days: []string{"fri", "Sat"}, From: "22:00", To: "06:00"},
	{Name: "morning", Days: []string{"sat"}, From: "05:00", To: "07:30"},
	{Name: "change of clocks", Days: []string{"sun"}, From: "02:15", To: "02:45"},
	{Name: "year end", From: "2026-12-24T12:00", To: "2027-01-02"},
}}

func TestCalendar_At(t *testing.T) {
	t.Parallel()
	c := mustNew(t, berlin)
	for name, want := range map[string]struct{ at, reason, until, next string }{
		// 12 June 2026 is a Friday
		"Open": {"2026-06-12T19:59:59Z", "", "", "2026-06-12T20:00:00Z"},
		"Closes": {"2026-06-12T20:00:00Z", "night freeze",
			"2026-06-13T05:30:00Z", ""},
		"PastMidnightAndMerged": {"2026-06-13T03:30:00Z", "night freeze, morning",
			"2026-06-13T05:30:00Z", ""},
		"OnlyTheSecond":     {"2026-06-13T04:00:00Z", "morning", "2026-06-13T05:30:00Z", ""},
		"Opens":             {"2026-06-13T05:30:00Z", "", "", "2026-06-13T20:00:00Z"},
		"MondayNightIsOpen": {"2026-06-15T22:30:00Z", "", "", "2026-06-19T20:00:00Z"},
		"Winter":            {"2026-01-09T20:30:00Z", "", "", "2026-01-09T21:00:00Z"},
		"SpringHourLeftOut": {"2026-03-29T00:59:00Z", "night freeze",
			"2026-03-29T04:00:00Z", ""},
		"AutumnHourTwice": {"2026-10-25T00:20:00Z", "night freeze, change of clocks",
			"2026-10-25T05:00:00Z", ""},
		"YearEnd": {"2026-12-24T11:00:00Z", "year end", "2027-01-02T06:30:00Z",
			""}, // 1 January 2027 is a Friday, so "night freeze" and "morning" follow
		"YearEndNotYet": {"2026-12-24T10:59:00Z", "", "", "2026-12-24T11:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			closed, reason, until := c.At(parseTime(t, want.at))
			if closed != (want.reason != "") || reason != want.reason {
				t.Errorf("got closed %v because of %q, want %v because of %q", closed, reason,
					want.reason != "", want.reason)
			}

			if want.until != "" && !until.Equal(parseTime(t, want.until)) {
				t.Errorf("got closed until %s, want until %s", until, want.until)
			}

			next := want.until + want.next
			if got := c.Next(parseTime(t, want.at)); !got.Equal(parseTime(t, next)) {
				t.Errorf("got the next change at %s, want %s", got, next)
			}
		})
	}
}

func TestCalendar_ChangeOfClocks(t *testing.T) {
	t.Parallel()
	c := mustNew(t, calendar.Settings{TimeZone: "Europe/Berlin",
		Closed: []calendar.Window{{Name: "x", From: "02:15", To: "02:45"}}})

	for name, want := range map[string]struct{ from, until string }{
		"Summer":          {"2026-06-14T00:15:00Z", "2026-06-14T00:45:00Z"},
		"HourThatIsTwice": {"2026-10-25T00:15:00Z", "2026-10-25T01:45:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.Next(parseTime(t, want.from).Add(-time.Hour)); !got.Equal(parseTime(t,
				want.from)) {
				t.Errorf("got the beginning %s, want %s", got, want.from)
			}

			if _, _, until := c.At(parseTime(t, want.from)); !until.Equal(parseTime(t,
				want.until)) {
				t.Errorf("got closed until %s, want until %s", until, want.until)
			}
		})
	}

	// The clocks skip the window on this day, so the calendar stays open.
	if closed, _, _ := c.At(parseTime(t, "2026-03-29T01:00:00Z")); closed {
		t.Error("closed at the change of the clocks, want open")
	}
}

func TestCalendar_EmptyIsOpen(t *testing.T) {
	t.Parallel()
	for _, c := range []*calendar.Calendar{{}, mustNew(t, calendar.Settings{})} {
		if closed, _, _ := c.At(time.Now()); closed || !c.Next(time.Now()).IsZero() {
			t.Errorf("got closed %t and the next change at %s; want open, and no change", closed,
				c.Next(time.Now()))
		}
	}
}

// TestCalendar_NextAndAtAgree goes from change to change with Next. Between two changes, At must
// not report a change.
func TestCalendar_NextAndAtAgree(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe",
		"Asia/Kolkata", "UTC"} {
		s := berlin
		s.TimeZone = zone
		c := mustNew(t, s)
		now := parseTime(t, "2026-01-01T00:00:00Z")
		for now.Year() < 2028 {
			closed, _, until := c.At(now)
			next := c.Next(now)
			if !next.After(now) || (closed && !until.Equal(next)) {
				t.Fatalf("%s: at %s: got closed %v until %s, next %s, want a later next, and until = next if closed",
					zone,
					now, closed, until, next)
			}

			for range 20 {
				between := now.Add(rand.N(next.Sub(now)))
				if c2, _, _ := c.At(between); c2 != closed {
					t.Fatalf("%s: got closed %v at %s and %v at %s, want no change between them",
						zone, closed, now, c2, between)
				}
			}

			if c2, _, _ := c.At(next); c2 == closed {
				t.Fatalf("%s: got closed %v before and at %s, want a change there", zone,
					closed, next)
			}

			now = next
		}
	}
}

func TestNew_NamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := calendar.New(calendar.Settings{TimeZone: "Europe/Nowhere", Closed: []calendar.Window{
		{From: "22:00", To: "06:00"},
		{Name: "a", From: "22:00", To: "2026-01-01"},
		{Name: "b", From: "25:00", To: "soon"},
		{Name: "c", Days: []string{"funday", "mon", "tueday"}, From: "1:00", To: "02:00"},
		{Name: "d", From: "2026-02-01", To: "2026-01-01", Days: []string{"mon"}},
		{Name: "e"},
		{Name: "f", From: "24:00", To: "01:00"},
	}})
	if err == nil {
		t.Fatal("New found no problem, want an error with all of them")
	}

	for _, want := range []string{"Europe/Nowhere", "closed[0] (): name is missing",
		"closed[1] (a): from and to must be both", `closed[2] (b): from: "25:00"`,
		`closed[2] (b): to: "soon"`,
		`closed[3] (c): day "funday"`, `closed[3] (c): day "tueday"`,
		"closed[4] (d): days go with hours", "closed[5] (e): from and to are needed",
		"closed[6] (f): from must be before"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v\nwant an error with %q", err, want)
		}
	}
}

func TestNew_NeverOpen(t *testing.T) {
	t.Parallel()
	for name, closed := range map[string][]calendar.Window{
		"OneWindow": {{Name: "a", From: "00:00", To: "24:00"}},
		"TwoTogether": {{Name: "a", From: "22:00", To: "06:00"},
			{Name: "b", From: "06:00", To: "22:00"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := calendar.New(calendar.Settings{Closed: closed}); err == nil {
				t.Error("New accepted a calendar that is never open, want an error")
			}
		})
	}

	if _, err := calendar.New(calendar.Settings{Closed: []calendar.Window{{Name: "a", From: "00:01",
		To: "00:00"}}}); err != nil {
		t.Errorf("New with one open minute a day = %v, want no error", err)
	}
}

// The clocks of Berlin skip the hour of the window on Sunday, 29 March 2026. The calendar stays
// open on that day, so Next must return the beginning of a later window.
func TestCalendar_NextIsAChange(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		days     []string
		at, want string
	}{
		{"each day", nil, "2026-03-29T00:30:00Z", "2026-03-30T00:15:00Z"},
		{"on Sundays, a week before", []string{"sun"}, "2026-03-23T00:30:00Z",
			"2026-04-05T00:15:00Z"},
		{"on Sundays, after the last window", []string{"sun"}, "2026-03-22T02:00:00Z",
			"2026-04-05T00:15:00Z"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := mustNew(t, calendar.Settings{TimeZone: "Europe/Berlin",
				Closed: []calendar.Window{{Name: "x", Days: tc.days, From: "02:15", To: "02:45"}}})
			got, want := c.Next(parseTime(t, tc.at)), parseTime(t, tc.want)
			if !got.Equal(want) {
				t.Errorf("got the next change at %s, want %s", got, want)
			}
		})
	}
}
