package contract_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"weir/internal/contract"
	"weir/internal/weir"
)

func TestSet_Supersede(t *testing.T) {
	t.Parallel()
	s, err := contract.New([]contract.Definition{{Name: "item", Root: "item", Key: contract.KeyPaths{"./@id"},
		Version:   "./@v",
		Supersede: true}}, contract.Limits{MaxBody: 1000})
	if err != nil {
		t.Fatal(err)
	}

	for _, v := range []string{"7", "1.10", "2026-01-31T08:00:00+01:00"} {
		m, err := s.Accept(t.Context(), "", []byte(`<item id="1" v="`+v+`"/>`))
		if err != nil || !m.Supersede || m.Version != v {
			t.Errorf("%s: got %+v, %v, want Supersede true, Version %v and no error", v, m, err, v)
		}
	}

	for v, says := range map[string]string{"v7": "neither a number", "": "missing"} {
		_, err := s.Accept(t.Context(), "", []byte(`<item id="1" v="`+v+`"/>`))
		var refused *weir.Error
		if !errors.As(err, &refused) || refused.Kind != weir.Invalid ||
			len(refused.Problems) != 1 ||
			!strings.Contains(refused.Problems[0].Message, says) {
			t.Errorf("%q: got %+v, want one problem with %q", v, err, says)
		}
	}
}

func TestNew_SupersedeNeedsKeyAndVersion(t *testing.T) {
	t.Parallel()
	for _, def := range []contract.Definition{{Name: "a", Root: "a",
		Key: contract.KeyPaths{"./@id"}, Supersede: true},
		{Name: "a", Root: "a", Version: "./@v", Supersede: true}} {
		if _, err := contract.New([]contract.Definition{def}, contract.Limits{MaxBody: 1}); err ==
			nil ||
			!strings.Contains(err.Error(), "supersede needs") {
			t.Errorf("%+v: got %v, want an error with \"supersede needs\"", def, err)
		}
	}
}

func TestSet_VersionMax(t *testing.T) {
	t.Parallel()
	now := func() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) }
	for _, c := range []struct{ limit, version, want string }{
		{"9999999999", "9999999999", ""},
		{"9999999999", "1", ""},
		{"9999999999", "1700000000000", "is above 9999999999"},
		{"9999999999", "99999999999999999999", "is above"},
		{"9999999999", "2026-11-22T12:00:00Z", "must be a number"},
		{"99.99", "99.100", "is above 99.99"},
		{"99.99", "12.1.4", ""},
		{"+24h", "2026-11-23T11:59:59Z", ""},
		{"+24h", "2026-11-23T14:00:00+01:00", "more than 24h0m0s in the future"},
		{"+24h", "7", "must be a time"},
		{"2030-01-01T00:00:00Z", "2029-12-31T00:00:00Z", ""},
		{"2030-01-01T00:00:00Z", "2031-01-01T00:00:00Z", "is above 2030-01-01"},
		{"", "99999999999999999999", ""},
	} {
		s, err := contract.New(
			[]contract.Definition{{Name: "item", Root: "item", Key: contract.KeyPaths{"./@id"},
				Version:   "./@v",
				Supersede: true, VersionMax: c.limit}}, contract.Limits{MaxBody: 1000, Now: now})
		if err != nil {
			t.Fatal(err)
		}

		_, err = s.Accept(t.Context(), "", []byte(`<item id="1" v="`+c.version+`"/>`))
		var refused *weir.Error
		switch {
		case c.want == "" && err != nil:
			t.Errorf("version %s, versionMax %q: got the error %v, want no error", c.version,
				c.limit, err)
		case c.want != "" && (!errors.As(err, &refused) || refused.Kind != weir.Invalid ||
			len(refused.Problems) != 1 || !strings.Contains(refused.Problems[0].Message, c.want)):
			t.Errorf("version %s, versionMax %q: got the error %+v, want %q", c.version, c.limit,
				refused, c.want)
		}
	}
}

func TestNew_VersionMax(t *testing.T) {
	t.Parallel()
	for limit, want := range map[string]string{"+1d": "no duration", "+0s": "no duration",
		"-24h": "neither a number", "many": "neither a number"} {
		_, err := contract.New(
			[]contract.Definition{{Name: "a", Root: "a", Key: contract.KeyPaths{"./@id"},
				Version:    "./@v",
				Supersede:  true,
				VersionMax: limit}}, contract.Limits{MaxBody: 1})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("versionMax %s: got the error %v, want %q", limit, err, want)
		}
	}

	_, err := contract.New([]contract.Definition{{Name: "a", Root: "a", Key: contract.KeyPaths{"./@id"},
		Version:    "./@v",
		VersionMax: "9"}},
		contract.Limits{MaxBody: 1})
	if err == nil || !strings.Contains(err.Error(), "needs supersede: true") {
		t.Errorf("without supersede: got the error %v, want one that names supersede: true", err)
	}
}
