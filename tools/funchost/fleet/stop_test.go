package fleet_test

import (
	"fmt"
	"testing"
)

func TestStop_NothingInFlight(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := r.addHost()
	pid := r.readHandlerPID(h)
	if n := len(listListeningSockets(h.PID())); n != 1 {
		t.Fatalf("the host listens on %d sockets; want 1", n)
	}

	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}

	r.awaitEnd(h)
	if isRunning(pid) {
		t.Error("the handler runs after its host, want it to end")
	}

	if r.hasNote("signal") {
		t.Error("the handler got a signal, want none")
	}
}

// A stopping host waits for an HTTP request that is in flight. Meanwhile the handler can see that
// the host's socket is closed. The handler gets no signal.
func TestStop_HTTPRequestIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := r.addHost()
	pid := r.readHandlerPID(h)
	if _, n := r.getURL(h.URL() + "/api/listening"); n != "1" {
		t.Errorf("the handler finds %s listening sockets of its host; want 1", n)
	}

	status := make(chan int, 1)
	go func() { code, _ := r.getURL(h.URL() + "/api/hold"); status <- code }()
	r.awaitCondition("the request is taken", func() bool { return r.hasNote("taken") })
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}

	r.awaitCondition("the socket is closed",
		func() bool { return len(listListeningSockets(h.PID())) == 0 })

	if !isRunning(pid) || !isRunning(h.PID()) || r.hasNote("closed") {
		t.Errorf("handler runs: %t, host runs: %t, connection closed: %t; want the host to wait for the request",
			isRunning(pid), isRunning(h.PID()), r.hasNote("closed"))
	}

	r.releaseCalls()
	if got := <-status; got != 200 {
		t.Errorf("answered %d; want 200", got)
	}

	r.awaitEnd(h)

	if isRunning(pid) || r.hasNote("signal") {
		t.Errorf("the handler runs: %t, got a signal: %t; want neither", isRunning(pid),
			r.hasNote("signal"))
	}
}

func TestStop_QueueInvocationThatEndsInTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	h := r.addHost()
	r.enqueueMessage()
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}

	r.awaitCondition("the socket is closed",
		func() bool { return len(listListeningSockets(h.PID())) == 0 })
	r.releaseCalls()
	r.awaitEnd(h)
	if n := r.countMessages(); n != 0 {
		t.Errorf("%d messages are left; want none: the invocation succeeded", n)
	}
}

func TestStop_QueueInvocationThatTakesTooLong(t *testing.T) {
	t.Parallel()
	for _, orphan := range []bool{false, true} {
		t.Run(fmt.Sprintf("Orphan=%t", orphan), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "--stop-wait", "100ms", fmt.Sprintf("--orphan=%t", orphan))
			h := r.addHost()
			pid := r.readHandlerPID(h)
			r.enqueueMessage()
			if err := h.Stop(); err != nil {
				t.Fatal(err)
			}

			r.awaitEnd(h)

			if orphan {
				r.awaitCondition("the connection is closed",
					func() bool { return r.hasNote("closed") })
			}

			if isRunning(pid) != orphan {
				t.Errorf("the handler runs: %t, want %t", isRunning(pid), orphan)
			}

			if r.hasNote("signal") {
				t.Error("the handler got a signal, want none")
			}

			if n := r.countMessages(); n != 1 {
				t.Errorf("%d messages are left; want 1, hidden", n)
			}
		})
	}
}

func TestKill_LeavesTheHandlerBehind(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--orphan")
	h := r.addHost()
	pid := r.readHandlerPID(h)
	if err := h.Kill(); err != nil {
		t.Fatal(err)
	}

	if !isRunning(pid) {
		t.Error("the handler ended with its host, want it left behind")
	}
}

func TestFront_SkipsHostsThatHaveEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	hosts := []string{fmt.Sprint(r.addHost().PID()), fmt.Sprint(r.addHost().PID())}
	seen := map[string]int{}
	for range 4 {
		_, pid := r.getURL(r.URL() + "/api/who")
		seen[pid]++
	}

	if seen[hosts[0]] != 2 || seen[hosts[1]] != 2 {
		t.Errorf("requests by host %v; want two for each of %v", seen, hosts)
	}

	if err := r.Hosts()[0].Stop(); err != nil {
		t.Fatal(err)
	}

	r.awaitEnd(r.Hosts()[0])

	for range 4 {
		if status, pid := r.getURL(r.URL() + "/api/who"); status != 200 || pid != hosts[1] {
			t.Errorf("answered %d by %q; want 200 by %s", status, pid, hosts[1])
		}
	}
}

func TestFleet_Groups(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	web, queue := r.addHost("--group", "http"), r.addHost("--group", "q")
	for range 3 {
		if _, pid := r.getURL(r.URL() + "/api/who"); pid != fmt.Sprint(web.PID()) {
			t.Errorf("answered by %s; want %d, of group http", pid, web.PID())
		}
	}

	r.enqueueMessage()
	if got, want := r.takerPID(), r.readHandlerPID(queue); got != fmt.Sprint(want) {
		t.Errorf("the message went to process %s; want %d, of group function:q", got, want)
	}

	r.releaseCalls()
}
