package drain

import (
	"context"
	"testing"
	"time"

	"weir/internal/lane"
)

// newTestMover returns a dueMover whose cache has the given due times, and whose committer commits
// nothing.
func newTestMover(dues ...lane.DueTime) *dueMover {
	now := func() time.Time { return noon }
	scope := laneScope{now: now, observer: noObserver{}}
	m := &dueMover{laneScope: scope, journal: newTestJournal(), keys: newKeyStates(now, Backoff{}),
		lead:      &leadTime{},
		positions: &duePositions{laneScope: scope, sentBelow: 5}, notify: func() {}}
	m.cache.takePage(duePage{dues: asUnknown(dues)})
	return m
}

// asUnknown returns scheduled messages whose keys are not known.
func asUnknown(dues []lane.DueTime) (all []lane.DueMessage) {
	for _, d := range dues {
		all = append(all, lane.DueMessage{DueTime: d})
	}
	return all
}

func dueAt(seq int64, at time.Time) lane.DueTime { return lane.DueTime{Seq: seq, At: at} }

func TestDueMover_AwaitsMove(t *testing.T) {
	t.Parallel()
	accepted := newLogEntry(9, "a")
	for name, c := range map[string]struct {
		dueAt    time.Time
		progress moveProgress
		isSealed bool
		want     bool
	}{
		"DueBeforeItWasAccepted": {noon.Add(-time.Second), moveNotBegun, false, true},
		"DueWhenItWasAccepted":   {noon, moveBegun, false, true},
		"DueLater":               {noon.Add(time.Second), moveNotBegun, false, false},
		"WithItsPositionDecided": {noon.Add(-time.Second), moveDecided, false, false},
		"InASealedLane":          {noon.Add(-time.Second), moveNotBegun, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			due := dueAt(3, c.dueAt)
			m := newTestMover(due)
			m.cache.markProgress(c.progress, due)
			m.isSealed = c.isSealed
			if got := m.awaitsMove(accepted); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// A message waits only for scheduled messages that have its key, or whose key is not known: those
// of rows of earlier versions, and those beyond the due times that were read.
func TestDueMover_AwaitsMovesOfItsKey(t *testing.T) {
	t.Parallel()
	mine, other := newScheduledEntry(1, "a", noon.Add(-time.Second)).AsDue(),
		newScheduledEntry(2, "b", noon.Add(-time.Second)).AsDue()
	unknown := lane.DueMessage{DueTime: other.DueTime}
	for name, c := range map[string]struct {
		page    duePage
		decided []lane.DueTime
		added   []lane.DueMessage
		want    bool
	}{
		"OfItsKey":          {page: duePage{dues: []lane.DueMessage{mine, other}}, want: true},
		"OfAnotherKey":      {page: duePage{dues: []lane.DueMessage{other}}},
		"OfAnUnknownKey":    {page: duePage{dues: []lane.DueMessage{unknown}}, want: true},
		"BeyondThoseRead":   {page: duePage{dues: []lane.DueMessage{other}, more: true}, want: true},
		"AddedOfItsKey":     {added: []lane.DueMessage{mine}, want: true},
		"AddedOfAnotherKey": {added: []lane.DueMessage{other}},
		"OfItsKeyDecided": {page: duePage{dues: []lane.DueMessage{mine, other}},
			decided: []lane.DueTime{mine.DueTime}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newTestMover()
			accepted := newLogEntry(9, "a")
			m.awaitsMove(accepted) // computes the index before the changes
			m.cache.takePage(c.page)

			for _, d := range c.added {
				m.cache.addDue(d)
			}

			m.cache.markProgress(moveDecided, c.decided...)
			if got := m.awaitsMove(accepted); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// While due messages wait for their positions, the messages of other keys that are sent do not move
// these positions. Otherwise a due message would be put behind messages of its key that were
// accepted later.
func TestDuePositions_RecordSending(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sentBelow      int64
		hasDue         bool
		mine, other    int64
		forNextHolders int64
	}{
		"WhileDueMessagesWait": {5, true, 5, 10, 10},
		"WithoutDueMessages":   {5, false, 10, 10, 10},
		"WhileNotKnown":        {0, true, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &duePositions{sentBelow: c.sentBelow}
			mine, sent := newLogEntry(7, "a"), newLogEntry(9, "b")
			p.recordSending(sent, c.hasDue)
			if got := [3]int64{p.sentBelowOf(mine.KeyHash()), p.sentBelowOf(sent.KeyHash()),
				p.sentBelowAll()}; got != [3]int64{c.mine, c.other, c.forNextHolders} {
				t.Errorf("got %v, want %v", got, [3]int64{c.mine, c.other, c.forNextHolders})
			}
		})
	}
}

// From the decision of a move until the committer has answered, isShut returns true for the keys of
// the moved messages. If storage refuses the move, the mover calls the function "undo", which
// restores the blocks in memory.
func TestDueMover_ShutsKeysUntilTheAnswer(t *testing.T) {
	t.Parallel()
	first, second := newScheduledEntry(1, "a", noon), newScheduledEntry(2, "b", noon)
	m := newTestMover(first.DueTime(), second.DueTime())
	m.moves.recordAnswer()
	for _, e := range []*lane.Entry{first, second} {
		m.moves.ready = append(m.moves.ready, readyMessage{due: e.DueTime(), entry: e, logPos: 5})
	}

	m.decideMoves()

	if !m.isShut(first.KeyHash()) || !m.isShut(second.KeyHash()) || len(m.keys.byID) != 2 {
		t.Fatalf("after the decision: %d blocks, shut %v; want 2, and both keys shut",
			len(m.keys.byID), m.moves.shut)
	}

	undo := m.moves.writing[0].undo
	undo()
	if len(m.keys.byID) != 0 {
		t.Errorf("after undo: got %d blocks, want none", len(m.keys.byID))
	}

	m.moves.writing[0].answer <- moveResult{at: noon}
	if err := m.advance(newEndedContext()); err != nil {
		t.Fatalf("got error %v, want none", err)
	}

	if m.isShut(first.KeyHash()) || m.isUnderWay() || len(m.cache.times) != 0 {
		t.Errorf("after the answer: shut %v, under way %v, due %v; want none", m.moves.shut,
			m.isUnderWay(), m.cache.times)
	}
}

func newEndedContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// While a message of a key is being sent, none of the key's ready messages is moved.
func TestDueMover_LeavesTheKeyThatIsSent(t *testing.T) {
	t.Parallel()
	first, second := newScheduledEntry(1, "a", noon), newScheduledEntry(2, "a", noon)
	other := newScheduledEntry(3, "b", noon)
	m := newTestMover()
	m.moves.recordAnswer()
	m.sendingKey = first.KeyHash()
	for _, e := range []*lane.Entry{first, second, other} {
		m.moves.ready = append(m.moves.ready, readyMessage{due: e.DueTime(), entry: e, logPos: 5})
	}

	batch := m.pickReady()
	if len(batch) != 1 || batch[0].entry != other || len(m.moves.ready) != 2 {
		t.Errorf("got %d picked and %d left, want message 3 picked and 2 left", len(batch),
			len(m.moves.ready))
	}
}

// The holder has sent only messages whose sequence numbers are lower than sentBelow. If sentBelow
// is not known when a read of due messages begins, each message that is read gets a position at the
// end of the log. If sentBelow becomes known during the read, and is lower than the end of the log,
// the messages are read again. Otherwise an overdue message could get a position after newer
// messages of its key, although those messages were not sent yet.
func TestDueMover_FindsPositionsAgainIfALimitBecomesKnown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sentBelow int64 // sentBelow when the read ends; 0 = not known
		low       int64 // sentBelow when the read began; 0 = not known
		isReady   bool
	}{
		"NoLimit":           {0, 0, true},
		"ALimitBelowTheEnd": {11, 0, false},
		"ALimitAtTheEnd":    {14, 0, true},
		"KnownFromTheStart": {11, 11, true},
		"SentSinceTheStart": {13, 11, true},
		"SentBeyondTheRead": {15, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newScheduledEntry(6, "a", noon)
			m := newTestMover(e.DueTime())
			m.applyControl = func(lane.Control, time.Time) {}
			m.positions.sentBelow = c.sentBelow
			m.cache.markProgress(moveBegun, e.DueTime())
			answer := make(chan dueRead, 1)
			answer <- dueRead{low: c.low, control: lane.Control{Head: lane.Head{Next: 14}},
				entries: []readyMessage{{due: e.DueTime(), entry: e, logPos: 14}}}
			m.moves.reading = append(m.moves.reading, answer)
			m.takeRead()

			if isReady, progress := len(m.moves.ready) ==
				1, m.cache.progress[e.DueTime()]; isReady != c.isReady ||
				(progress == moveNotBegun) == c.isReady {
				t.Errorf("got ready %v and progress %d, want ready %v, and a new read unless it is ready", isReady,
					progress, c.isReady)
			}
		})
	}
}
