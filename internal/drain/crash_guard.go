package drain

import (
	"context"

	"weir/internal/lane"
	"weir/internal/weir"
)

const (
	// cautiousAfter is the number of crashes in a row from which the lane runs cautiously, and the
	// number of crashes during which a message must have been in flight to be dead.
	cautiousAfter = 3
	// cautiousMessages is the number of messages after which cautious running ends.
	cautiousMessages = 32
)

// crashGuard finds a message that ends the process. After some crashes in a row the holder runs
// cautiously: it sends one message at a time, and writes its number into tail before.
type crashGuard struct {
	journal      *journal
	cautiousLeft int   // messages still to be sent cautiously
	inFlightSeq  int64 // the last number written to tail
	poisonSeq    int64 // the message that was in flight at too many crashes; 0 = none
	hasSurvived  bool  // an attempt of this holder has come to its end
}

// adoptTail takes over from the former holder, and reports whether to run cautiously.
func (g *crashGuard) adoptTail(t lane.Tail) bool {
	g.inFlightSeq = t.InFlightSeq
	if t.InFlightCrashes >= cautiousAfter {
		g.poisonSeq = t.InFlightSeq
	}
	if t.Crashes >= cautiousAfter {
		g.cautiousLeft = cautiousMessages
	}
	return g.isCautious()
}

// isCautious reports whether one message is sent at a time.
func (g *crashGuard) isCautious() bool { return g.cautiousLeft > 0 }

// recordInFlight writes into tail which message is sent next, if the lane runs cautiously. If the process dies of that
// message, the next holder reads its number there.
func (g *crashGuard) recordInFlight(ctx context.Context, seq int64) error {
	if !g.isCautious() || seq == g.poisonSeq {
		return nil
	}
	isSame := g.inFlightSeq == seq
	g.inFlightSeq = seq
	ch := &lane.Change{}
	ch.UpdateTail(func(t *lane.Tail) {
		t.InFlightSeq, t.InFlightFence = seq, t.Fence
		if !isSame {
			t.InFlightCrashes = 0
		}
	})
	g.journal.addChange(ch, true)
	return g.journal.waitBelow(ctx, 1)
}

// clearInFlight writes that the attempt is over. If it has come to its end, the message is innocent. If Weir cut it off
// or did not make it, the crashes of earlier holders that were about to send the message still count.
func (g *crashGuard) clearInFlight(ch *lane.Change, outcome weir.Outcome) {
	if outcome == weir.OutcomeNone {
		ch.UpdateTail(func(t *lane.Tail) { t.InFlightFence = 0 })
		return
	}
	g.hasSurvived = true
	ch.UpdateTail(func(t *lane.Tail) { t.InFlightSeq, t.InFlightCrashes, t.InFlightFence = 0, 0, 0 })
	g.inFlightSeq = 0
}

// recordHandOver ends the crashes in a row if this holder has survived an attempt. A holder that made none, because the
// CMS had to settle or the lane was paused, leaves the record to the next one: otherwise a message that ends the
// process each time would never be found.
func (g *crashGuard) recordHandOver(t *lane.Tail) {
	if g.hasSurvived {
		t.CrashRecord = lane.CrashRecord{}
	}
	t.IsOpen = false
}

// countMessage counts a message that was sent cautiously, and waits for its commit.
func (g *crashGuard) countMessage(ctx context.Context) error {
	if !g.isCautious() {
		return nil
	}
	g.cautiousLeft--
	return g.journal.waitBelow(ctx, 1)
}

// pardon gives a poison message another chance.
func (g *crashGuard) pardon(seq int64) {
	if g.poisonSeq == seq {
		g.poisonSeq = 0
	}
}
