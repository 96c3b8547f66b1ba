package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// Each 10 s the test starts a process of `weir poll`. An appender in the test appends messages at
// random times, and only the processes of `weir poll` deliver. The test sets no limit for the wait
// of a message, because the machine can be busy. The tests of internal/poll check the wait in
// virtual time.
func TestPoll_DeliversMessagesFiledAtAnyTime(t *testing.T) {
	const (
		period, idle = 10 * time.Second, 2 * time.Second
		starts       = 3
		messages     = 60
	)

	s := newBareSystem(t)
	appender, _ := s.openAppender(2)
	app := s.stageApp("lanes: 1 ", "lanes: 2 ", "timeout: 30s", "timeout: 1s", "lease: 30s",
		"lease: 15s")
	var all sync.WaitGroup
	results := make([]commandResult, starts)
	began := time.Now()
	for n := range starts {
		all.Go(func() {
			<-time.After(time.Until(began.Add(time.Duration(n) * period)))
			results[n] = s.runHandler(t.Context(), app, nil, "poll", "--period",
				period.String(), "--idle", idle.String(), "--estimate", "100ms")
		})
	}

	// No message is appended in the last 5 s, because no later process would deliver it.
	accepted := map[string]time.Time{}
	for _, at := range randomTimes(messages, starts*period-5*time.Second) {
		<-time.After(time.Until(began.Add(at)))
		m := s.appendMessage(appender, "/p/"+string(rune('a'+len(accepted)%7)), len(accepted)/7)
		accepted[m.ID.String()] = time.Now()
	}

	all.Wait()
	for n, r := range results {
		t.Logf("process %d: %d messages", n, r.countPolled(t))
	}

	// On a busy machine a process may end before it has time for all.
	for more := 0; len(s.readRequests()) < messages && more < 20; more++ {
		r := s.runHandler(t.Context(), app, nil, "poll", "--period", period.String(), "--idle",
			idle.String())
		t.Logf("one process more: %d messages", r.countPolled(t))
	}

	var waits []time.Duration
	for _, r := range s.readRequests() {
		waits = append(waits, max(r.EndedAt.Sub(accepted[r.ID]), 0))
	}

	slices.Sort(waits)
	if len(waits) != messages {
		t.Fatalf("%d deliveries, want %d", len(waits), messages)
	}

	t.Logf("%d messages: from accepted to delivered %s at the median, %s at most", messages,
		waits[len(waits)/2].Round(time.Millisecond), waits[len(waits)-1].Round(time.Millisecond))

	if st := s.readStats(); st.Repeats != 0 || st.Overlaps != 0 || st.Inversions != 0 ||
		st.MaxConcurrent > 2 {
		t.Errorf("the CMS's record: %+v, want Repeats 0, Overlaps 0, Inversions 0 and MaxConcurrent at most 2", st)
	}
}

// countPolled checks the output of a process of `weir poll`, and returns how many messages it
// counts. On a busy machine the process may end before storage has answered its last requests. Its
// error then names the time limit, and countPolled accepts it.
func (e commandResult) countPolled(t *testing.T) int {
	t.Helper()
	code, stderr := 0, ""
	if e.code == 1 {
		code, stderr = 1, `^weir: close the drains: context deadline exceeded\n`
	}

	e.checkOutput(t, code, `^poll: \d+ runs, \d+ messages, average `, stderr)

	var runs, messages int
	if _, err := fmt.Sscanf(e.stdout, "poll: %d runs, %d messages", &runs, &messages); err != nil {
		t.Errorf("read the counts of %q: %v", e.stdout, err)
	}

	return messages
}

// randomTimes returns n random durations below limit, in ascending order.
func randomTimes(n int, limit time.Duration) []time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = rand.N(limit)
	}
	slices.Sort(all)
	return all
}

// Processes of `weir poll` run beside a Functions host. One process starts each 2 s and runs for
// about 4 s, so the processes overlap. The lane gets a new holder at least once. Each message is
// delivered once, in order per key.
func TestPoll_OverlappingBesideAHost(t *testing.T) {
	s := newSystem(t, 1, "timeout: 30s", "timeout: 1s", "lease: 30s", "lease: 15s")
	appender, _ := s.openAppender(1)
	app := s.stageApp("timeout: 30s", "timeout: 1s", "lease: 30s", "lease: 15s")
	var all sync.WaitGroup
	results, began := make([]commandResult, 7), time.Now()
	for n := range results {
		all.Go(func() {
			<-time.After(time.Until(began.Add(time.Duration(n) * 2 * time.Second)))
			results[n] = s.runHandler(t.Context(), app, nil, "poll", "--period", "4s", "--idle",
				"500ms", "--estimate", "100ms")
		})
	}

	s.appendMessage(appender, "/l/0", 0)
	s.awaitCondition("the first message is delivered", 10*time.Second,
		func() bool { return s.readStats().Writes == 1 })
	posted := make(chan []postedMessage, 1)
	go func() { posted <- s.postBurst(t.Context(), 8, 40) }()
	const filed = 100
	for n, at := range randomTimes(filed-1, 12*time.Second) {
		<-time.After(time.Until(began.Add(at)))
		s.appendMessage(appender, "/l/0", n+1)
	}

	all.Wait()
	byPoll := 0
	for n, r := range results {
		polled := r.countPolled(t)
		t.Logf("process %d: %d messages", n, polled)
		byPoll += polled
	}

	accepted := <-posted
	s.awaitStages(accepted, "delivered", time.Minute)

	// On a busy machine the host may have held the lane until now. It releases an empty lane, and
	// learns of a message without a ticket only at its next sweep. So a process of weir poll
	// delivers this one.
	appended := filed
	for more := 0; byPoll == 0 && more < 20; more++ {
		s.appendMessage(appender, "/l/0", appended)
		appended++
		r := s.runHandler(t.Context(), app, nil, "poll", "--period", "4s", "--idle", "500ms",
			"--estimate", "100ms")
		byPoll += r.countPolled(t)
	}

	want := len(accepted) + appended
	s.awaitCondition("all are delivered", time.Minute,
		func() bool { return s.readStats().Writes >= want })
	st, fences := s.checkRecord(), map[int64]bool{}
	for _, r := range s.readRequests() {
		fences[r.Fence] = true
	}

	t.Logf("%d of %d messages by weir poll, %d holders", byPoll, want, len(fences))

	if len(accepted) != 320 || st.Writes != want || st.Repeats != 0 || byPoll == 0 ||
		len(fences) < 2 {
		t.Errorf("%d accepted, %+v, %d by weir poll, %d holders; want 320, %d written once, some, 2 or more",
			len(accepted), st, byPoll, len(fences), want)
	}
}
