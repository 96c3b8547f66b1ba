package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/tools/funchost/fleet"
)

// fleetSystem is a system on several hosts, each in a process of its own, as the platform runs hosts.
type fleetSystem struct {
	*system
	fleet *fleet.Fleet

	mu    sync.Mutex
	lanes map[string]int // lanes of accepted messages, by path
}

// newFleetSystem starts storage, a CMS and a number of hosts that run all functions. weirYAML has replacements as for
// stageApp.
func newFleetSystem(t *testing.T, hosts int, weirYAML ...string) *fleetSystem {
	t.Helper()
	s := newBareSystem(t)
	s.app = s.stageApp(weirYAML...)
	f, err := fleet.Start(fleet.Options{
		Binary: filepath.Join(built, "funchost"), Out: s.output,
		Env: append(s.handlerEnv(), "FUNCTIONS_WORKER_RUNTIME=custom"),
		Args: []string{"--script-root", s.app, "--give-up-after", "-1", "--state-dir", t.TempDir(), "--http",
			string(s.mode), "--quiet", "--stop-takes", "300ms"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.useFront(f)
	c := &fleetSystem{system: s, fleet: f, lanes: map[string]int{}}
	for range hosts {
		c.addHost()
	}
	return c
}

// useFront sends the test's requests to the front of a fleet, and checks the answers against openapi.yaml. It does
// not check answers with status 502, because the front itself answers 502 if a host ends with a request in flight. At
// the end of the test useFront closes the fleet.
func (s *system) useFront(f *fleet.Fleet) {
	s.t.Cleanup(f.Close)
	s.weir = f.URL()
	s.hasKilled.Store(true) // hosts of the fleet end during the test
	s.t.Cleanup(answers.Watch(strings.TrimPrefix(s.weir, "http://"), func(text string) {
		if !strings.Contains(text, "status 502") {
			s.t.Error("an answer differs from openapi.yaml:", text)
		}
	}))
}

// addHost starts a host, and waits until the host is ready.
func (c *fleetSystem) addHost() *fleet.Host {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), startLimit)
	defer cancel()
	h, err := c.fleet.Add(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	c.awaitCondition("the host is ready", startLimit,
		func() bool { return c.getStatus(h.URL()+"/api/health") == http.StatusOK })
	return h
}

// postMany posts count messages, each with a key of its own, eight at a time. It repeats each post until the message
// is accepted. It returns, for each message, the time from the first post to the acceptance.
func (c *fleetSystem) postMany(prefix string, count int) (took []time.Duration) {
	c.t.Helper()
	took = make([]time.Duration, count)
	var next atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				began, path := time.Now(), fmt.Sprintf("/%s/%d", prefix, i)
				for !c.postOnce(path) && c.t.Context().Err() == nil {
				}
				took[i] = time.Since(began)
			}
		})
	}
	all.Wait()
	return took
}

// postOnce sends one post, and reports whether the message was accepted.
func (c *fleetSystem) postOnce(path string) bool {
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.weir+"/api/messages",
		strings.NewReader(versionedArticle(path, 1)))
	if err != nil {
		return false
	}
	req.Header.Set("Content-Type", "application/xml")
	req.Header.Set("Idempotency-Key", keyOf(path, 1))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = res.Body.Close() }()
	var m struct{ Lane int }
	if err := json.NewDecoder(res.Body).Decode(&m); err != nil || res.StatusCode != http.StatusAccepted {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lanes[path] = m.Lane
	return true
}

// countLanes returns how many lanes the handler of a host is the holder of.
func (c *fleetSystem) countLanes(h *fleet.Host) (lanes int) {
	res, err := http.Get(h.URL() + "/api/metrics")
	if err != nil {
		return 0
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "weir_lane_held_by_this_instance") && strings.HasSuffix(line, " 1\n") {
			lanes++
		}
	}
	return lanes
}

// awaitHolder waits until all hosts together hold at least the given number of lanes, and returns the host that holds
// the most.
func (c *fleetSystem) awaitHolder(lanes int) (holder *fleet.Host) {
	c.t.Helper()
	c.awaitCondition("the lanes have holders", startLimit, func() bool {
		all := 0
		holder, all = c.findHolder()
		return all >= lanes
	})
	return holder
}

// findHolder returns the host that holds the most lanes, and how many lanes all hosts hold. It returns nil if no host
// holds a lane.
func (c *fleetSystem) findHolder() (holder *fleet.Host, all int) {
	c.t.Helper()
	most := 0
	for _, h := range c.livingHosts() {
		n := c.countLanes(h)
		if all += n; n > most {
			holder, most = h, n
		}
	}
	return holder, all
}

// livingHosts returns the hosts that have not ended.
func (c *fleetSystem) livingHosts() []*fleet.Host {
	return slices.DeleteFunc(c.fleet.Hosts(), func(h *fleet.Host) bool {
		select {
		case <-h.Done():
			return true
		default:
			return false
		}
	})
}

// longestGaps returns for each lane the longest gap, which is the time from the end of a write to the start of the
// next write. A gap counts if that next write began after the time "since". A lane without such a gap is missing. If
// messages waited all the time, the gap is how long the lane stood still.
func (c *fleetSystem) longestGaps(since time.Time) map[int]time.Duration {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	ended, longest := map[int]time.Time{}, map[int]time.Duration{}
	for _, r := range c.readRequests() {
		lane, known := c.lanes[r.Path]
		if !known {
			continue
		}
		if last := ended[lane]; !last.IsZero() && r.StartedAt.After(since) {
			longest[lane] = max(longest[lane], r.StartedAt.Sub(last))
		}
		ended[lane] = r.EndedAt
	}
	return longest
}

// awaitWrittenOnce waits until the CMS has the given number of items. It checks that the CMS got each message once, in
// order per key, and never two of a key at a time.
func (c *fleetSystem) awaitWrittenOnce(count int, limit time.Duration) {
	c.t.Helper()
	c.awaitCondition("everything is written", limit, func() bool { return c.readStats().Items >= count })
	if s := c.readStats(); s.Items != count || s.Writes != count || s.Repeats != 0 || s.Overlaps != 0 ||
		s.Inversions != 0 {
		c.t.Errorf("the CMS has %+v, want %d items, each written once", s, count)
	}
}

// awaitHolderWithInvocation waits until the host that holds the most lanes has an invocation in flight, and returns
// the host. The first holder of a burst may never have an invocation: if the other host takes the ticket of this
// holder, the lane moves to the other host.
func (c *fleetSystem) awaitHolderWithInvocation() (holder *fleet.Host) {
	c.t.Helper()
	c.awaitCondition("the holder has an invocation", 3*time.Minute, func() bool {
		holder, _ = c.findHolder()
		return holder != nil && c.countInvocations(holder) > 0
	})
	return holder
}

// countInvocations returns how many invocations a host has in flight.
func (c *fleetSystem) countInvocations(h *fleet.Host) int {
	var d struct{ OutstandingInvocations int }
	res, err := http.Get(h.URL() + "/admin/host/drain/status")
	if err != nil {
		return 0
	}
	defer func() { _ = res.Body.Close() }()
	if err := json.NewDecoder(res.Body).Decode(&d); err != nil {
		return 0
	}
	return d.OutstandingInvocations
}

// A deployment or a scale-in stops a host while its handler delivers a burst. The test does so with one lane and with
// eight lanes. The environment variable STOPS says how often it stops a host with each of these numbers of lanes
// (default 1). Each stop has a storage of its own, because the emulator gets slower with each message. The test logs
// how long the lanes stood still. `-parallel 1` measures one stop at a time.
func TestStop_DuringABurst(t *testing.T) {
	stops, err := strconv.Atoi(os.Getenv("STOPS"))
	if err != nil {
		stops = 1
	}
	for _, lanes := range []int{1, 8} {
		t.Run(fmt.Sprintf("Lanes=%d", lanes), func(t *testing.T) {
			var mu sync.Mutex
			var standstills []time.Duration
			t.Cleanup(func() { // when all stops are over
				if len(standstills) > 0 {
					t.Logf("%d stops, %d lanes: stood %s", stops, lanes, describeSpread(standstills))
				}
			})
			for n := range stops {
				t.Run(fmt.Sprint("Stop=", n), func(t *testing.T) {
					stood := stopDuringABurst(t, lanes)
					mu.Lock()
					defer mu.Unlock()
					standstills = append(standstills, stood...)
				})
			}
		})
	}
}

// stopDuringABurst stops the host that holds the most lanes. For each lane that is written to afterwards, it returns
// how long the lane stood still.
func stopDuringABurst(t *testing.T, lanes int) (standstills []time.Duration) {
	c := newFleetSystem(t, 2, "lanes: 1 ", fmt.Sprintf("lanes: %d ", lanes))
	size := 700 + 100*lanes
	c.postMany("burst", size)
	h := c.awaitHolderWithInvocation()
	stoppedAt := time.Now()
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}
	<-h.Done()
	c.awaitWrittenOnce(size, 3*time.Minute)
	for _, stood := range c.longestGaps(stoppedAt) {
		standstills = append(standstills, stood)
	}
	t.Logf("%d lanes moved: stood %s", len(standstills), describeSpread(standstills))
	return standstills
}

// The test stops a host in the first seconds of a burst, before the first ticket has arrived. The host has no
// invocation to wait for, so it ends its handler 0.3 s after it has closed its socket. If the handler has handed the
// lane over by then, the CMS gets no message twice. Otherwise the next holder may repeat the uncommitted deliveries,
// 64 at most.
func TestStop_BeforeTheFirstTicket(t *testing.T) {
	stops, err := strconv.Atoi(os.Getenv("STOPS"))
	if err != nil {
		stops = 1
	}
	const handedOver, uncommitted = "handler: lanes handed over", 64
	c := newFleetSystem(t, 2, "lanes: 1 ", "lanes: 1 ", "min: 0s, max: 10s", "min: 5m, max: 6m")
	inTime, standstills, total := 0, []time.Duration{}, 0
	for n := 0; n < stops || inTime == 0 && n < 5; n++ { // on a busy machine a hand-over may take too long
		h, began, size := c.awaitHolderAlone(fmt.Sprint("burst", n))
		total += size
		before, repeats := strings.Count(c.output.String(), handedOver), c.readStats().Repeats
		if err := h.Stop(); err != nil {
			t.Fatal(err)
		}
		<-h.Done()
		c.awaitCondition("everything is written", 2*time.Minute, func() bool { return c.readStats().Items >= total })
		limit := uncommitted
		if strings.Count(c.output.String(), handedOver) > before {
			inTime, limit = inTime+1, 0
		}
		s := c.readStats()
		if s.Items != total || s.Repeats-repeats > limit || s.Overlaps != 0 || s.Inversions != 0 {
			t.Errorf("stop %d: the CMS has %+v, %d of them written twice since the stop; want %d items, and %d "+
				"repeats at most", n, s, s.Repeats-repeats, total, limit)
		}
		standstills = append(standstills, c.longestGaps(began)[0])
		c.addHost()
	}
	if inTime == 0 {
		t.Errorf("the lane was handed over before the handler was ended at none of %d stops, want one at least",
			len(standstills))
	}
	for line := range strings.Lines(c.output.String()) {
		if strings.Contains(line, handedOver) {
			t.Logf("%s", line)
		}
	}
	t.Logf("%d stops, %d handed over in time, %d writes came twice; stood %s", len(standstills), inTime,
		c.readStats().Repeats, describeSpread(standstills))
}

// awaitHolderAlone posts bursts until, in the middle of a burst, a host holds the lane and has no invocation. It
// returns this host, the time at which the CMS became fast in the last burst, and the number of posted messages.
// During the posts of a burst the CMS is slow, so that work is left. Afterwards it is fast. On a busy machine the
// first ticket may arrive before the end of the posts. Then the next burst is smaller.
func (c *fleetSystem) awaitHolderAlone(prefix string) (h *fleet.Host, began time.Time, posted int) {
	c.t.Helper()
	before := c.readStats().Items
	for n := range 6 {
		size := max(200>>n, 30)
		c.setFaults(`{"slow":"200ms"}`)
		c.postMany(fmt.Sprint(prefix, "-", n), size)
		posted += size
		c.setFaults(`{}`)
		began = time.Now()
		written := c.readStats().Items
		c.awaitCondition("the lane moves quickly", time.Minute,
			func() bool { return c.readStats().Items >= min(written+10, before+posted) })
		h = c.awaitHolder(1)
		invocations, items := c.countInvocations(h), c.readStats().Items
		if invocations == 0 && items < before+posted {
			return h, began, posted
		}
		c.t.Logf("burst %d: the holder has %d invocations, and %d of %d messages are written", n, invocations,
			items-before, posted)
		c.awaitCondition("the host has handed the lane over", time.Minute, func() bool { return c.countLanes(h) == 0 })
	}
	c.t.Fatal("the holder had an invocation or no work in each of 6 bursts, want work and no invocation")
	return nil, began, posted
}

// Before the platform removes an instance, it drains the instance: it sends no new invocation. It ends the instance as
// soon as no invocation is in flight.
func TestDrain_DuringABurst(t *testing.T) {
	c := newFleetSystem(t, 2)
	const size = 3500 // the CMS needs a hundred seconds and more
	c.postMany("burst", size)
	h := c.awaitHolderWithInvocation()
	res, err := http.Post(h.URL()+"/admin/host/drain", "", nil)
	if err != nil || res.StatusCode != http.StatusAccepted {
		t.Fatalf("drain: %v %v, want status 202 and no error", res, err)
	}
	_ = res.Body.Close()
	c.awaitCondition("the drained instance has no invocation", 65*time.Second,
		func() bool { return c.countInvocations(h) == 0 })
	if n := c.countLanes(h); n != 0 {
		t.Errorf("the instance holds %d lanes without an invocation, want none", n)
	}
	if err := h.Kill(); err != nil {
		t.Fatal(err)
	}
	c.awaitWrittenOnce(size, 4*time.Minute)
	t.Logf("the lane stood for %s at most", c.longestGaps(time.Time{})[0])
}

// The test replaces four instances, one after the other, while clients post messages. Before that, clients post while
// all instances run. With replacements, the time within which nine of ten posts are accepted is at most five times as
// long as before.
func TestRollingRestart_UnderLoad(t *testing.T) {
	c := newFleetSystem(t, 4, "lanes: 1 ", "lanes: 4 ")
	const rounds, size = 4, 500
	calm := c.postMany("calm", size)
	var took []time.Duration
	old := c.livingHosts()
	for n := range rounds {
		posted := make(chan []time.Duration, 1)
		go func() { posted <- c.postMany(fmt.Sprint("round", n), size) }()
		next := c.addHost()
		if err := old[n].Stop(); err != nil {
			t.Fatal(err)
		}
		took = append(took, <-posted...)
		<-old[n].Done()
		if got := c.getStatus(next.URL() + "/api/health"); got != http.StatusOK {
			t.Errorf("the new instance answers %d to /api/health, want %d", got, http.StatusOK)
		}
	}
	c.mu.Lock()
	accepted := len(c.lanes)
	c.mu.Unlock()
	if want := (rounds + 1) * size; accepted != want {
		t.Errorf("%d posts were accepted in the end, want %d", accepted, want)
	}
	c.awaitWrittenOnce((rounds+1)*size, 4*time.Minute)
	if before, with := quantile(calm, 0.9), quantile(took, 0.9); with > 5*before {
		t.Errorf("of ten posts nine were accepted within %s while instances were replaced, and within %s before; "+
			"want 5 times as long at most", with, before)
	}
	t.Logf("accepted without stops: %s; with stops: %s; lanes stood for %v at most", describeSpread(calm),
		describeSpread(took), c.longestGaps(time.Time{}))
}

// quantile returns a quantile of the durations, which it sorts.
func quantile(all []time.Duration, share float64) time.Duration {
	slices.Sort(all)
	return all[int(share*float64(len(all)-1))]
}

// describeSpread returns quantiles of the durations as text. It sorts the slice.
func describeSpread(all []time.Duration) string {
	if len(all) == 0 {
		return "not at all: all messages were written before"
	}
	at := func(share float64) time.Duration { return quantile(all, share).Round(time.Millisecond) }
	return fmt.Sprintf("50%% %s, 90%% %s, 99%% %s, at most %s", at(0.5), at(0.9), at(0.99), at(1))
}
