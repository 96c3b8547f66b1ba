package drain

import (
	"testing"
	"time"

	"weir/internal/lane"
)

// In all tests of this package, each change of a block's state keeps the invariant.
func init() {
	stateChanged = func(k *keyState) {
		if fault := k.findFault(); fault != "" {
			panic("drain: block " + k.ID + ": " + fault)
		}
	}
}

func TestKeyState_FindFault(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		k     keyState
		isBad bool
	}{
		"Empty":      {keyState{}, false},
		"Parked":     {keyState{KeyBlock: lane.KeyBlock{IsParked: true, LogWaitsFrom: 7}}, false},
		"ParkedOnly": {keyState{KeyBlock: lane.KeyBlock{IsParked: true}}, true},
		"Missing": {keyState{KeyBlock: lane.KeyBlock{MissingContract: "a",
			MissingSince: time.Unix(1, 0)}}, false},
		"MissingOnly": {keyState{KeyBlock: lane.KeyBlock{MissingContract: "a"}}, true},
		"BrakedOnly":  {keyState{KeyBlock: lane.KeyBlock{BrakedBy: "f"}}, true},
		"InMemory": {keyState{KeyBlock: lane.KeyBlock{HeldCount: 2}, first: &lane.Entry{},
			rest: []*lane.Entry{{}}}, false},
		"TooMany": {keyState{KeyBlock: lane.KeyBlock{HeldCount: 1}, first: &lane.Entry{},
			rest: []*lane.Entry{{}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.k.findFault(); (got != "") != c.isBad {
				t.Errorf("got %q, want a fault: %t", got, c.isBad)
			}
		})
	}
}
