package weir_test

import (
	"strings"
	"testing"
	"time"

	"weir/internal/weir"
)

// zoneOf returns a zone with changes of clocks: Berlin, Beirut (at midnight), and Lord Howe Island
// (by half an hour).
func zoneOf(t testing.TB, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func TestParseTradeTime(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		// RFC 3339, ISO 8601 with an offset, RFC 822
		"2030-01-31T08:00:00+01:00":     "2030-01-31T07:00:00Z",
		"20300131T080000+0100":          "2030-01-31T07:00:00Z",
		"20300131T080000Z":              "2030-01-31T08:00:00Z",
		"20300131T0800-0330":            "2030-01-31T11:30:00Z",
		"2030-01-31T08:00+01":           "2030-01-31T07:00:00Z",
		"2030-01-31t08:00:00.25+0100":   "2030-01-31T07:00:00.25Z",
		"2030-01-31 08:00:00Z":          "2030-01-31T08:00:00Z",
		"Thu, 31 Jan 2030 08:00:00 GMT": "2030-01-31T08:00:00Z",
		"31 jan 30 08:00 +0100":         "2030-01-31T07:00:00Z",
		"Thu,  1 Jan 1970 00:00:00 EST": "1970-01-01T05:00:00Z",
		"Sat, 31 Jan 70 00:00:00 -0000": "1970-01-31T00:00:00Z",
		"Wed, 02 Oct 2002 13:00:00 pdt": "2002-10-02T20:00:00Z",
		// Berlin
		"2030-01-31":             "2030-01-30T23:00:00Z",
		"20300731":               "2030-07-30T22:00:00Z",
		"2030-01-31T08:00:00":    "2030-01-31T07:00:00Z",
		"20300131T0800":          "2030-01-31T07:00:00Z",
		"2030-01-31 08:00:00":    "2030-01-31T07:00:00Z",
		"Thu, 31 Jan 2030 08:00": "2030-01-31T07:00:00Z",
		"2026-03-29T02:30:00":    "2026-03-29T01:30:00Z", // 02:30 does not exist: 03:30
		"2026-10-25T02:30:00":    "2026-10-25T00:30:00Z", // 02:30 occurs twice: the earlier one
		"2026-10-25T03:00:00":    "2026-10-25T02:00:00Z",
		"2026-10-25":             "2026-10-24T22:00:00Z",
	} {
		got, err := weir.ParseTradeTime(text, zoneOf(t, "Europe/Berlin"))
		if err != nil || got.UTC().Format(time.RFC3339Nano) != want {
			t.Errorf("%s: got %v, %v; want %s", text, got.UTC(), err, want)
		}
	}

	for _, c := range []struct{ zone, text, want string }{
		{"Asia/Beirut", "2026-03-29", "2026-03-28T22:00:00Z"}, // midnight does not exist: 01:00
		{"Australia/Lord_Howe", "2026-10-04T02:15:00", "2026-10-03T15:45:00Z"},
		{"Australia/Lord_Howe", "2026-04-05T01:45:00", "2026-04-04T14:45:00Z"},
		{"America/New_York", "2026-11-01T01:30:00", "2026-11-01T05:30:00Z"},
		{"Pacific/Apia", "2011-12-30", "2011-12-30T10:00:00Z"}, // a day that was left out
	} {
		got, err := weir.ParseTradeTime(c.text, zoneOf(t, c.zone))
		if err != nil || got.UTC().Format(time.RFC3339) != c.want {
			t.Errorf("%s in %s: got %v, %v; want %s", c.text, c.zone, got.UTC(), err, c.want)
		}
	}
}

func TestParseTradeTime_Refuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", " ", "2030", "2030-01", "2030-02-30", "2030-13-01",
		"2030-01-31T", "2030-01-31T24:00",
		"2030-01-31T08", "2030-01-31T08:60", "2030-01-31T08:00:60", "2030-01-31T0800",
		"20300131T08:00",
		"2030-01-31T08:00:00+24:00", "2030-01-31T08:00:00+1", "2030-01-31T08:00:00,5Z",
		"2030-01-31Z",
		"2030-W05-4", "2030-031", "31.01.2030", "01/31/2030", "Fri, 31 Jan 2030 08:00:00 GMT",
		"31 Jan 2030",
		"31 Foo 2030 08:00 GMT", "31 Jan 2030 08:00 CET", "31 Jan 2030 08:00 A",
		"31 Feb 2030 08:00 GMT", "31 Jan 2030 8:00 GMT",
		"noon", "٢٠٣٠-01-31", "2030-01-31\n"} {
		if got, err := weir.ParseTradeTime(text, time.UTC); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}

	for _, text := range []string{"2030-01-31", "20300131", "2030-01-31T08:00:00", "20300131T0800",
		"31 Jan 2030 08:00"} {
		_, err := weir.ParseTradeTime(text, nil)
		if err == nil || !strings.Contains(err.Error(), "timezone in the contract") {
			t.Errorf("%s without a zone: got %v, want the name of the setting", text, err)
		}
	}
}

// Digits are a number, also if they could be a date. All times are compared as instants.
func TestParseVersionIn(t *testing.T) {
	t.Parallel()
	zone := zoneOf(t, "Europe/Berlin")
	parse := func(text string) weir.Version {
		v, err := weir.ParseVersionIn(text, zone)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if parse("20300131").IsTime() || !parse("2030-01-31").IsTime() {
		t.Error("got a number for 2030-01-31, or a time for 20300131")
	}

	rising := []string{"2030-01-31", "Thu, 31 Jan 2030 00:00:01 +0100", "20300131T0000Z",
		"2030-01-31T02:00:00"}
	for i, text := range rising[1:] {
		if older := rising[i]; !parse(text).Newer(parse(older)) || parse(older).Newer(parse(text)) {
			t.Errorf("%s is not newer than %s; want it newer", text, older)
		}
	}
}

func FuzzParseTradeTime(f *testing.F) {
	for _, text := range []string{"2030-01-31", "20300131T080000+0100",
		"Thu, 31 Jan 2030 08:00:00 GMT", "0000-01-01T00:00-23:59"} {
		f.Add(text)
	}

	zone := zoneOf(f, "Europe/Berlin")
	f.Fuzz(func(t *testing.T, text string) {
		due, err := weir.ParseMomentIn(text, zone)
		if err == nil && (due.Year() < 1970 || due.Year() > 9999) {
			t.Errorf("%q: got %v, want a time that storage can store", text, due)
		}

		// Whatever has an offset is read without a zone, and is the same instant.
		if without, err := weir.ParseTradeTime(text, nil); err == nil {
			if with, err := weir.ParseTradeTime(text, zone); err != nil || !with.Equal(without) {
				t.Errorf("%q: got %v, %v in the zone, want %v", text, with, err, without)
			}
		}
	})
}
