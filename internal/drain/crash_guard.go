package drain

import (
	"context"

	"weir/internal/lane"
	"weir/internal/weir"
)

const (
	// After cautiousAfter crashes in a row the holder is cautious. If tail named the same message
	// during cautiousAfter crashes, that message is rejected.
	cautiousAfter = 3
	// cautiousMessages is the number of outcomes for which the holder stays cautious.
	cautiousMessages = 32
)

// crashGuard finds a message whose delivery ends the process. After cautiousAfter crashes in a row
// the holder is cautious: it writes the number of a message into tail before it sends the message,
// and commits each outcome at once.
type crashGuard struct {
	journal      *journal
	cautiousLeft int   // number of outcomes for which the holder stays cautious
	inFlightSeq  int64 // the message that tail names; 0 = none
	// the message to reject, because of too many crashes while tail named it; 0 = none
	poisonSeq   int64
	hasSurvived bool // an attempt of this holder has come to its end
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

func (g *crashGuard) isCautious() bool { return g.cautiousLeft > 0 }

// recordInFlight writes into tail which message is sent next, if the holder is cautious. If that
// message ends the process, the next holder finds the number of the message in tail.
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

// clearInFlight adds the end of an attempt to a change. A finished attempt shows that the message
// does not end the process, so earlier crashes no longer count against the message. If Weir cut the
// attempt off or did not begin it (OutcomeNone), earlier crashes still count.
func (g *crashGuard) clearInFlight(ch *lane.Change, outcome weir.Outcome) {
	if outcome == weir.OutcomeNone {
		ch.UpdateTail(func(t *lane.Tail) { t.InFlightFence = 0 })
		return
	}

	g.hasSurvived = true
	ch.UpdateTail(func(t *lane.Tail) {
		t.InFlightSeq, t.InFlightCrashes,
			t.InFlightFence = 0, 0, 0
	})

	g.inFlightSeq = 0
}

// recordHandOver clears IsOpen in tail. If an attempt of this holder has come to its end,
// recordHandOver also clears the rest of the crash record. Otherwise the rest stays for the next
// holder. If each hand-over cleared the whole record, a message that ends each process might never
// be found.
func (g *crashGuard) recordHandOver(t *lane.Tail) {
	if g.hasSurvived {
		t.CrashRecord = lane.CrashRecord{}
	}
	t.IsOpen = false
}

// countMessage does nothing if the holder is not cautious. For a cautious holder, countMessage
// counts an outcome, and waits until the outcome is committed.
func (g *crashGuard) countMessage(ctx context.Context) error {
	if !g.isCautious() {
		return nil
	}
	g.cautiousLeft--
	return g.journal.waitBelow(ctx, 1)
}

// pardon clears poisonSeq if that message is replayed, so that the holder sends the message again.
func (g *crashGuard) pardon(seq int64) {
	if g.poisonSeq == seq {
		g.poisonSeq = 0
	}
}
