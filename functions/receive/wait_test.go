package receive_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"weir/internal/await"
	"weir/internal/lane"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// far implements the interfaces that await.Waits needs. It has one message.
type far struct {
	mu      sync.Mutex
	isFinal bool
	done    chan struct{} // closed when this process makes the message final
}

func newFar() *far { return &far{done: make(chan struct{})} }

func (f *far) AwaitFinal(weir.ID) (<-chan struct{}, func()) { return f.done, func() {} }

func (f *far) Status(_ context.Context, id weir.ID) (weir.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	st := weir.Status{Message: weir.Message{ID: id}, Stage: weir.Queued, Version: `W/"3"`}
	if f.isFinal {
		st.Stage = weir.Delivered
	}
	return st, nil
}

func (f *far) ReadControl(context.Context, int) (lane.Control, error) { return lane.Control{}, nil }

func (f *far) ReadMany(context.Context, int, []int64) ([]*lane.Entry, int, error) {
	return nil, 0, nil
}

func (f *far) makeFinal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isFinal = true
	close(f.done)
}

func TestFunction_Wait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prefer string
		after  time.Duration // the time until this process makes the message final
		due    time.Duration
		most   int // the largest number of waiting answers
		status int
		took   time.Duration
		wait   string // the header Preference-Applied of the answer
	}{
		"final in time":       {"wait=10", 3 * time.Second, 0, 1, 200, 3 * time.Second, "wait=10"},
		"already final":       {"respond-async, Wait=10", 0, 0, 1, 200, 0, "wait=10"},
		"not in time":         {"wait=10", time.Hour, 0, 1, 202, 10 * time.Second, "wait=10"},
		"at most a minute":    {"wait=3600", time.Hour, 0, 1, 202, time.Minute, "wait=60"},
		"an endless wait":     {"wait=99999999999", time.Hour, 0, 1, 202, time.Minute, "wait=60"},
		"not due in time":     {"wait=10", time.Hour, time.Minute, 1, 202, 0, ""},
		"one too many":        {"wait=10", time.Hour, 0, 0, 202, 0, ""},
		"not a number":        {"wait=long", time.Hour, 0, 1, 202, 0, ""},
		"asks for no wait":    {"return=minimal", time.Hour, 0, 1, 202, 0, ""},
		"negative is no wait": {"wait=-1", time.Hour, 0, 1, 202, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				far := newFar()
				f := &fake{waits: &await.Waits{Finals: far, Statuses: far, Lanes: far,
					MaxHeld: c.most}}
				if c.due > 0 {
					f.embargo = time.Now().Add(c.due)
				}

				timer := time.AfterFunc(c.after, func() {
					synctest.Wait()
					far.makeFinal()
				})
				defer timer.Stop()
				began := time.Now()
				w := serveReceive(f, func(r *http.Request) { r.Header.Set("Prefer", c.prefer) })
				hasWarning := strings.Contains(w.Body.String(),
					"Prefer: wait without an Idempotency-Key")
				wants := c.prefer != "wait=long" && c.prefer != "return=minimal" &&
					c.prefer != "wait=-1"
				if hasWarning != wants {
					t.Errorf("got %s, want a warning about the absent key: %t", w.Body, wants)
				}

				if wait := w.Header().Get("Preference-Applied"); w.Code != c.status ||
					time.Since(began) != c.took ||
					wait != c.wait || len(f.rung) != 1 {
					t.Errorf("got %d %s after %s, Preference-Applied %q and %d rings; want %d after %s, %q and 1 "+
						"ring", w.Code, w.Body, time.Since(began), wait, len(f.rung), c.status,
						c.took, c.wait)
				}

				synctest.Wait() // until the last poll has ended
			})
		})
	}
}
