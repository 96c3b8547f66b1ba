package drain

import (
	"context"

	"weir/internal/lane"
	"weir/internal/weir"
)

const (
	// After cautiousAfter crashes in a row the holder is cautious. If tail named the same message at cautiousAfter
	// crashes, the holder rejects that message.
	cautiousAfter = 3
	// cautiousMessages is the number of outcomes after which the holder is no longer cautious.
	cautiousMessages = 32
)

// crashGuard finds a message that ends the process. After cautiousAfter crashes in a row the holder is cautious: before
// it sends a message it writes the message's sequence number into tail, and afterwards it commits the outcome at once.
type crashGuard struct {
	journal      *journal
	cautiousLeft int   // number of outcomes for which the holder stays cautious
	inFlightSeq  int64 // the message that tail names; 0 = none
	poisonSeq    int64 // the message that tail named at too many crashes: it is not sent; 0 = none
	hasSurvived  bool  // an attempt of this holder has come to its end
}

// adoptTail takes over the crash record in tail, and reports whether the holder is cautious.
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

// isCautious reports whether the holder is cautious; see crashGuard.
func (g *crashGuard) isCautious() bool { return g.cautiousLeft > 0 }

// recordInFlight writes into tail which message is sent next, if the holder is cautious. If that message ends the
// process, the next holder reads its number in tail.
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

// clearInFlight adds to a change that the attempt is over. If the attempt has come to its end, the message has not
// ended the process, and its crashes no longer count. If Weir cut the attempt off or did not make it, the crashes of
// earlier holders that were about to send the message still count.
func (g *crashGuard) clearInFlight(ch *lane.Change, outcome weir.Outcome) {
	if outcome == weir.OutcomeNone {
		ch.UpdateTail(func(t *lane.Tail) { t.InFlightFence = 0 })
		return
	}
	g.hasSurvived = true
	ch.UpdateTail(func(t *lane.Tail) { t.InFlightSeq, t.InFlightCrashes, t.InFlightFence = 0, 0, 0 })
	g.inFlightSeq = 0
}

// recordHandOver clears Open in tail, and ends the crashes in a row if this holder has survived an attempt. A holder
// without such an attempt, because of the settle time or a pause, leaves the crash record to the next holder. Otherwise
// a message that ends the process each time would never be found.
func (g *crashGuard) recordHandOver(t *lane.Tail) {
	if g.hasSurvived {
		t.CrashRecord = lane.CrashRecord{}
	}
	t.IsOpen = false
}

// countMessage counts an outcome if the holder is cautious, and waits for its commit.
func (g *crashGuard) countMessage(ctx context.Context) error {
	if !g.isCautious() {
		return nil
	}
	g.cautiousLeft--
	return g.journal.waitBelow(ctx, 1)
}

// pardon is called when a message is replayed. If the message is poisonSeq, it may be sent again.
func (g *crashGuard) pardon(seq int64) {
	if g.poisonSeq == seq {
		g.poisonSeq = 0
	}
}
