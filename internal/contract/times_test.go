package contract_test

import (
	"strings"
	"testing"
	"time"

	"weir/internal/contract"
	"weir/internal/weir"
)

func newTimedSet(zone string) (*contract.Set, error) {
	return contract.New([]contract.Definition{{Name: "r", Root: "r", Key: contract.KeyPaths{"./@id"}, Version: "./v",
		DeliverAt: "./d", Supersede: true, VersionMax: "2040-01-01T00:00:00Z", TimeZone: zone}},
		contract.Limits{MaxBody: 1 << 10})
}

// A version without an offset is stored with it, because it is compared after the settings may have
// changed. All others are stored as they came.
func TestAccept_ReadsTimesOfTheTrade(t *testing.T) {
	t.Parallel()
	berlin, err := newTimedSet("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct{ version, due, stored, dueAt string }{
		{"2030-01-31T08:00:00+01:00", "20300131T080000+0100", "2030-01-31T08:00:00+01:00",
			"2030-01-31T07:00:00Z"},
		{"20300131T080000+0100", "Thu, 31 Jan 2030 08:00:00 GMT", "20300131T080000+0100",
			"2030-01-31T08:00:00Z"},
		{"2030-01-31", "2030-01-31", "2030-01-31T00:00:00+01:00", "2030-01-30T23:00:00Z"},
		{"2030-07-31T08:00", "20300731", "2030-07-31T08:00:00+02:00", "2030-07-30T22:00:00Z"},
		{"Thu, 31 Jan 2030 08:00:00 GMT", "1960-01-01", "Thu, 31 Jan 2030 08:00:00 GMT",
			"1970-01-01T00:00:00Z"},
	} {
		m, err := berlin.Accept(t.Context(), "",
			[]byte("<r id='1'><v>"+c.version+"</v><d>"+c.due+"</d></r>"))
		if err != nil || m.Version != c.stored || m.DueAt.Format(time.RFC3339) != c.dueAt {
			t.Errorf("version %s, due %s: got %s and %v, %v; want %s and %s", c.version, c.due,
				m.Version, m.DueAt, err, c.stored, c.dueAt)
		}
	}

	for version, want := range map[string]string{
		"20300131":   "the version must be a time", // digits stay a number
		"2041-01-01": "the version is above", "soon": "nor one by ISO 8601 or RFC 822",
	} {
		_, err := berlin.Accept(t.Context(), "", []byte("<r id='1'><v>"+version+"</v></r>"))
		if p := problemOf(t, err); !strings.Contains(p.Message, want) || p.Line != 1 {
			t.Errorf("version %s: got %+v, want %q", version, p, want)
		}
	}
}

// Without a time zone, no time is taken for one in UTC, and an embargoed message is refused.
func TestAccept_RefusesTimesWithoutZone(t *testing.T) {
	t.Parallel()
	set, err := newTimedSet("")
	if err != nil {
		t.Fatal(err)
	}

	for _, due := range []string{"2030-01-31", "2030-01-31T08:00:00", "20300131T080000",
		"Thu, 31 Jan 2030 08:00:00"} {
		_, err := set.Accept(t.Context(), "",
			[]byte("<r id='1'><v>2030-01-31T08:00:00Z</v><d>"+due+"</d></r>"))
		if p := problemOf(t, err); weir.KindOf(err) != weir.Invalid ||
			!strings.Contains(p.Message, "timezone in the contract") {
			t.Errorf("%s: got %v, %+v; want a refusal with the name of the setting", due, err, p)
		}
	}
}

func TestNew_RefusesTimeZones(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Local", "CEST", "Europe/Bielefeld", "+01:00"} {
		if _, err := newTimedSet(zone); err == nil ||
			!strings.Contains(err.Error(), "is no zone of the tz database") {
			t.Errorf("%s: got %v, want a refusal of the zone", zone, err)
		}
	}

	_, err := contract.New([]contract.Definition{{Name: "r", Root: "r", TimeZone: "UTC"}},
		contract.Limits{MaxBody: 1})
	if err == nil || !strings.Contains(err.Error(), "timezone: it needs deliverAt") {
		t.Errorf("got %v, want the settings that timezone needs", err)
	}
}
