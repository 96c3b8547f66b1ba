package await_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"weir/internal/await"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world implements the interfaces that await.Waits needs. It has the messages of one lane.
type world struct {
	mu      sync.Mutex
	stages  map[int64]weir.Stage // by sequence number; a message without a stage is queued
	control lane.Control
	fails   bool // the control rows cannot be read
	// by sequence number; closed when this process makes the message final
	here map[int64][]chan struct{}

	asked
}

// asked counts the calls of ReadControl (looks), ReadMany (queries) and Status (states). rows
// counts the messages that ReadMany was asked for.
type asked struct{ looks, queries, rows, states int }

func (w *world) copyAsked() asked {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

func newWorld() *world {
	return &world{stages: map[int64]weir.Stage{}, here: map[int64][]chan struct{}{}}
}

func (w *world) AwaitFinal(id weir.ID) (<-chan struct{}, func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ch := make(chan struct{})
	w.here[id.Seq] = append(w.here[id.Seq], ch)
	return ch, func() {}
}

func (w *world) Status(_ context.Context, id weir.ID) (weir.Status, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.states++
	st := weir.Status{Message: weir.Message{ID: id}, Stage: weir.Queued, Version: `W/"3"`}
	if stage := w.stages[id.Seq]; stage != "" {
		st.Stage = stage
	}

	return st, nil
}

func (w *world) ReadControl(context.Context, int) (lane.Control, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	if w.fails {
		return lane.Control{}, errors.New("storage is away")
	}
	return w.control, nil
}

func (w *world) ReadMany(_ context.Context, _ int, seqs []int64) (entries []*lane.Entry, looks int,
	err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queries++
	w.rows += len(seqs)
	for i, seq := range seqs {
		if i > 0 && seqs[i-1] <= seq {
			return nil, 0, errors.New("the numbers do not fall")
		}

		stage := w.stages[seq]
		if stage == "" {
			stage = weir.Queued
		}

		entries = append(entries,
			&lane.Entry{Message: weir.Message{ID: weir.ID{Seq: seq}}, Stage: stage})
	}

	return entries, 1, nil
}

// commitStage sets the stage of messages as a commit does, and moves the cursor past them. If here
// is true, this process makes the commit; otherwise another process does.
func (w *world) commitStage(here bool, stage weir.Stage, seqs ...int64) {
	w.mu.Lock()
	defer w.mu.Unlock()

	for _, seq := range seqs {
		w.stages[seq] = stage
		w.control.Tail.Cursor = max(w.control.Tail.Cursor, seq+1)
		for _, ch := range w.here[seq] {
			if here {
				close(ch)
			}
		}
	}

	version, _ := strconv.Atoi(string(w.control.Tail.ETag))
	w.control.Tail.ETag = storage.ETag(strconv.Itoa(version + 1))
}

func newReceipt(seq int64) lane.Receipt {
	return lane.Receipt{Message: weir.Message{ID: weir.ID{Epoch: 1, Lane: 2, Seq: seq, Nonce: "00112233445566778899"}},
		Stage: weir.Queued}
}

// Waits polls a lane once a second for all waiting answers together. In this test no process asks
// the holder to cancel or change a message. So Waits reads messages only after a commit, and only
// messages below the cursor.
func TestWaits_OneLookASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		far := newWorld()
		waits := &await.Waits{Finals: far, Statuses: far, Lanes: far, MaxHeld: 3000}
		type answer struct {
			seq   int64
			after time.Duration
			final bool
		}

		began, answers := time.Now(), make(chan answer, 3000)
		for seq := range int64(3000) {
			go func() {
				_, _, final := waits.AwaitFinal(t.Context(), newReceipt(seq), 20*time.Second)
				answers <- answer{seq, time.Since(began), final}
			}()
		}

		time.Sleep(4500 * time.Millisecond)
		if got, want := far.copyAsked(), (asked{looks: 5}); got != want {
			t.Errorf("without a commit: got the requests %+v, want %+v", got, want)
		}

		far.commitStage(false, weir.Delivered, 0, 1, 2, 3)
		time.Sleep(time.Second)

		if got, want := far.copyAsked(), (asked{looks: 6, queries: 1, rows: 4, states: 4}); len(answers) != 4 ||
			got != want {
			t.Errorf("after another process made 4 messages final: got %d answers and the requests %+v; want 4 and %+v",
				len(answers), got, want)
		}

		far.commitStage(true, weir.Dead, 10, 11)
		synctest.Wait()
		if len(answers) != 6 {
			t.Errorf("after this process made 2 further messages final: got %d answers, want 6 at once", len(answers))
		}

		for range 3000 {
			a := <-answers
			if early := a.seq < 4 || a.seq == 10 || a.seq == 11; a.final != early ||
				early == (a.after == 20*time.Second) {
				t.Errorf("got the answer %+v; want final: %t, and answered before the end of its wait: %t", a, early,
					early)
			}
		}

		synctest.Wait()
		looks := far.copyAsked().looks
		if looks > 21 {
			t.Errorf("got %d reads of the control rows in 20 s, want 21 at most", looks)
		}

		time.Sleep(time.Minute)
		if more := far.copyAsked().looks - looks; more != 0 {
			t.Errorf("got %d reads of the control rows without a waiting answer, want none", more)
		}
	})
}

func TestWaits_SeesCommitsOfOtherProcesses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		filed  lane.Receipt
		happen func(*world)  // called before the wait
		within time.Duration // the longest time that the wait may take
	}{
		"CommittedBeforeItWaits": {newReceipt(5),
			func(w *world) { w.commitStage(false, weir.Delivered, 5) }, 200 * time.Millisecond},
		"Repeat": {lane.Receipt{Message: newReceipt(5).Message, Duplicate: true},
			func(w *world) { w.commitStage(false, weir.Delivered, 5) }, 0},
		"CancelledAboveTheCursor": {newReceipt(5), func(w *world) {
			time.AfterFunc(3*time.Second, func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.stages[5] = weir.Cancelled
				w.control.Head.RequestSeq++
			})
		}, 4 * time.Second},
		"RetryingBelowTheCursor": {newReceipt(5), func(w *world) {
			w.stages[5] = weir.Retrying
			w.commitStage(false, weir.Delivered, 9)
			time.AfterFunc(3*time.Second, func() { w.commitStage(false, weir.Delivered, 5) })
		}, 4 * time.Second},
		"StorageWasAway": {newReceipt(5), func(w *world) {
			w.fails = true
			w.commitStage(false, weir.Delivered, 5)
			time.AfterFunc(3*time.Second, func() { w.mu.Lock(); w.fails = false; w.mu.Unlock() })
		}, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				far := newWorld()
				c.happen(far)
				began := time.Now()
				waits := &await.Waits{Finals: far, Statuses: far, Lanes: far, MaxHeld: 1}
				st, hasWaited, final := waits.AwaitFinal(t.Context(), c.filed, 30*time.Second)
				if took := time.Since(began); !hasWaited || !final || !st.Stage.Final() ||
					took > c.within {
					t.Errorf("got hasWaited %t, final %t and stage %q after %s; want a wait, and final within %s",
						hasWaited, final, st.Stage, took, c.within)
				}

				if _, hasWaited, _ := waits.AwaitFinal(t.Context(), newReceipt(99), time.Second); !hasWaited {
					t.Error("the next answer does not wait; want a wait, because the first answer no longer waits")
				}

				synctest.Wait()
			})
		})
	}
}
