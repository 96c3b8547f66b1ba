package fleet_test

import (
	"fmt"
	"testing"
)

func TestStop_NothingInFlight(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := r.add()
	pid := r.handlerPID(h)
	if n := len(listeningSockets(h.PID())); n != 1 {
		t.Fatalf("the host listens on %d sockets; want 1", n)
	}
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	r.ended(h)
	if runs(pid) {
		t.Error("the handler outlived its host")
	}
	if r.noted("signal") {
		t.Error("the handler got a signal")
	}
}

// The handler can see that the socket is closed while the host still waits for the request, and gets no signal.
func TestStop_HTTPRequestIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := r.add()
	pid := r.handlerPID(h)
	if _, n := r.get(h.URL() + "/api/listening"); n != "1" {
		t.Errorf("the handler finds %s listening sockets of its host; want 1", n)
	}
	status := make(chan int, 1)
	go func() { code, _ := r.get(h.URL() + "/api/hold"); status <- code }()
	r.eventually("the request is taken", func() bool { return r.noted("taken") })
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	r.eventually("the socket is closed", func() bool { return len(listeningSockets(h.PID())) == 0 })
	if !runs(pid) || !runs(h.PID()) || r.noted("closed") {
		t.Error("the host did not wait for the request")
	}
	r.release()
	if got := <-status; got != 200 {
		t.Errorf("answered %d; want 200", got)
	}
	r.ended(h)
	if runs(pid) || r.noted("signal") {
		t.Errorf("the handler runs: %t, got a signal: %t; want neither", runs(pid), r.noted("signal"))
	}
}

func TestStop_QueueInvocationThatEndsInTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := r.add()
	r.put()
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	r.eventually("the socket is closed", func() bool { return len(listeningSockets(h.PID())) == 0 })
	r.release()
	r.ended(h)
	if n := r.messages(); n != 0 {
		t.Errorf("%d messages are left; want none: the invocation succeeded", n)
	}
}

func TestStop_QueueInvocationThatTakesTooLong(t *testing.T) {
	t.Parallel()
	for _, orphan := range []bool{false, true} {
		t.Run(fmt.Sprintf("Orphan=%t", orphan), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "--stop-wait", "100ms", fmt.Sprintf("--orphan=%t", orphan))
			h := r.add()
			pid := r.handlerPID(h)
			r.put()
			if err := h.Stop(); err != nil {
				t.Fatal(err)
			}
			r.ended(h)
			if orphan {
				r.eventually("the connection is closed", func() bool { return r.noted("closed") })
			}
			if runs(pid) != orphan || r.noted("closed") != orphan {
				t.Errorf("the handler runs: %t, saw its connection closed: %t; want %t", runs(pid), r.noted("closed"),
					orphan)
			}
			if r.noted("signal") {
				t.Error("the handler got a signal")
			}
			if n := r.messages(); n != 1 {
				t.Errorf("%d messages are left; want 1, hidden", n)
			}
		})
	}
}

func TestKill_LeavesTheHandlerBehind(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--orphan")
	h := r.add()
	pid := r.handlerPID(h)
	if err := h.Kill(); err != nil {
		t.Fatal(err)
	}
	if !runs(pid) {
		t.Error("the handler ended with its host, want it left behind")
	}
}

func TestFront_SkipsHostsThatHaveEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	hosts := []string{fmt.Sprint(r.add().PID()), fmt.Sprint(r.add().PID())}
	seen := map[string]int{}
	for range 4 {
		_, pid := r.get(r.URL() + "/api/who")
		seen[pid]++
	}
	if seen[hosts[0]] != 2 || seen[hosts[1]] != 2 {
		t.Errorf("requests by host %v; want two for each of %v", seen, hosts)
	}
	if err := r.Hosts()[0].Stop(); err != nil {
		t.Fatal(err)
	}
	r.ended(r.Hosts()[0])
	for range 4 {
		if status, pid := r.get(r.URL() + "/api/who"); status != 200 || pid != hosts[1] {
			t.Errorf("answered %d by %q; want 200 by %s", status, pid, hosts[1])
		}
	}
}

func TestFleet_Groups(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	web, queue := r.add("--group", "http"), r.add("--group", "q")
	for range 3 {
		if _, pid := r.get(r.URL() + "/api/who"); pid != fmt.Sprint(web.PID()) {
			t.Errorf("answered by %s; want %d, of group http", pid, web.PID())
		}
	}
	r.put()
	if got, want := r.taker(), r.handlerPID(queue); got != fmt.Sprint(want) {
		t.Errorf("the message went to process %s; want %d, of group function:q", got, want)
	}
	r.release()
}
