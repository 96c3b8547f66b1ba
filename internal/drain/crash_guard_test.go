package drain

import (
	"testing"

	"weir/internal/lane"
)

func TestCrashGuard_AdoptTail(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tail     lane.Tail
		cautious bool
		poison   int64
	}{
		"NoCrash": {lane.Tail{}, false, 0},
		"TwoCrashes": {lane.Tail{CrashRecord: lane.CrashRecord{Crashes: 2, InFlightSeq: 7, InFlightCrashes: 2}},
			false, 0},
		"ThreeOfMany": {lane.Tail{CrashRecord: lane.CrashRecord{Crashes: 3, InFlightSeq: 7, InFlightCrashes: 1}},
			true, 0},
		"ThreeOfTheSame": {lane.Tail{CrashRecord: lane.CrashRecord{Crashes: 3, InFlightSeq: 7, InFlightCrashes: 3}},
			true, 7},
		"TheSameAfterAHandOver": {
			lane.Tail{CrashRecord: lane.CrashRecord{InFlightSeq: 7, InFlightCrashes: 3}}, false, 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &crashGuard{}
			if cautious := g.adoptTail(c.tail); cautious != c.cautious || g.poisonSeq != c.poison {
				t.Errorf("got cautious %v, poison %d; want %v, %d", cautious, g.poisonSeq,
					c.cautious, c.poison)
			}
		})
	}
}

// The argument of pardon is the sequence number of a replayed message. If poisonSeq is another
// number, pardon must not clear poisonSeq.
func TestCrashGuard_Pardon(t *testing.T) {
	t.Parallel()
	g := &crashGuard{poisonSeq: 7}
	if g.pardon(8); g.poisonSeq != 7 {
		t.Errorf("after the pardon of another: got poison %d, want 7", g.poisonSeq)
	}

	if g.pardon(7); g.poisonSeq != 0 {
		t.Errorf("after its pardon: got poison %d, want none", g.poisonSeq)
	}
}
