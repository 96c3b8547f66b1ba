package host_test

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/tools/funchost/host"
)

func (r *rig) readDrainStatus() (s host.DrainStatus) {
	r.t.Helper()
	a := r.sendRequest("GET", "/admin/host/drain/status", "")
	if err := json.Unmarshal([]byte(a.body), &s); err != nil || a.StatusCode != 200 {
		r.t.Fatalf("answered %d %q: %v, want status 200 and no error", a.StatusCode, a.body, err)
	}
	return s
}

// newBlockedQueueRig returns a rig whose handler answers HTTP requests at once, but queue
// invocations only after the call of release.
func newBlockedQueueRig(t *testing.T) (q *queueRig, release func()) {
	t.Helper()
	released := make(chan struct{})
	q = newQueueRig(t, nil, rigOptions{cfg: host.Config{StopWait: 100 * time.Millisecond},
		decide: func(c handlerCall) handlerOrder {
			if c.URI == "/q" {
				<-released
			}
			return handlerOrder{}
		}})

	q.writeFile("fn/function.json", httpFunction(""))
	q.writeFile("tick/function.json",
		`{"bindings":[{"type":"timerTrigger","name":"t","schedule":"0 0 0 1 1 *"}]}`)
	q.startHost()

	return q, func() { close(released) }
}

func TestDrain_StopsListenersAndNotHTTP(t *testing.T) {
	t.Parallel()
	q, release := newBlockedQueueRig(t)
	if got := q.readDrainStatus(); got.State != "Disabled" {
		t.Errorf("before the drain: %+v; want Disabled", got)
	}

	q.enqueueTexts("first")
	first := q.nextCall()
	if got := q.sendRequest("POST", "/admin/host/drain", ""); got.StatusCode != 202 {
		t.Fatalf("answered %d; want 202", got.StatusCode)
	}

	if got, want := q.readDrainStatus(),
		(host.DrainStatus{State: "InProgress", OutstandingInvocations: 1}); got != want {
		t.Errorf("with an invocation in flight: %+v; want %+v", got, want)
	}

	awaitCondition(t, "the listeners have stopped", func() bool {
		return strings.Count(q.out.String(), "Stopped the listener for function 'q'")+
			strings.Count(q.out.String(), "Stopped the listener for function 'tick'") == 2
	})

	q.enqueueTexts("second")
	if got := q.sendRequest("GET", "/api/fn", ""); got.StatusCode != 200 {
		t.Errorf("HTTP is answered %d; want 200", got.StatusCode)
	}

	if c := q.nextCall(); c.URI != "/api/fn" {
		t.Errorf("the handler got %s; want the HTTP request", c.URI)
	}

	release()
	awaitCondition(t, "the drain is completed",
		func() bool { return q.readDrainStatus() == host.DrainStatus{State: "Completed"} })
	if got := q.sendRequest("POST", "/admin/host/restart", ""); got.StatusCode != 200 {
		t.Fatalf("answered %d; want 200", got.StatusCode)
	}

	if c := q.nextCall(); c.URI != "/q" || c.PID == first.PID {
		t.Errorf("after the restart process %d got %s; want /q at another process than %d", c.PID,
			c.URI, first.PID)
	}

	q.awaitEmpty()
}

func TestRestart_OldHandlerFinishesItsInvocations(t *testing.T) {
	t.Parallel()
	q, release := newBlockedQueueRig(t)
	q.enqueueTexts("long")
	old := q.nextCall()
	var refused atomic.Int64
	stop, posted := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				posted <- n
				return
			default:
			}

			if q.sendRequest("POST", "/api/fn", "x").StatusCode != 200 {
				refused.Add(1)
			}
		}
	}()

	q.nextCall()
	if got := q.sendRequest("POST", "/admin/host/restart", ""); got.StatusCode != 200 {
		t.Fatalf("answered %d; want 200", got.StatusCode)
	}

	for c := q.nextCall(); c.PID == old.PID; c = q.nextCall() {
	}
	close(stop)
	if n := <-posted; refused.Load() != 0 {
		t.Errorf("%d of %d requests failed; want none", refused.Load(), n)
	}

	s := q.host.Status()
	if len(s.Instances) != 1 || len(s.Replaced) != 1 || s.Replaced[0].PID != old.PID ||
		s.Instances[0].Port == s.Replaced[0].Port {
		t.Errorf("status %+v; want one instance, and the replaced handler %d on another port",
			s, old.PID)
	}

	if err := syscall.Kill(old.PID, 0); err != nil {
		t.Errorf("the old handler is gone (%v), want it there while its invocation runs", err)
	}

	release()
	awaitCondition(t, "the old handler is gone",
		func() bool {
			return syscall.Kill(old.PID, 0) != nil &&
				len(q.host.Status().Replaced) == 0
		})

	q.awaitEmpty()
}

// A stopping host waits at most StopWait for a replaced handler that runs an invocation, and then
// kills it.
func TestRestart_StopEndsTheReplaced(t *testing.T) {
	t.Parallel()
	q, release := newBlockedQueueRig(t)
	defer release()
	q.enqueueTexts("long")
	old := q.nextCall()
	if err := q.host.Restart(); err != nil {
		t.Fatal(err)
	}

	q.host.Stop()
	if err := syscall.Kill(old.PID, 0); err == nil {
		t.Error("the replaced handler runs after the host, want it to end")
	}

	if err := q.host.Restart(); err == nil {
		t.Error("Restart of a stopped host = no error, want one")
	}
}
