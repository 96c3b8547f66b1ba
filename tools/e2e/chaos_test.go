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

	"weir/internal/democms"
	"weir/internal/lane"
	"weir/tools/funchost/fleet"
	"weir/tools/funchost/host"
)

const (
	chaosLanes    = 8
	chaosIdleKill = 5 * time.Second
	// uncommittedFor is the longest time that the test allows from the start of a write to its
	// commit. The holder commits at most 100 ms after the CMS's answer, but a busy machine needs
	// longer. If the holder is killed before the commit, the next holder is allowed to repeat the
	// write.
	uncommittedFor = 5 * time.Second
)

// TestChaos stops, kills and restarts processes in all the ways that a platform uses, in random
// order. Meanwhile clients post to two hosts with eight lanes. The CMS gets each acknowledged
// message. Messages of a key reach the CMS in order, and messages of a lane one at a time. The CMS
// gets a message twice only if a handler was killed between the two writes, within uncommittedFor
// after the first write began.
//
// TestChaos has each act once. TestLong_Chaos and TestLong_ChaosOnFlex have more.
func TestChaos(t *testing.T) { newChaos(t, "", "").runChaos(0) }

// runChaos runs each act once, and a number of further acts.
func (c *chaosRun) runChaos(further int) {
	t := c.t
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	posted := c.startClients(ctx)
	c.awaitProgress()

	for _, act := range c.planActs(further) {
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

// chaosRun is a system with several hosts. Each host is a process.
type chaosRun struct {
	*system
	fleet   *fleet.Fleet
	random  *rand.Rand
	hosts   []*fleet.Host          // hosts that have not ended
	groups  map[*fleet.Host]string // the group of each host; "" = all functions
	begunAt time.Time
	killed  []time.Time // moments at which SIGKILL ended a handler

	mu     sync.Mutex
	halted chan struct{} // if not nil, the clients wait until this channel is closed
}

// newChaos starts a host for each group. The group "" has all functions.
func newChaos(t *testing.T, groups ...string) *chaosRun {
	t.Helper()
	c := &chaosRun{system: newBareSystemAt(t, 100*time.Millisecond),
		random: rand.New(rand.NewPCG(12, 4)), groups: map[*fleet.Host]string{}}
	c.app = c.stageApp("lanes: 1 ", fmt.Sprintf("lanes: %d ", chaosLanes), "lease: 30s",
		"lease: 15s")
	var err error
	c.fleet, err = fleet.Start(fleet.Options{
		Binary: filepath.Join(built, "funchost"),
		Args: []string{"--script-root", c.app, "--state-dir", t.TempDir(), "--give-up-after", "-1",
			"--http", string(c.mode), "--idle-kill", chaosIdleKill.String(),
			"--stop-takes", "300ms"},
		// If a request woke a holder, the holder gets an invocation only when the host polls the
		// queue. So the host must poll often.
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

// addHost starts a host of a group, and waits until the handler answers. Acts end only hosts that
// addHost has started.
func (c *chaosRun) addHost(group string) {
	c.t.Helper()
	h := c.startHost(group)
	c.hosts = append(c.hosts, h)
	c.groups[h] = group
	c.awaitServing(h)
}

// startHost starts a host of a group.
func (c *chaosRun) startHost(group string) *fleet.Host {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), slowdown*startLimit)
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

// awaitServing waits until a host's handler answers a request. A host of the group "process" has no
// health endpoint. On a busy machine its instance may be scaled in before the handler answers, and
// comes back with the next ticket.
func (c *chaosRun) awaitServing(h *fleet.Host) {
	c.t.Helper()
	c.awaitCondition("the host serves", startLimit, func() bool {
		if c.groups[h] == "process" {
			i := c.readInstance(h)
			return i.State == "scaled in" || (i.PID > 0 && i.readMetrics() != "")
		}
		return c.askHost(h, "GET", "/api/health") == http.StatusOK
	})
}

// askHost sends a request to one host. It returns the status of the answer, or 0 if there is no
// answer.
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

// startClients starts clients that post to two keys of each lane until ctx ends. After the last
// post, the returned channel gets the acknowledged messages.
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

// awaitTurn waits until a client is allowed to post its next message. If it returns false, the
// client must stop.
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

// planActs returns acts in random order. Only one act drains a host, because a drain takes a
// minute. Each other act occurs once, and some of the further ones again.
func (c *chaosRun) planActs(further int) []chaosAct {
	short := []chaosAct{{"stop", c.stopOne}, {"SIGKILL", c.killHandler},
		{"idle kill", c.awaitIdleKill}, {"restart", c.restartHost}}
	acts := append([]chaosAct{{"drain", c.drainHost}}, short...)
	for range further {
		acts = append(acts, short[c.random.IntN(len(short))])
	}

	c.random.Shuffle(len(acts), func(i, j int) { acts[i], acts[j] = acts[j], acts[i] })

	return acts
}

// pickHost returns a random host in a quarter of its calls. Otherwise it returns the host that
// holds the most lanes, because the end of that host interrupts the most deliveries.
func (c *chaosRun) pickHost() *fleet.Host {
	if c.random.IntN(4) == 0 {
		return c.hosts[c.random.IntN(len(c.hosts))]
	}
	return c.findHolder()
}

func (c *chaosRun) findHolder() *fleet.Host {
	return slices.MaxFunc(c.hosts,
		func(a, b *fleet.Host) int { return c.countLanes(a) - c.countLanes(b) })
}

// countLanes returns the number of lanes that a host's handler holds.
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

// stopOne stops a host gracefully, and starts another host.
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
	case <-time.After(slowdown * time.Minute):
		c.t.Fatal("the host runs on, want it to end")
	}

	c.removeHost(h)
}

// drainHost drains the host that holds the most lanes, as the platform does before it removes an
// instance. After the drain it kills the host, and starts another host.
func (c *chaosRun) drainHost() {
	h := c.findHolder()
	if status := c.askHost(h, "POST", "/admin/host/drain"); status != http.StatusAccepted {
		c.t.Fatalf("drain: %d, want 202", status)
	}

	c.awaitCondition("the drain is completed", 2*time.Minute, func() bool {
		return getJSON[host.DrainStatus](c.system, h.URL()+"/admin/host/drain/status").State ==
			"Completed"
	})

	_ = h.Kill() // the killed process exits with an error
	c.removeHost(h)
	c.addHost(c.groups[h])
}

// killHandler kills a handler, and waits until its host has started a new handler.
func (c *chaosRun) killHandler() {
	h := c.pickHost()
	var pid int
	c.awaitCondition("a handler runs", startLimit,
		func() bool { pid = c.readInstance(h).PID; return pid > 0 })
	c.killed = append(c.killed, time.Now())
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		c.t.Fatal(err)
	}

	c.awaitServing(h)
}

// restartHost restarts the script host in a host's process. The new handler starts while the old
// handler still runs.
func (c *chaosRun) restartHost() {
	h := c.pickHost()
	if status := c.askHost(h, "POST", "/admin/host/restart"); status != http.StatusOK {
		c.t.Fatalf("restart: %d, want 200", status)
	}
	c.awaitServing(h)
}

// awaitIdleKill makes the clients wait until a host has killed its handler because no invocation
// was in flight.
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

// attendedFor is the time for which each holder must have an invocation in flight. An invocation
// that lasts so long stays with the lanes of its process. All other invocations end earlier.
const attendedFor = 2 * time.Second

// awaitProgress waits until the CMS has received a new message of each lane, and until each holder
// has an invocation that stays. The host can kill a holder without such an invocation
// (--idle-kill), and the next holder is then allowed to repeat writes.
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
			unattended = append(unattended,
				fmt.Sprintf("%s %s: %d lanes", since.UTC().Format("15:04:05.000"),
					cmp.Or(c.groups[c.hosts[i]], "every function"), c.countLanes(c.hosts[i])))
			unattended = unattended[max(0, len(unattended)-20):]
		}

		return time.Since(since) >= attendedFor
	})
}

// holdsUnattended reports whether a host's handler holds a lane without an invocation in flight.
func (c *chaosRun) holdsUnattended(h *fleet.Host) bool {
	i := c.readInstance(h)
	return i.PID > 0 && i.Invocations == 0 && holderMetric.MatchString(i.readMetrics())
}

// holderMetric matches a metric that shows the handler as the holder of a lane.
var holderMetric = regexp.MustCompile(`(?m)^weir_lane_held_by_this_instance\{lane="\d+"\} 1$`)

// scaledIn matches the log line that a host writes when it kills an idle handler.
var scaledIn = regexp.MustCompile(`(?m)^\[(\S+)\] .* is scaled in\.`)

// addIdleKills adds to c.killed the times at which a host killed an idle handler. A handler that a
// request has just woken can hold a lane without an invocation. If the host kills this handler, the
// next holder is allowed to repeat a write.
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
	if st.Writes-st.Repeats != len(accepted) || st.Duplicates != 0 || st.Overlaps != 0 ||
		st.Inversions != 0 {
		c.t.Errorf("%d accepted, the CMS's record: %+v", len(accepted), st)
	}

	byLane, byID := map[int][]democms.Request{}, map[string][]democms.Request{}
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
				c.t.Errorf("written twice, and no handler was killed in between: %+v, %+v",
					requests[i], r)
			}
		}
	}

	c.t.Logf("%d messages, %d writes came twice, %d handlers killed; the longest time in which a lane wrote nothing: "+
		"%s",
		len(accepted), repeats, len(c.killed), longest.Round(10*time.Millisecond))
}

func byStart(a, b democms.Request) int {
	return cmp.Compare(a.StartedAt.UnixNano(), b.StartedAt.UnixNano())
}

// wasKilledBetween reports whether a handler was killed between the starts of two writes, and
// within uncommittedFor after the first start. A kill up to a second before the first start counts,
// too, because the CMS can read a request after its sender was killed.
func (c *chaosRun) wasKilledBetween(first, second democms.Request) bool {
	const moment = time.Second
	return slices.ContainsFunc(c.killed, func(at time.Time) bool {
		return at.After(first.StartedAt.Add(-moment)) && at.Before(second.StartedAt) &&
			at.Sub(first.StartedAt) < uncommittedFor
	})
}
