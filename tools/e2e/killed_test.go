package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// onFlex returns the flags of a host that runs each group of functions on separate instances, as
// Flex Consumption does. The host kills an instance that has had no invocation for idleKill.
func onFlex(idleKill time.Duration) []string {
	return []string{"--instances", "http=2,process=1,poison=1,sweep=1", "--idle-kill",
		idleKill.String()}
}

func TestHandlerKilled_NothingIsLost(t *testing.T) { inEachMode(t, testHandlerKilledNothingIsLost) }

func testHandlerKilledNothingIsLost(t *testing.T) {
	s := newSystem(t, 2, "lease: 30s", "lease: 15s")
	s.runWithKills(s.killNext)
}

// TestHandlerKilled_OnFlex kills the holder of the lane, whatever group of functions the holder
// runs. The host also kills idle instances. Requests to Weir would keep the HTTP instances busy, so
// the test follows the progress in the CMS's record.
func TestHandlerKilled_OnFlex(t *testing.T) {
	s := newSystemUnder(t, nil, onFlex(3*time.Second), "lease: 30s", "lease: 15s")
	s.runWithKills(func(int) { s.killHolder() })

	for _, want := range []string{"Instance 1 had no invocation", "Instance 2 had no invocation"} {
		if !strings.Contains(s.output.String(), want) {
			t.Errorf("the host did not log %q; want the host to end this HTTP instance while it is idle", want)
		}
	}
}

// runWithKills posts a burst of messages, and calls kill three times meanwhile. The CMS must get
// each acknowledged message, in order per key and one at a time. The counters must balance.
func (s *system) runWithKills(kill func(turn int)) {
	s.t.Helper()
	posted := make(chan []postedMessage, 1)
	go func() { posted <- s.postBurst(s.t.Context(), 10, 40) }()

	for turn := range 3 {
		before := s.readStats().Writes
		s.awaitCondition("the lane moves", time.Minute,
			func() bool { return s.readStats().Writes >= before+20 })
		kill(turn)
		killed, at := s.readStats().Writes, time.Now()

		// Another process takes the lane after at most 18 s: lease (15 s), settle time (2 s) and 1
		// s. A busy machine needs longer.
		s.awaitCondition("the lane moves again", time.Minute,
			func() bool { return s.readStats().Writes > killed+1 })
		s.t.Logf("moved again after %s", time.Since(at).Round(10*time.Millisecond))
	}

	accepted := <-posted
	s.awaitCondition("all is written", 2*time.Minute,
		func() bool { st := s.readStats(); return st.Writes-st.Repeats >= len(accepted) })
	s.awaitStages(accepted, "delivered", time.Minute)
	st := s.checkRecord()
	known := map[string]bool{}
	for _, m := range accepted {
		known[m.ID] = true
	}

	for _, r := range s.readRequests() {
		if !known[r.ID] {
			s.t.Errorf("got the write %+v, want the Idempotency-Key of an accepted message", r)
		}
	}

	if len(accepted) != 400 || st.Writes-st.Repeats != 400 {
		s.t.Errorf("%d accepted, %+v; want 400 and as many writes", len(accepted), st)
	}

	s.t.Logf("%d writes came twice", st.Repeats)
	s.readBalance()
	s.checkHistory(accepted)
}

// hostStatus is the answer of funchost, the test's Functions host, about its instances.
type hostStatus struct{ Instances []instanceStatus }

type instanceStatus struct {
	Number, PID, Port, Invocations int
	Group, State                   string
}

// killNext kills the handler of one instance, which the parameter turn selects. Consecutive values
// of turn select one instance after the other. The test does not know which handler holds the lane.
func (s *system) killNext(turn int) {
	s.t.Helper()
	s.hasKilled.Store(true)
	s.awaitCondition("the instance has a process, which is killed", time.Minute, func() bool {
		instances := getJSON[hostStatus](s, s.weir+"/admin/host/status").Instances
		pid := instances[turn%len(instances)].PID
		return pid > 0 && syscall.Kill(pid, syscall.SIGKILL) == nil
	})
}

// killHolder kills the holder of lane 0. If the handler ends before the kill, killHolder waits for
// the next holder.
func (s *system) killHolder() {
	s.t.Helper()
	s.hasKilled.Store(true)
	s.awaitCondition("a holder is killed", time.Minute, func() bool {
		for _, i := range getJSON[hostStatus](s, s.weir+"/admin/host/status").Instances {
			if i.PID > 0 && i.holdsLane(0) && syscall.Kill(i.PID, syscall.SIGKILL) == nil {
				s.t.Logf("killed instance %d of group %q", i.Number, i.Group)
				return true
			}
		}
		return false
	})
}

// holdsLane reports whether the metrics of the handler say that it holds the lane. If the handler
// does not answer, holdsLane returns false.
func (i instanceStatus) holdsLane(lane int) bool {
	return strings.Contains(i.readMetrics(),
		fmt.Sprintf("weir_lane_held_by_this_instance{lane=\"%d\"} 1\n", lane))
}

// readMetrics returns the metrics of the handler, or "" if the handler does not answer.
func (i instanceStatus) readMetrics() string {
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/api/metrics", i.Port))
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return ""
	}

	return string(text)
}
