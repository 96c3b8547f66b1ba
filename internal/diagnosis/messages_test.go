package diagnosis

import (
	"strings"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

// weir check looks at messages in the log, at scheduled ones and at dead ones, before a holder
// misses their contract.
func TestDiagnose_NamesMissingContracts(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		lanes := lanetest.New(t, 1)
		ofContract := func(name string) func(*weir.Message) {
			return func(m *weir.Message) { m.Contract = name }
		}
		lanes.Append("a", "1", ofContract("gone"))
		lanes.Append("b", "2", ofContract("former"))
		lanes.Append("c", "3", ofContract("due"),
			func(m *weir.Message) { m.DueAt = time.Now().Add(time.Hour) })

		for name, c := range map[string]struct {
			contracts *lane.Contracts
			want      string // "" = nothing is wrong
		}{
			"All":     {nil, ""},
			"Renamed": {lane.NewContracts(map[string][]string{"new": {"former", "gone"}, "due": nil}), ""},
			"Missing": {lane.NewContracts(map[string][]string{"new": {"former"}}),
				"due (messages: 1), gone (messages: 1)"},
		} {
			store := *lanes.Store
			store.Contracts = c.contracts
			found, err := readStoredContracts(t.Context(), &store, 0)
			if err != nil {
				t.Fatal(err)
			}

			f := found.describe(Finding{}, c.contracts)
			if c.want == "" && f.Wrong != nil || c.want != "" && (f.Wrong == nil ||
				!strings.HasSuffix(f.Wrong.Error(), ": "+c.want) ||
				!strings.Contains(f.Todo, "formerly")) {
				t.Errorf("%s: got %+v, want wrong %q", name, f, c.want)
			}
		}

		dead := storedContracts{dead: map[string]int{"gone": 2}}
		f := dead.describe(Finding{}, lane.NewContracts(nil))
		if f.Wrong != nil || len(f.Warnings) != 1 ||
			!strings.Contains(f.Warnings[0], "gone (messages: 2)") {
			t.Errorf("dead messages: got %+v, want one warning", f)
		}
	})
}
