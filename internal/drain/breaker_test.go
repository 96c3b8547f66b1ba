package drain

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

var noon = time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)

func newTestBreaker() *breaker {
	return newBreaker(Backoff{Min: time.Second, Max: time.Minute, Rand: rand.Float64}, 3*time.Second, 0)
}

func entry(seq int64, key string) *lane.Entry {
	return &lane.Entry{Message: weir.Message{ID: weir.ID{Epoch: 1, Seq: seq}, Key: key}}
}

func outcome(o weir.Outcome, status int) weir.Result {
	return weir.Result{Outcome: o, Status: status, Reason: fmt.Sprint(status)}
}

// Results of the CMS.
var (
	down    = outcome(weir.OutcomeUnavailable, 503)
	flaky   = outcome(weir.OutcomeRetry, 500)
	refusal = weir.Result{Outcome: weir.OutcomeUnavailable, Status: 403, Reason: "403", Refused: true}
	fine    = outcome(weir.OutcomeDelivered, 200)
)

func TestBreaker_ClassifyResult_UnavailableIsNobodysFault(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	for range 20 {
		if got := g.classifyResult(entry(1, "a"), down, noon); got != weir.OutcomeUnavailable {
			t.Fatalf("got %s", got)
		}
	}
	if wait := g.closedUntil().Sub(noon); wait < 30*time.Second || wait > time.Minute {
		t.Errorf("pause after 20 in a row: %s, want it grown to 30s..1m", wait)
	}
}

func TestBreaker_ClassifyResult_ChargedOnceAnotherGotAVerdictBetween(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	g.classifyResult(entry(1, "a"), down, noon)
	g.classifyResult(entry(2, "b"), fine, noon)
	if got := g.classifyResult(entry(1, "a"), down, noon); got != weir.OutcomeRetry {
		t.Errorf("second time, with a verdict between: %s, want retry", got)
	}
	if got := g.classifyResult(entry(1, "a"), down, noon); got != weir.OutcomeUnavailable {
		t.Errorf("third time, with none since: %s, want unavailable", got)
	}
}

func TestBreaker_ClassifyResult_RetriesInARowOverKeysAreTheCMS(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	var got []weir.Outcome
	for i := range 6 {
		got = append(got, g.classifyResult(entry(int64(i), string(rune('a'+i%3))), flaky, noon))
	}
	want := []weir.Outcome{"retry", "retry", "retry", "retry", "unavailable", "unavailable"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	g.classifyResult(entry(9, "z"), fine, noon)
	if o := g.classifyResult(entry(7, "b"), flaky, noon); o != weir.OutcomeRetry {
		t.Errorf("after a verdict: %s, want retry", o)
	}
}

func TestBreaker_ClassifyResult_RetriesOfTwoKeysAreTheMessages(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	for i := range 20 {
		if o := g.classifyResult(entry(int64(i), string(rune('a'+i%2))), flaky, noon); o != weir.OutcomeRetry {
			t.Fatalf("try %d: %s", i, o)
		}
	}
}

func TestBreaker_ClassifyResult_FailuresBeforeAnotherHoldersDeliveriesAreOld(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	g.adoptTail(lane.Tail{Counts: lane.Counts{Delivered: 7}}, time.Now())
	for i := range 4 {
		g.classifyResult(entry(int64(i), fmt.Sprint("k", i)), flaky, noon)
	}
	g.recordDelivered(lane.Tail{Counts: lane.Counts{Delivered: 7}})
	g.adoptTail(lane.Tail{Counts: lane.Counts{Delivered: 7}}, time.Now())
	if got := g.classifyResult(entry(9, "z"), flaky, noon); got != weir.OutcomeUnavailable {
		t.Fatalf("the fifth in a row, nobody having had the lane between: %s", got)
	}
	g.recordDelivered(lane.Tail{Counts: lane.Counts{Delivered: 7}})
	g.adoptTail(lane.Tail{Counts: lane.Counts{Delivered: 9}}, time.Now())
	for range 2 {
		if got := g.classifyResult(entry(9, "z"), flaky, noon); got != weir.OutcomeRetry {
			t.Errorf("after another holder's deliveries: %s", got)
		}
	}
}

func TestBreaker_ClassifyResult_WhatWasCancelledSpeaksForNothing(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	for i := range 3 {
		for range 2 {
			g.classifyResult(entry(int64(i), fmt.Sprint("k", i)), flaky, noon)
		}
	}
	g.forgetMessage(entry(0, "k0"))
	if got := g.classifyResult(entry(1, "k1"), flaky, noon); got != weir.OutcomeRetry {
		t.Errorf("two keys are left, and it is %s", got)
	}
}

func TestBreaker_ClassifyResult_ARequestThatCannotBeBuiltIsNoVerdict(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	g.classifyResult(entry(1, "a"), down, noon)
	g.classifyResult(entry(2, "b"), outcome(weir.OutcomeRejected, 0), noon)
	if got := g.classifyResult(entry(1, "a"), down, noon); got != weir.OutcomeUnavailable {
		t.Errorf("got %s", got)
	}
}

func TestBreaker_ClassifyResult_RefusedIsCountedByNobodyWithoutAVerdict(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	for i := range 40 {
		at := noon.Add(time.Duration(i) * 35 * time.Minute)
		if got := g.classifyResult(entry(int64(i%3), fmt.Sprint("k", i%3)), refusal, at); got != weir.OutcomeUnavailable {
			t.Fatalf("try %d, %s after the first: got %s, want unavailable", i, at.Sub(noon), got)
		}
	}
}

func TestBreaker_ClassifyResult_RefusedIsCountedAfterADay(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	later := entry(2, "b")
	later.Message.AcceptedAt = noon.Add(time.Hour)
	for h := range 24 {
		g.classifyResult(entry(1, "a"), refusal, noon.Add(time.Duration(h)*time.Hour))
	}
	day := noon.Add(24 * time.Hour)
	if got := g.classifyResult(entry(1, "a"), refusal, day); got != weir.OutcomeRetry {
		t.Errorf("a day after the first refusal: got %s, want retry", got)
	}
	if got := g.classifyResult(later, refusal, day); got != weir.OutcomeUnavailable {
		t.Errorf("one that has waited for 23 hours: got %s, want unavailable", got)
	}
	g.classifyResult(entry(3, "c"), down, day)
	if got := g.classifyResult(entry(1, "a"), refusal, day); got != weir.OutcomeUnavailable {
		t.Errorf("after the CMS was away: got %s, want unavailable", got)
	}
}

func TestBreaker_ClassifyResult_TheDayOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	g, next := newTestBreaker(), newTestBreaker()
	g.classifyResult(entry(1, "a"), refusal, noon)
	var tail lane.Tail
	g.saveTo(&tail)
	tail.LastErrorAt = noon.Add(23 * time.Hour)
	next.adoptTail(tail, noon.Add(23*time.Hour))
	if got := next.classifyResult(entry(1, "a"), refusal, noon.Add(24*time.Hour)); got != weir.OutcomeRetry {
		t.Errorf("another process, a day later: got %s, want retry", got)
	}
}

func TestBreaker_ClassifyResult_TimeInWhichNothingIsSentDoesNotCount(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	g.classifyResult(entry(1, "a"), refusal, noon)
	for i := range 2 {
		at := noon.Add(72*time.Hour + time.Duration(i)*time.Minute)
		if got := g.classifyResult(entry(1, "a"), refusal, at); got != weir.OutcomeUnavailable {
			t.Errorf("try %d after three days of a pause: got %s, want unavailable", i, got)
		}
	}
}

func TestBreaker_ClassifyResult_ProvenOnceRefusedIsCounted(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	g.classifyResult(entry(1, "a"), refusal, noon)
	g.classifyResult(entry(2, "b"), fine, noon)
	for i := range 4 {
		if got := g.classifyResult(entry(1, "a"), refusal, noon); got != weir.OutcomeRetry {
			t.Errorf("try %d after the CMS took another: got %s, want retry", i, got)
		}
	}
	if got := g.classifyResult(entry(3, "c"), refusal, noon); got != weir.OutcomeUnavailable {
		t.Errorf("another one's first: got %s, want unavailable", got)
	}
}

func TestBreaker_ClassifyResult_RefusedPausesTheLaneAfterSome(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	for i := range firstProbes {
		if g.hasProbedEnough() || g.closedUntil().After(noon) {
			t.Fatalf("after %d it is enough", i)
		}
		g.classifyResult(entry(int64(i), fmt.Sprint("k", i)), refusal, noon)
	}
	if !g.hasProbedEnough() {
		t.Fatalf("after %d it is not enough", firstProbes)
	}
	g.beginPause(0, noon, refusedPause)
	for i := range laterProbes {
		if g.hasProbedEnough() {
			t.Fatalf("after a pause, %d are enough", i)
		}
		g.classifyResult(entry(int64(100+i), fmt.Sprint("k", 100+i)), refusal, noon)
	}
	if !g.hasProbedEnough() {
		t.Errorf("after a pause, %d are not enough", laterProbes)
	}
}

func TestBreaker_ClassifyResult_RefusedWithRetryAfterPausesTheLane(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	r := refusal
	r.RetryAfter = 10 * time.Minute
	g.classifyResult(entry(1, "a"), r, noon)
	if got := g.closedUntil().Sub(noon); got != 10*time.Minute || g.probedBelow != 0 {
		t.Errorf("paused for %s (others may go: %v), want 10m for all", got, g.probedBelow != 0)
	}
}

func TestBreaker_ClassifyResult_UnansweredSettles(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	r := flaky
	r.Unanswered = true
	g.classifyResult(entry(1, "a"), r, noon)
	if got := g.closedUntil(); !got.Equal(noon.Add(3 * time.Second)) {
		t.Errorf("opens at %s, want 3s on", got)
	}
}

func TestBreaker_ClassifyResult_AfterAResumePausesBeginAnew(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	for range 20 {
		g.classifyResult(entry(1, "a"), down, noon)
	}
	g.liftPause()
	if !g.closedUntil().IsZero() {
		t.Errorf("opens at %s", g.closedUntil())
	}
	g.classifyResult(entry(1, "a"), down, noon)
	if wait := g.closedUntil().Sub(noon); wait > time.Second {
		t.Errorf("the first pause after it is %s long", wait)
	}
}

func TestBreaker_ClassifyResult_RetryAfterIsHonouredUpToAnHour(t *testing.T) {
	t.Parallel()
	waits := map[time.Duration]time.Duration{10 * time.Minute: 10 * time.Minute, 5 * time.Hour: time.Hour}
	for asked, want := range waits {
		g := newTestBreaker()
		r := down
		r.RetryAfter = asked
		g.classifyResult(entry(1, "a"), r, noon)
		if got := g.closedUntil().Sub(noon); got != want {
			t.Errorf("asked %s: paused for %s, want %s", asked, got, want)
		}
	}
}

func TestBackoff_Ceiling(t *testing.T) {
	t.Parallel()
	b := Backoff{Min: time.Second, Max: 5 * time.Minute, Rand: rand.Float64}
	want := []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}
	for i, w := range want {
		if got := b.longestDelay(i + 1); got != w*time.Second {
			t.Errorf("ceiling(%d) = %s, want %s", i+1, got, w*time.Second)
		}
	}
	for range 1000 {
		if d := b.retryDelay(3, 0); d < 0 || d > 4*time.Second {
			t.Fatalf("retryDelay(3) = %s", d)
		}
		if d := b.pauseDelay(3, 0); d < 2*time.Second || d > 4*time.Second {
			t.Fatalf("pauseDelay(3) = %s", d)
		}
	}
	if d := b.retryDelay(1, 40*time.Second); d != 40*time.Second {
		t.Errorf("Retry-After longer than the backoff: %s", d)
	}
}

func TestBackoff_Steps(t *testing.T) {
	t.Parallel()
	b := Backoff{Steps: []time.Duration{10 * time.Second, time.Minute, 2 * time.Hour}, Rand: rand.Float64}
	for i, want := range []time.Duration{10 * time.Second, time.Minute, 2 * time.Hour, 2 * time.Hour} {
		if got := b.retryDelay(i+1, 0); got != want {
			t.Errorf("retry %d after %s, want %s", i+1, got, want)
		}
	}
	if got := b.retryDelay(1, 5*time.Hour); got != maxDelay {
		t.Errorf("Retry-After of 5 h: %s", got)
	}
	if got := b.pauseDelay(1, 0); got < 5*time.Second || got > 10*time.Second {
		t.Errorf("paused for %s", got)
	}
}
