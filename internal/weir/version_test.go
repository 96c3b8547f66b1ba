package weir_test

import (
	"strings"
	"testing"
	"time"

	"weir/internal/weir"
)

func TestVersion_Newer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		newer, older string
	}{
		{"2", "1"}, {"10", "9"}, {"1.10", "1.9"}, {"1.0.1", "1"}, {"2", "1.99"},
		{"100000000000000000000000000000001", "100000000000000000000000000000000"},
		{"2026-01-01T00:00:01Z", "2026-01-01T00:00:00Z"},
		{"2026-01-01T00:00:00Z", "2026-01-01T00:30:00+01:00"},
		{"2026-01-01T00:00:00.002Z", "2026-01-01T00:00:00.001Z"},
		{"2026-01-01t00:00:01z", "2026-01-01T00:00:00Z"},
	} {
		a, b := mustParse(t, c.newer), mustParse(t, c.older)
		if !a.Newer(b) || b.Newer(a) || a.Newer(a) {
			t.Errorf("got Newer of %s and %s: %v, and the reverse: %v; want true and false",
				c.newer, c.older, a.Newer(b), b.Newer(a))
		}
	}

	for _, c := range [][2]string{{"1", "01"}, {"1", "1.0"}, {"0", "000"},
		{"2026-01-01T01:00:00+01:00", "2026-01-01T00:00:00Z"}, {"9999", "2026-01-01T00:00:00Z"}} {
		if a, b := mustParse(t, c[0]), mustParse(t, c[1]); a.Newer(b) || b.Newer(a) {
			t.Errorf("got Newer of %s and %s: %v, and the reverse: %v; want false twice", c[0],
				c[1], a.Newer(b), b.Newer(a))
		}
	}
}

func TestVersion_DescribeJump(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct{ version, previous, want string }{
		{"1700000000000", "1700000000",
			"more than a hundred times the version before it (1700000000)"},
		{"1700000000", "3", "before it (3)"},
		{"2.1000000", "2.7", "before it (2.7)"},
		{"99999999999999999999", "", "more than 18 digits"},
		{"2026-11-24T00:00:00Z", "2026-11-21T00:00:00Z", "more than a day ahead"},
		{"2026-11-24T00:00:00Z", "", "more than a day ahead"},
		{"1700000000000", "", ""},
		{"1700000000", "1690000000", ""},
		{"999999", "1", ""},
		{"3", "1700000000", ""},
		{"20260131080000123", "20250131080000123", ""},
		{"3.1", "2.99999999999", ""},
		{"2026-11-23T11:00:00Z", "2001-01-01T00:00:00Z", ""},
		{"2026-11-23T11:00:00Z", "7", ""},
	} {
		var previous weir.Version
		if c.previous != "" {
			previous = mustParse(t, c.previous)
		}

		got := mustParse(t, c.version).DescribeJump(previous, now)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s after %q: got %q, want %q", c.version, c.previous, got, c.want)
		}
	}
}

func TestDescribeFraction(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		older, newer string
		warns        bool
	}{
		{"1.5", "1.25", true}, {"12.50", "12.500", false}, {"12.49", "12.5", false},
		{"1.9", "1.10", true},
		{"1.05", "1.5", false}, {"1.5", "2.25", false}, {"1.5.0", "1.25.0", false},
		{"5", "25", false},
		{"2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00.25Z", false},
	} {
		if got := weir.DescribeFraction(c.older, c.newer); (got != "") != c.warns {
			t.Errorf("%s superseded by %s: got %q, want a warning: %t", c.older, c.newer,
				got, c.warns)
		}
	}
}

func TestParseVersion_Refuses(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "v1", "1.", ".1", "1..2", "-1", "+1", "1e3", "1,5", " 1",
		"2026-01-01",
		"2026-01-01T00:00:00", "2026-01-01T0:00:00Z", "2026-01-01T00:00:00,5Z",
		"2026-01-01T00:00:00+24:00", "٣"} {
		if _, err := weir.ParseVersion(s); err == nil {
			t.Errorf("%q: got no error, want one", s)
		}
	}
}

func mustParse(t *testing.T, s string) weir.Version {
	t.Helper()
	v, err := weir.ParseVersion(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
