package receive

import (
	"context"
	"slices"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// Finals waits for commits of this process. AwaitFinal returns a channel. The channel is closed when the process has
// made the message final, or when the drainer of the process is closed. The returned function ends the wait.
type Finals interface {
	AwaitFinal(id weir.ID) (<-chan struct{}, func())
}

// Statuses reads the status of a message. NotFound: there is no such message.
type Statuses interface {
	Status(ctx context.Context, id weir.ID) (weir.Status, error)
}

// Lanes reads the control rows of a lane, and messages of a lane by their sequence numbers.
type Lanes interface {
	ReadControl(ctx context.Context, lane int) (lane.Control, error)
	ReadMany(ctx context.Context, lane int, seqs []int64) (entries []*lane.Entry, looks int, err error)
}

const (
	// firstPollAfter is the time from the first waiting answer of a lane to the first poll of the lane.
	// pollInterval is the time between two polls, and pollLimit is the time limit of one poll.
	firstPollAfter = 200 * time.Millisecond
	pollInterval   = time.Second
	pollLimit      = 10 * time.Second
)

// Waits lets answers wait until messages are final. A commit of this process ends the wait at once. For commits of
// other processes, Waits polls the lane's control rows each second, once for all answers that wait for messages
// of the lane. It reads these messages only if the control rows show that they may have become final. It is safe
// for concurrent use. All exported fields are needed.
type Waits struct {
	Finals   Finals
	Statuses Statuses
	Lanes    Lanes
	MaxHeld  int // the largest number of answers that wait at the same time

	mu    sync.Mutex
	count int                // the number of answers that wait
	lanes map[int]*laneWatch // by the number of the lane; only lanes with a waiting answer
}

// laneWatch is a lane with waiting answers.
type laneWatch struct {
	waiting map[*waitingAnswer]bool // false = its message is already read as final
	stop    context.CancelFunc      // ends the polls
}

// waitingAnswer is an answer that waits until its message is final.
type waitingAnswer struct {
	seq    int64         // the sequence number of the message
	isRead bool          // true = the message was read since the wait began
	final  chan struct{} // closed when the message was read as final
}

// AwaitFinal waits until the message is final, until the duration "wait" is over, or until ctx ends. The result
// hasWaited is false if AwaitFinal does not wait, because the message is due after the wait or MaxHeld answers wait
// already. If the result "final" is true, the message is final, and st is its state.
func (w *Waits) AwaitFinal(ctx context.Context, filed lane.Receipt, wait time.Duration) (st weir.Status, hasWaited,
	final bool) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if deadline, _ := ctx.Deadline(); filed.Message.DueAt.After(deadline) || !w.beginWait() {
		return weir.Status{}, false, false
	}
	defer w.endWait()
	public, at := filed.Message.ID, filed.Message.ID
	if filed.Duplicate { // the message may be final already, or in a lane of the next epoch
		st, err := w.Statuses.Status(ctx, public)
		if err == nil && st.Stage.Final() {
			return st, true, true
		}
		if err == nil {
			at = st.Message.ID
		}
	}
	if !w.awaitFinal(ctx, at) {
		return weir.Status{}, true, false
	}
	st, err := w.Statuses.Status(ctx, public)
	return st, true, err == nil && st.Stage.Final()
}

// awaitFinal waits, and reports whether the message may be final. The message may be final if this process made it
// final, if a poll read it as final, or if this process's drainer is closed.
func (w *Waits) awaitFinal(ctx context.Context, id weir.ID) bool {
	here, stop := w.Finals.AwaitFinal(id)
	defer stop()
	one := &waitingAnswer{seq: id.Seq, final: make(chan struct{})}
	w.addWaiter(id.Lane, one)
	defer w.removeWaiter(id.Lane, one)
	select {
	case <-ctx.Done():
		return false
	case <-here:
	case <-one.final:
	}
	return true
}

// beginWait counts another waiting answer. It returns false if MaxHeld answers wait already.
func (w *Waits) beginWait() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count >= w.MaxHeld {
		return false
	}
	w.count++
	return true
}

func (w *Waits) endWait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count--
}

// addWaiter registers an answer. If it is the first answer of the lane, addWaiter begins to poll the lane.
func (w *Waits) addWaiter(number int, one *waitingAnswer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lanes == nil {
		w.lanes = map[int]*laneWatch{}
	}
	l := w.lanes[number]
	if l == nil {
		ctx, stop := context.WithCancel(context.Background())
		l = &laneWatch{waiting: map[*waitingAnswer]bool{}, stop: stop}
		w.lanes[number] = l
		go w.pollLane(ctx, number, l)
	}
	l.waiting[one] = true
}

// removeWaiter removes an answer. With the last answer of the lane, the polls of the lane end.
func (w *Waits) removeWaiter(number int, one *waitingAnswer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lanes[number]
	if delete(l.waiting, one); len(l.waiting) == 0 {
		l.stop()
		delete(w.lanes, number)
	}
}

// pollLane polls a lane until ctx ends. It compares each poll with the last one that succeeded, so a failed poll
// hides no commit.
func (w *Waits) pollLane(ctx context.Context, number int, l *laneWatch) {
	timer := time.NewTimer(firstPollAfter)
	defer timer.Stop()
	var seen lane.Control
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(pollInterval)
		limited, cancel := context.WithTimeout(ctx, pollLimit)
		if c, err := w.Lanes.ReadControl(limited, number); err == nil &&
			w.readFinished(limited, number, l, seen, c) == nil {
			seen = c
		}
		cancel()
	}
}

// readFinished reads the messages that may have become final since the control rows in "seen" were read. If a message
// is final, readFinished ends the waits of its answers.
func (w *Waits) readFinished(ctx context.Context, number int, l *laneWatch, seen, now lane.Control) error {
	at := w.selectUnread(l, seen, now)
	if len(at) == 0 {
		return nil
	}
	entries, _, err := w.Lanes.ReadMany(ctx, number, sortDescending(at))
	if err != nil {
		return err
	}
	final := map[int64]bool{}
	for _, e := range entries {
		final[e.Seq()] = e.Stage.Final()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for seq, waiters := range at {
		for _, one := range waiters {
			if one.isRead = true; final[seq] && l.waiting[one] {
				close(one.final)
				l.waiting[one] = false // so that the channel is closed only once
			}
		}
	}
	return nil
}

// selectUnread returns the answers whose messages must be read, by sequence number. If requests came or were handled,
// it returns every answer that waits, because a request can make any message final. Otherwise it returns only answers
// whose messages are below the cursor, and only if tail has changed or the message was not read before.
func (w *Waits) selectUnread(l *laneWatch, seen, now lane.Control) map[int64][]*waitingAnswer {
	committed := seen.Tail.ETag != now.Tail.ETag
	requested := seen.Head.RequestSeq != now.Head.RequestSeq || seen.Tail.RequestsSeen != now.Tail.RequestsSeen
	w.mu.Lock()
	defer w.mu.Unlock()
	at := map[int64][]*waitingAnswer{}
	for one, isWaiting := range l.waiting {
		if isWaiting && (requested || one.seq < now.Tail.Cursor && (committed || !one.isRead)) {
			at[one.seq] = append(at[one.seq], one)
		}
	}
	return at
}

// sortDescending returns the sequence numbers in descending order, as ReadMany needs them.
func sortDescending(at map[int64][]*waitingAnswer) []int64 {
	seqs := make([]int64, 0, len(at))
	for seq := range at {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	slices.Reverse(seqs)
	return seqs
}
