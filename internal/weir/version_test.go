package weir_test

import (
	"testing"

	"weir/internal/weir"
)

func TestVersion_Newer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		newer, older string
	}{
		{"2", "1"}, {"10", "9"}, {"1.10", "1.9"}, {"1.0.1", "1"}, {"2", "1.99"},
		{"100000000000000000000000000000001", "100000000000000000000000000000000"},
		{"2026-01-01T00:00:01Z", "2026-01-01T00:00:00Z"}, {"2026-01-01T00:00:00Z", "2026-01-01T00:30:00+01:00"},
		{"2026-01-01T00:00:00.002Z", "2026-01-01T00:00:00.001Z"},
	} {
		a, b := parse(t, c.newer), parse(t, c.older)
		if !a.Newer(b) || b.Newer(a) || a.Newer(a) {
			t.Errorf("%s and %s: %v, %v", c.newer, c.older, a.Newer(b), b.Newer(a))
		}
	}
	for _, c := range [][2]string{{"1", "01"}, {"1", "1.0"}, {"0", "000"},
		{"2026-01-01T01:00:00+01:00", "2026-01-01T00:00:00Z"}, {"9999", "2026-01-01T00:00:00Z"}} {
		if a, b := parse(t, c[0]), parse(t, c[1]); a.Newer(b) || b.Newer(a) {
			t.Errorf("one of %v counts as newer", c)
		}
	}
}

func TestParseVersion_Refuses(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "v1", "1.", ".1", "1..2", "-1", "+1", "1e3", "1,5", " 1", "2026-01-01",
		"2026-01-01T00:00:00", "٣"} {
		if _, err := weir.ParseVersion(s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}

func parse(t *testing.T, s string) weir.Version {
	t.Helper()
	v, err := weir.ParseVersion(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
