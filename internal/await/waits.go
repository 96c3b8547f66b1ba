// Package await delays answers until their messages are final.
package await

import (
	"context"
	"slices"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/panics"
	"weir/internal/weir"
)

// Finals reports commits of this process. The channel of AwaitFinal is closed when this process has
// made the message final, or when the drainer of this process is closed. When the caller no longer
// waits, it calls the returned function.
type Finals interface {
	AwaitFinal(id weir.ID) (<-chan struct{}, func())
}

// Statuses reads the status of a message. Status returns NotFound if there is no such message.
type Statuses interface {
	Status(ctx context.Context, id weir.ID) (weir.Status, error)
}

// Lanes reads the control rows and the messages of a lane. ReadMany needs the sequence numbers in
// descending order.
type Lanes interface {
	ReadControl(ctx context.Context, lane int) (lane.Control, error)
	ReadMany(ctx context.Context, lane int, seqs []int64) (entries []*lane.Entry,
		looks int, err error)
}

const (
	// firstPollAfter is the time from the first waiting answer of a lane to the first poll of that
	// lane. pollInterval is the time between two polls, and pollLimit is the time limit of one
	// poll.
	firstPollAfter = 200 * time.Millisecond
	pollInterval   = time.Second
	pollLimit      = 10 * time.Second
)

// Waits delays answers until their messages are final. It learns of commits by this process at
// once.
//
// To learn of commits by other processes, Waits polls a lane's control rows each second while
// answers wait for messages of the lane. It reads these messages only if the control rows show that
// a message can have become final.
//
// Waits is safe for concurrent use. All exported fields are needed.
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
	waiting map[*waitingAnswer]bool // false = the message was read, and is final
	stop    context.CancelFunc      // ends the polls
}

// waitingAnswer is an answer that waits until its message is final.
type waitingAnswer struct {
	seq    int64         // the sequence number of the message
	isRead bool          // true = the message was read after the wait began
	final  chan struct{} // closed when the message was read, and is final
}

// AwaitFinal waits until the message is final, until ctx ends, or until the duration "wait" is
// over. AwaitFinal does not wait, and hasWaited is false, in two cases: the message is due after
// the wait, or MaxHeld answers wait already. If the result "final" is true, st is the state of the
// message.
func (w *Waits) AwaitFinal(ctx context.Context, filed lane.Receipt,
	wait time.Duration) (st weir.Status, hasWaited, final bool) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if deadline, _ := ctx.Deadline(); filed.Message.DueAt.After(deadline) || !w.beginWait() {
		return weir.Status{}, false, false
	}
	defer w.endWait()
	public, at := filed.Message.ID, filed.Message.ID

	// the message can be final already, or have moved to a lane of the next epoch
	if filed.Duplicate {
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

// awaitFinal returns true when the message seems to be final, and also when the drainer is closed.
// So the caller must then read the stage of the message. If ctx ends first, awaitFinal returns
// false.
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

// addWaiter registers an answer. If it is the first answer of the lane, addWaiter begins to poll
// the lane.
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

// removeWaiter removes an answer. If no answer of the lane is left, removeWaiter ends the polls of
// the lane.
func (w *Waits) removeWaiter(number int, one *waitingAnswer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lanes[number]
	if delete(l.waiting, one); len(l.waiting) == 0 {
		l.stop()
		delete(w.lanes, number)
	}
}

// pollLane polls a lane until ctx ends. It compares each poll with the last successful poll, so a
// failed poll hides no commit.
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

		// A poll that fails or panics is made again: a failed poll hides no commit.
		_ = panics.Catch(func() error {
			limited, cancel := context.WithTimeout(ctx, pollLimit)
			defer cancel()
			c, err := w.Lanes.ReadControl(limited, number)
			if err == nil && w.readFinished(limited, number, l, seen, c) == nil {
				seen = c
			}
			return nil
		})
	}
}

// readFinished reads the messages that can have become final after the control rows "seen" were
// read. It ends the waits for messages that are final.
func (w *Waits) readFinished(ctx context.Context, number int, l *laneWatch, seen,
	now lane.Control) error {
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

// selectUnread returns the waiting answers whose messages must be read, by sequence number:
//   - If RequestSeq or RequestsSeen has changed: all waiting answers, because a request can make
//     any message final.
//   - Otherwise, if tail has changed: those whose messages are below the cursor.
//   - Otherwise: those whose messages are below the cursor and were not read yet.
func (w *Waits) selectUnread(l *laneWatch, seen, now lane.Control) map[int64][]*waitingAnswer {
	committed := seen.Tail.ETag != now.Tail.ETag
	requested := seen.Head.RequestSeq != now.Head.RequestSeq ||
		seen.Tail.RequestsSeen != now.Tail.RequestsSeen
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
