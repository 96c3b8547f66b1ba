package receive

import (
	"context"
	"slices"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// Finals watches for the commits of this process. The channel is closed when the process has made
// the message final, or stops; the function ends the watching.
type Finals interface {
	Await(id weir.ID) (<-chan struct{}, func())
}

// States reads where messages and lanes stand.
type States interface {
	Status(ctx context.Context, id weir.ID) (weir.Status, error)
	Control(ctx context.Context, lane int) (lane.Control, error)
	ReadMany(ctx context.Context, lane int, seqs []int64) (entries []*lane.Entry, looks int, err error)
}

const (
	// lookEvery is the pause between two looks at a lane that answers wait for, firstLook the
	// pause before the first look, and lookLimit the most that one look takes.
	firstLook = 200 * time.Millisecond
	lookEvery = time.Second
	lookLimit = 10 * time.Second
)

// Waits holds answers until messages are final. It learns at once of messages that this process
// commits. For those that other processes commit it looks at a lane's control rows each second,
// once for all answers that wait there, and reads their messages only after a commit. Safe for
// concurrent use; all exported fields are needed.
type Waits struct {
	Finals Finals
	States States
	Most   int // answers held at a time

	mu    sync.Mutex
	held  int
	lanes map[int]*watch
}

// watch is one lane that answers wait for.
type watch struct {
	waiting map[*waiter]bool
	stop    context.CancelFunc
}

// waiter is one answer that is held.
type waiter struct {
	seq   int64
	read  bool          // its message was read at least once since it waits
	final chan struct{} // closed when its message was seen to be final
}

// Await waits until the message is final. held reports whether it waited at all: it does not for
// a message that is not due in time, nor while Most answers are held.
func (w *Waits) Await(ctx context.Context, filed lane.Receipt, wait time.Duration) (st weir.Status, held, final bool) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if deadline, _ := ctx.Deadline(); filed.Message.DueAt.After(deadline) || !w.takePlace() {
		return weir.Status{}, false, false
	}
	defer w.freePlace()
	public, at := filed.Message.ID, filed.Message.ID
	if filed.Duplicate { // it may have been final for long, or stand in another lane by now
		st, err := w.States.Status(ctx, public)
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
	st, err := w.States.Status(ctx, public)
	return st, true, err == nil && st.Stage.Final()
}

// awaitFinal waits, and reports whether the message may be final: this process or a look has seen
// it final, or the process stops.
func (w *Waits) awaitFinal(ctx context.Context, id weir.ID) bool {
	here, stop := w.Finals.Await(id)
	defer stop()
	one := &waiter{seq: id.Seq, final: make(chan struct{})}
	w.add(id.Lane, one)
	defer w.remove(id.Lane, one)
	select {
	case <-ctx.Done():
		return false
	case <-here:
	case <-one.final:
	}
	return true
}

func (w *Waits) takePlace() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held >= w.Most {
		return false
	}
	w.held++
	return true
}

func (w *Waits) freePlace() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held--
}

// add registers a waiter, and begins to look at the lane if nothing waited there.
func (w *Waits) add(number int, one *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lanes == nil {
		w.lanes = map[int]*watch{}
	}
	l := w.lanes[number]
	if l == nil {
		ctx, stop := context.WithCancel(context.Background())
		l = &watch{waiting: map[*waiter]bool{}, stop: stop}
		w.lanes[number] = l
		go w.look(ctx, number, l)
	}
	l.waiting[one] = true
}

// remove takes a waiter off, and ends the looks at the lane with the last one.
func (w *Waits) remove(number int, one *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lanes[number]
	if delete(l.waiting, one); len(l.waiting) == 0 {
		l.stop()
		delete(w.lanes, number)
	}
}

// look looks at a lane until ctx ends. The next look makes up for one that failed.
func (w *Waits) look(ctx context.Context, number int, l *watch) {
	timer := time.NewTimer(firstLook)
	defer timer.Stop()
	var seen lane.Control
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(lookEvery)
		limited, cancel := context.WithTimeout(ctx, lookLimit)
		if c, err := w.States.Control(limited, number); err == nil && w.read(limited, number, l, seen, c) == nil {
			seen = c
		}
		cancel()
	}
}

// read reads the messages that may have become final since the control rows were seen.
func (w *Waits) read(ctx context.Context, number int, l *watch, seen, now lane.Control) error {
	at := w.chooseFinal(l, seen, now)
	if len(at) == 0 {
		return nil
	}
	entries, _, err := w.States.ReadMany(ctx, number, sortFalling(at))
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
			if one.read = true; final[seq] && l.waiting[one] {
				close(one.final)
				l.waiting[one] = false // it is closed once
			}
		}
	}
	return nil
}

// chooseFinal returns those whose messages have to be read, by number. Nothing above the cursor
// becomes final but by a wish, and nothing below it without a change of tail.
func (w *Waits) chooseFinal(l *watch, seen, now lane.Control) map[int64][]*waiter {
	committed := seen.Tail.ETag != now.Tail.ETag
	wished := seen.Head.Touched != now.Head.Touched || seen.Tail.TouchedSeen != now.Tail.TouchedSeen
	w.mu.Lock()
	defer w.mu.Unlock()
	at := map[int64][]*waiter{}
	for one, untold := range l.waiting {
		if untold && (wished || one.seq < now.Tail.Cursor && (committed || !one.read)) {
			at[one.seq] = append(at[one.seq], one)
		}
	}
	return at
}

// sortFalling returns the numbers as ReadMany wants them.
func sortFalling(at map[int64][]*waiter) []int64 {
	seqs := make([]int64, 0, len(at))
	for seq := range at {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	slices.Reverse(seqs)
	return seqs
}
