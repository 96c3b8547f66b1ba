package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/tools/democms/server"
	"weir/tools/funchost/fleet"
	"weir/tools/funchost/host"
)

const (
	chaosLanes    = 8
	chaosIdleKill = 5 * time.Second
	// uncommittedFor is the longest time from the start of a write to its commit. The commit starts at most 100 ms
	// after the write, but a busy machine delays it. If the process is killed before the commit, the next holder may
	// repeat the write.
	uncommittedFor = 5 * time.Second
)

// TestChaos ends and restarts processes in all the ways in which a platform does. It does so in random order, while
// clients post to two hosts with eight lanes. The CMS gets each acknowledged message. It gets the messages of a key
// in order, and never two messages of a lane at a time. It gets a message twice only if SIGKILL ended a handler
// between the two writes, less than uncommittedFor after the first write began.
func TestChaos(t *testing.T) { newChaos(t, "", "").runChaos() }

// TestChaos_OnFlex does the same with hosts that each run one group of functions. A host of the group "http" gets the
// posts, and two hosts of the group "process" get the tickets.
func TestChaos_OnFlex(t *testing.T) {
	c := newChaos(t, "http", "process", "process")
	c.startHost("sweep") // the test does not end this host: it has no handler between two sweeps
	c.runChaos()
}

// runChaos runs the planned acts while clients post, and checks the CMS's record.
func (c *chaosRun) runChaos() {
	t := c.t
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	posted := c.startClients(ctx)
	c.awaitProgress()
	for _, act := range c.planActs() {
		t.Logf("%5.1f s: %s", time.Since(c.begunAt).Seconds(), act.name)
		act.run()
		c.awaitProgress()
	}
	t.Logf("%5.1f s: end", time.Since(c.begunAt).Seconds())
	stop()
	accepted := <-posted
	c.awaitCondition("all is delivered, by the books", 2*time.Minute,
		func() bool { return c.readBalance().Delivered >= int64(len(accepted)) })
	c.compareRecords(accepted)
	c.checkHistory(accepted)
}

// chaosRun is a system on several hosts, each in a process of its own.
type chaosRun struct {
	*system
	fleet   *fleet.Fleet
	random  *rand.Rand
	hosts   []*fleet.Host          // hosts that have not ended
	groups  map[*fleet.Host]string // the group of each host in hosts; "" = all functions
	begunAt time.Time
	killed  []time.Time // moments at which SIGKILL ended a handler

	mu     sync.Mutex
	halted chan struct{} // if not nil, the clients wait until it is closed
}

// newChaos starts a host for each group; "" = a host of all functions.
func newChaos(t *testing.T, groups ...string) *chaosRun {
	t.Helper()
	c := &chaosRun{system: newBareSystemAt(t, 100*time.Millisecond), random: rand.New(rand.NewPCG(12, 4)),
		groups: map[*fleet.Host]string{}}
	c.app = c.stageApp("lanes: 1 ", fmt.Sprintf("lanes: %d ", chaosLanes), "lease: 30s", "lease: 15s")
	var err error
	c.fleet, err = fleet.Start(fleet.Options{
		Binary: filepath.Join(built, "funchost"),
		Args: []string{"--script-root", c.app, "--state-dir", t.TempDir(), "--give-up-after", "-1",
			"--http", string(c.mode), "--idle-kill", chaosIdleKill.String(),
			"--stop-takes", "300ms"},
		// A holder that a request has woken gets an invocation at the next poll of the host. So the host must poll
		// often.
		Env: append(c.handlerEnv(), "FUNCTIONS_WORKER_RUNTIME=custom",
			"AzureFunctionsJobHost__extensions__queues__maxPollingInterval=00:00:02"),
		Out: c.output,
	})
	if err != nil {
		t.Fatal(err)
	}
	c.useFront(c.fleet)
	for _, group := range groups {
		c.addHost(group)
	}
	c.begunAt = time.Now()
	return c
}

// addHost starts a host of a group, and waits until it serves.
func (c *chaosRun) addHost(group string) {
	c.t.Helper()
	h := c.startHost(group)
	c.hosts = append(c.hosts, h)
	c.groups[h] = group
	c.awaitServing(h)
}

// startHost starts a host of a group. An act ends only a host that addHost has started.
func (c *chaosRun) startHost(group string) *fleet.Host {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), startLimit)
	defer cancel()
	var args []string
	if group != "" {
		args = []string{"--group", group}
	}
	h, err := c.fleet.Add(ctx, args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return h
}

// awaitServing waits until a host's handler answers a request. A host of the group "process" has no address for
// health.
func (c *chaosRun) awaitServing(h *fleet.Host) {
	c.t.Helper()
	c.awaitCondition("the host serves", startLimit, func() bool {
		if c.groups[h] == "process" {
			i := c.readInstance(h)
			return i.PID > 0 && i.readMetrics() != ""
		}
		return c.askHost(h, "GET", "/api/health") == http.StatusOK
	})
}

// askHost sends a request to one host, and returns the status of the answer; 0 = no answer.
func (c *chaosRun) askHost(h *fleet.Host, method, path string) int {
	req, err := http.NewRequestWithContext(c.t.Context(), method, h.URL()+path, nil)
	if err != nil {
		return 0
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// startClients starts clients that post to two keys of each lane until ctx ends. Then the channel gets the
// acknowledged messages.
func (c *chaosRun) startClients(ctx context.Context) <-chan []postedMessage {
	var mu sync.Mutex
	var accepted []postedMessage
	var clients sync.WaitGroup
	for _, path := range chaosPaths() {
		clients.Go(func() {
			for version := 1; c.awaitTurn(ctx); version++ {
				m, err := c.postUntilAccepted(c.t.Context(), path, version)
				if err != nil {
					return // the test has ended
				}
				mu.Lock()
				accepted = append(accepted, m)
				mu.Unlock()
			}
		})
	}
	done := make(chan []postedMessage, 1)
	go func() { clients.Wait(); done <- accepted }()
	return done
}

// chaosPaths returns two paths for each lane.
func chaosPaths() []string {
	var paths []string
	in := map[int]int{}
	for n := 0; len(paths) < 2*chaosLanes; n++ {
		path := fmt.Sprintf("/chaos/%d", n)
		if number := lane.Of(path, chaosLanes); in[number] < 2 {
			in[number]++
			paths = append(paths, path)
		}
	}
	return paths
}

// awaitTurn waits until a client may post its next message. It returns false if the client must not post any more.
func (c *chaosRun) awaitTurn(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(400 * time.Millisecond):
	}
	c.mu.Lock()
	halted := c.halted
	c.mu.Unlock()
	if halted != nil {
		<-halted
	}
	return ctx.Err() == nil
}

type chaosAct struct {
	name string
	run  func()
}

// planActs returns acts in random order. It has one act that drains a host, which takes a minute, and each other act
// at least once.
func (c *chaosRun) planActs() []chaosAct {
	short := []chaosAct{{"stop", c.stopOne}, {"SIGKILL", c.killHandler}, {"idle kill", c.awaitIdleKill},
		{"restart", c.restartHost}}
	acts := append([]chaosAct{{"drain", c.drainHost}}, short...)
	for range 3 {
		acts = append(acts, short[c.random.IntN(len(short))])
	}
	c.random.Shuffle(len(acts), func(i, j int) { acts[i], acts[j] = acts[j], acts[i] })
	return acts
}

// pickHost picks a host. In at least three of four cases it picks the host that holds the most lanes, because the end
// of that host interrupts the most deliveries.
func (c *chaosRun) pickHost() *fleet.Host {
	if c.random.IntN(4) == 0 {
		return c.hosts[c.random.IntN(len(c.hosts))]
	}
	return c.findHolder()
}

// findHolder returns the host that holds the most lanes.
func (c *chaosRun) findHolder() *fleet.Host {
	return slices.MaxFunc(c.hosts, func(a, b *fleet.Host) int { return c.countLanes(a) - c.countLanes(b) })
}

// countLanes returns how many lanes a host's handler is the holder of.
func (c *chaosRun) countLanes(h *fleet.Host) int {
	return len(holderMetric.FindAllString(c.readInstance(h).readMetrics(), -1))
}

func (c *chaosRun) readInstance(h *fleet.Host) instanceStatus {
	c.t.Helper()
	return getJSON[hostStatus](c.system, h.URL()+"/admin/host/status").Instances[0]
}

func (c *chaosRun) removeHost(h *fleet.Host) {
	c.hosts = slices.DeleteFunc(c.hosts, func(other *fleet.Host) bool { return other == h })
}

// stopOne stops a host in order, and starts another.
func (c *chaosRun) stopOne() {
	h := c.pickHost()
	if err := h.Stop(); err != nil {
		c.t.Fatal(err)
	}
	c.awaitEnd(h)
	c.addHost(c.groups[h])
}

func (c *chaosRun) awaitEnd(h *fleet.Host) {
	c.t.Helper()
	select {
	case <-h.Done():
	case <-time.After(time.Minute):
		c.t.Fatal("the host did not end within a minute")
	}
	c.removeHost(h)
}

// drainHost asks the host that holds the most lanes to drain, as the platform does before it removes an instance. It
// kills the host once no invocation is in flight, and starts another.
func (c *chaosRun) drainHost() {
	h := c.findHolder()
	if status := c.askHost(h, "POST", "/admin/host/drain"); status != http.StatusAccepted {
		c.t.Fatalf("drain: %d, want 202", status)
	}
	c.awaitCondition("the drain is completed", 2*time.Minute, func() bool {
		return getJSON[host.DrainStatus](c.system, h.URL()+"/admin/host/drain/status").State == "Completed"
	})
	_ = h.Kill() // the killed process exits with an error
	c.removeHost(h)
	c.addHost(c.groups[h])
}

// killHandler ends a handler by SIGKILL. The handler's host starts another.
func (c *chaosRun) killHandler() {
	h := c.pickHost()
	var pid int
	c.awaitCondition("a handler runs", startLimit, func() bool { pid = c.readInstance(h).PID; return pid > 0 })
	c.killed = append(c.killed, time.Now())
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		c.t.Fatal(err)
	}
	c.awaitServing(h)
}

// restartHost restarts the script host: a second handler starts beside the first.
func (c *chaosRun) restartHost() {
	h := c.pickHost()
	if status := c.askHost(h, "POST", "/admin/host/restart"); status != http.StatusOK {
		c.t.Fatalf("restart: %d, want 200", status)
	}
	c.awaitServing(h)
}

// awaitIdleKill halts the clients until a host has killed its handler because no invocation was in flight.
func (c *chaosRun) awaitIdleKill() {
	before := strings.Count(c.output.String(), "is scaled in.")
	halted := make(chan struct{})
	c.mu.Lock()
	c.halted = halted
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.halted = nil
		c.mu.Unlock()
		close(halted)
	}()
	c.awaitCondition("an idle instance is killed", 2*time.Minute,
		func() bool { return strings.Count(c.output.String(), "is scaled in.") > before })
}

// attendedFor is the time for which each holder must have had an invocation in flight. An invocation that is in flight
// for so long stays with the lanes of its process. Other invocations end at once.
const attendedFor = 2 * time.Second

// awaitProgress waits for two things: the CMS has got a message of each lane since the call, and each holder has an
// invocation that stays. The host may kill a holder without an invocation (--idle-kill). The next holder may then
// repeat writes, as after a SIGKILL of the test.
func (c *chaosRun) awaitProgress() {
	c.t.Helper()
	from := time.Now()
	c.awaitCondition("each lane goes on", time.Minute, func() bool {
		moved := map[int]bool{}
		for _, r := range c.readRequests() {
			if r.StartedAt.After(from) {
				moved[lane.Of(r.Path, chaosLanes)] = true
			}
		}
		return len(moved) == chaosLanes
	})
	since, unattended := time.Now(), []string(nil)
	defer func() {
		if c.t.Failed() {
			c.t.Logf("holders without an invocation, at the last looks: %q", unattended)
		}
	}()
	c.awaitCondition("each holder has an invocation", time.Minute, func() bool {
		if i := slices.IndexFunc(c.hosts, c.holdsUnattended); i >= 0 {
			since = time.Now()
			unattended = append(unattended, fmt.Sprintf("%s %s: %d lanes", since.UTC().Format("15:04:05.000"),
				cmp.Or(c.groups[c.hosts[i]], "every function"), c.countLanes(c.hosts[i])))
			unattended = unattended[max(0, len(unattended)-20):]
		}
		return time.Since(since) >= attendedFor
	})
}

// holdsUnattended reports whether a host's handler is the holder of a lane and has no invocation in flight.
func (c *chaosRun) holdsUnattended(h *fleet.Host) bool {
	i := c.readInstance(h)
	return i.PID > 0 && i.Invocations == 0 && holderMetric.MatchString(i.readMetrics())
}

// holderMetric matches the metric of a lane of which the handler is the holder.
var holderMetric = regexp.MustCompile(`(?m)^weir_lane_held_by_this_instance\{lane="\d+"\} 1$`)

// scaledIn matches the host's line about a handler that it killed because no invocation was in flight.
var scaledIn = regexp.MustCompile(`(?m)^\[(\S+)\] .* is scaled in\.`)

// addIdleKills reads from the hosts' log the moments at which a host killed an idle handler, and adds them to the
// field "killed". Such a handler may be a holder, because a handler that a request has just woken has no invocation
// yet. So the next holder may repeat a write.
func (c *chaosRun) addIdleKills() {
	c.t.Helper()
	for _, line := range scaledIn.FindAllStringSubmatch(c.output.String(), -1) {
		at, err := time.Parse(time.RFC3339, line[1])
		if err != nil {
			c.t.Fatal(err)
		}
		c.killed = append(c.killed, at)
	}
}

// compareRecords compares the CMS's record with the acknowledged messages.
func (c *chaosRun) compareRecords(accepted []postedMessage) {
	c.t.Helper()
	c.addIdleKills()
	st := c.readStats()
	if st.Writes-st.Repeats != len(accepted) || st.Duplicates != 0 || st.Overlaps != 0 || st.Inversions != 0 {
		c.t.Errorf("%d accepted, the CMS's record: %+v", len(accepted), st)
	}
	byLane, byID := map[int][]server.Request{}, map[string][]server.Request{}
	for _, r := range c.readRequests() {
		byLane[lane.Of(r.Path, chaosLanes)] = append(byLane[lane.Of(r.Path, chaosLanes)], r)
		byID[r.ID] = append(byID[r.ID], r)
	}
	longest := time.Duration(0)
	for number, requests := range byLane {
		slices.SortFunc(requests, byStart)
		for i, r := range requests[1:] {
			if r.StartedAt.Before(requests[i].EndedAt) {
				c.t.Errorf("lane %d had two writers at %s", number, r.StartedAt)
			}
			longest = max(longest, r.StartedAt.Sub(requests[i].EndedAt))
		}
	}
	repeats := 0
	for _, requests := range byID {
		slices.SortFunc(requests, byStart)
		for i, r := range requests[1:] {
			repeats++
			if !c.wasKilledBetween(requests[i], r) {
				c.t.Errorf("written twice, and no handler was killed in between: %+v, %+v", requests[i], r)
			}
		}
	}
	c.t.Logf("%d messages, %d writes came twice, %d handlers killed; the longest time in which a lane wrote nothing: "+
		"%s",
		len(accepted), repeats, len(c.killed), longest.Round(10*time.Millisecond))
}

func byStart(a, b server.Request) int {
	return cmp.Compare(a.StartedAt.UnixNano(), b.StartedAt.UnixNano())
}

// wasKilledBetween reports whether a handler of any host was killed between the starts of two writes, and less than
// uncommittedFor after the start of the first. The CMS may read a request shortly after its sender was killed. So a
// kill up to a second before the start of the first write counts, too.
func (c *chaosRun) wasKilledBetween(first, second server.Request) bool {
	const moment = time.Second
	return slices.ContainsFunc(c.killed, func(at time.Time) bool {
		return at.After(first.StartedAt.Add(-moment)) && at.Before(second.StartedAt) &&
			at.Sub(first.StartedAt) < uncommittedFor
	})
}
