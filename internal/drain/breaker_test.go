package drain

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"weir/internal/fold"
	"weir/internal/lane"
	"weir/internal/weir"
)

var noon = time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)

func newTestBreaker() *breaker {
	return newBreaker(Backoff{Min: time.Second, Max: time.Minute, Rand: rand.Float64},
		3*time.Second, 0)
}

func newEntry(seq int64, key string) *lane.Entry {
	return (&lane.Store{}).NewEntry(weir.Message{ID: weir.ID{Epoch: 1, Seq: seq}, Key: key})
}

func newResult(o weir.Outcome, status int) weir.Result {
	return weir.Result{Outcome: o, Status: status, Reason: fmt.Sprint(status)}
}

// These are results of attempts, one for each kind of answer.
var (
	down    = newResult(weir.OutcomeUnavailable, 503)
	flaky   = newResult(weir.OutcomeRetry, 500)
	refusal = weir.Result{Outcome: weir.OutcomeUnavailable, Status: 403, Reason: "403",
		Refused: true}
	fine = newResult(weir.OutcomeDelivered, 200)
)

func TestBreaker_ClassifyResult_UnavailableCountsForNoMessage(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	for i := range 20 {
		if got := g.classifyResult(newEntry(int64(i%2), string(rune('a'+i%2))), down, noon); got !=
			weir.OutcomeUnavailable {
			t.Fatalf("got %s, want unavailable", got)
		}
	}

	if wait := g.closedUntil().Sub(noon); wait < 30*time.Second || wait > time.Minute {
		t.Errorf("pause after 20 in a row: %s, want it grown to 30s..1m", wait)
	}
}

// A key that alone finds the CMS away does not close the lane for other keys. A second key, or a
// Retry-After, does.
func TestBreaker_ClassifyResult_OneKeyAwayClosesNoLane(t *testing.T) {
	t.Parallel()
	asked := down
	asked.RetryAfter = time.Minute
	for name, c := range map[string]struct {
		results []weir.Result
		closes  bool
	}{
		"OneKey": {[]weir.Result{down}, false}, "TwoKeys": {[]weir.Result{down, down}, true},
		"RetryAfter": {[]weir.Result{asked}, true},
	} {
		g := newTestBreaker()
		for i, r := range c.results {
			g.classifyResult(newEntry(int64(i), string(rune('a'+i))), r, noon)
		}

		if got := g.closedUntil().After(noon); got != c.closes {
			t.Errorf("%s: the lane is closed: %v, want %v", name, got, c.closes)
		}
	}
}

func TestBreaker_ClassifyResult_CountsAfterADeliveryOfAnotherMessage(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	g.classifyResult(newEntry(1, "a"), down, noon)
	g.classifyResult(newEntry(2, "b"), fine, noon)
	if got := g.classifyResult(newEntry(1, "a"), down, noon); got != weir.OutcomeRetry {
		t.Errorf("second time, after a delivery in between: got %s, want retry", got)
	}

	if got := g.classifyResult(newEntry(1, "a"), down, noon); got != weir.OutcomeUnavailable {
		t.Errorf("third time, with no delivery since: got %s, want unavailable", got)
	}
}

func TestBreaker_ClassifyResult_RetriesOfManyKeysMeanUnavailable(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	var got []weir.Outcome
	for i := range 6 {
		got = append(got, g.classifyResult(newEntry(int64(i), string(rune('a'+i%3))), flaky, noon))
	}

	want := []weir.Outcome{"retry", "retry", "retry", "retry", "unavailable", "unavailable"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}

	g.classifyResult(newEntry(9, "z"), fine, noon)
	if o := g.classifyResult(newEntry(7, "b"), flaky, noon); o != weir.OutcomeRetry {
		t.Errorf("after a delivery: got %s, want retry", o)
	}
}

func TestBreaker_ClassifyResult_RetriesOfTwoKeysStayRetries(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	for i := range 20 {
		if o := g.classifyResult(newEntry(int64(i), string(rune('a'+i%2))), flaky, noon); o !=
			weir.OutcomeRetry {
			t.Fatalf("try %d: %s, want retry", i, o)
		}
	}
}

// The spellings of a folded key are one key: their failures alone do not show that the CMS is the
// cause.
func TestBreaker_ClassifyResult_SpellingsAreOneKey(t *testing.T) {
	t.Parallel()
	store := &lane.Store{Fold: fold.All}
	spelling := func(seq int64, key string) *lane.Entry {
		return store.NewEntry(weir.Message{ID: weir.ID{Seq: seq}, Key: key, Skip: true})
	}
	failures, away := newTestBreaker(), newTestBreaker()
	failures.suspectKeys = 2 // a quiet lane in which another key waits
	for i, key := range []string{"cafe", "Café", "CAFE", "cafe\u0301", "CaFe", "CAFÉ"} {
		if got := failures.classifyResult(spelling(int64(i), key), flaky, noon); got !=
			weir.OutcomeRetry {
			t.Errorf("failure of %q: got %s, want retry", key, got)
		}

		away.classifyResult(spelling(int64(i), key),
			weir.Result{Outcome: weir.OutcomeUnavailable}, noon)
		if pause := away.closedUntil().Sub(noon); pause > 0 {
			t.Errorf("away for %q: got a pause of %s for all keys, want none", key, pause)
		}
	}

	failures.forgetMessage(spelling(9, "CAFE"))
	if got := len(failures.streakKeys); got != 0 {
		t.Errorf("after a cancellation: got %d keys that fail, want none", got)
	}
}

// In an outage each waiting key fails. The breaker needs to know a few of them only.
func TestBreaker_ClassifyResult_KnowsFewFailedKeys(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	for i := range int64(1000) {
		g.classifyResult(newEntry(2*i, fmt.Sprint("k", i)), flaky, noon)
		g.classifyResult(newEntry(2*i+1, fmt.Sprint("k", i)),
			weir.Result{Outcome: weir.OutcomeUnavailable}, noon)
	}

	if len(g.streakKeys) > maxSetKeys || len(g.awayKeys) > maxSetKeys {
		t.Errorf("got %d keys that failed and %d that were away, want %d at most",
			len(g.streakKeys), len(g.awayKeys), maxSetKeys)
	}
}

func TestTrackedKeys_AreBounded(t *testing.T) {
	t.Parallel()
	tracked := trackedKeys{keys: map[string]bool{}}
	for i := range lane.MaxDeadKeys + 1 {
		if tracked.isFull {
			t.Fatalf("got full with %d keys, want %d", i, lane.MaxDeadKeys+1)
		}
		tracked.addKey(fmt.Sprint(i))
	}

	if tracked.addKey("one more"); !tracked.isFull || tracked.keys != nil ||
		!tracked.hasKey("any") {
		t.Errorf("got %d keys and full %v, want no keys, and each key tracked", len(tracked.keys),
			tracked.isFull)
	}
}

func TestBreaker_ClassifyResult_ForgetsFailuresBeforeAnotherHoldersDeliveries(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	g.adoptTail(lane.Tail{Counts: lane.Counts{Delivered: 7}}, time.Now())
	for i := range 4 {
		g.classifyResult(newEntry(int64(i), fmt.Sprint("k", i)), flaky, noon)
	}

	g.recordDelivered(lane.Tail{Counts: lane.Counts{Delivered: 7}})
	g.adoptTail(lane.Tail{Counts: lane.Counts{Delivered: 7}}, time.Now())
	if got := g.classifyResult(newEntry(9, "z"), flaky, noon); got != weir.OutcomeUnavailable {
		t.Fatalf("the fifth failure in a row: got %s, want unavailable", got)
	}

	g.recordDelivered(lane.Tail{Counts: lane.Counts{Delivered: 7}})
	g.adoptTail(lane.Tail{Counts: lane.Counts{Delivered: 9}}, time.Now())

	for range 2 {
		if got := g.classifyResult(newEntry(9, "z"), flaky, noon); got != weir.OutcomeRetry {
			t.Errorf("after another holder's deliveries: %s, want retry", got)
		}
	}
}

func TestBreaker_ClassifyResult_ForgetsFailuresOfACancelledMessage(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	for i := range 3 {
		for range 2 {
			g.classifyResult(newEntry(int64(i), fmt.Sprint("k", i)), flaky, noon)
		}
	}

	g.forgetMessage(newEntry(0, "k0"))
	if got := g.classifyResult(newEntry(1, "k1"), flaky, noon); got != weir.OutcomeRetry {
		t.Errorf("with failures of two keys left: got %s, want retry", got)
	}
}

func TestBreaker_ClassifyResult_ARequestThatCannotBeBuiltIsNoVerdict(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	g.classifyResult(newEntry(1, "a"), down, noon)
	g.classifyResult(newEntry(2, "b"), newResult(weir.OutcomeRejected, 0), noon)
	if got := g.classifyResult(newEntry(1, "a"), down, noon); got != weir.OutcomeUnavailable {
		t.Errorf("got %s, want unavailable", got)
	}
}

func TestBreaker_ClassifyResult_RefusalsDoNotCountBeforeADelivery(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	for i := range 40 {
		at := noon.Add(time.Duration(i) * 35 * time.Minute)
		if got := g.classifyResult(newEntry(int64(i%3), fmt.Sprint("k", i%3)), refusal,
			at); got != weir.OutcomeUnavailable {
			t.Fatalf("try %d, %s after the first: got %s, want unavailable", i, at.Sub(noon), got)
		}
	}
}

func TestBreaker_ClassifyResult_RefusalsCountAfterADay(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	later := newEntry(2, "b")
	later.Message.AcceptedAt = noon.Add(time.Hour)
	for h := range 24 {
		g.classifyResult(newEntry(1, "a"), refusal, noon.Add(time.Duration(h)*time.Hour))
	}

	day := noon.Add(24 * time.Hour)
	if got := g.classifyResult(newEntry(1, "a"), refusal, day); got != weir.OutcomeRetry {
		t.Errorf("a day after the first refusal: got %s, want retry", got)
	}

	if got := g.classifyResult(later, refusal, day); got != weir.OutcomeUnavailable {
		t.Errorf("one that has waited for 23 hours: got %s, want unavailable", got)
	}

	g.classifyResult(newEntry(3, "c"), down, day)
	g.classifyResult(newEntry(4, "d"), down, day)
	if got := g.classifyResult(newEntry(1, "a"), refusal, day); got != weir.OutcomeUnavailable {
		t.Errorf("after the CMS was away: got %s, want unavailable", got)
	}
}

func TestBreaker_ClassifyResult_TheDayOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	g, next := newTestBreaker(), newTestBreaker()
	g.classifyResult(newEntry(1, "a"), refusal, noon)
	var tail lane.Tail
	g.saveTo(&tail)
	tail.LastErrorAt = noon.Add(23 * time.Hour)
	next.adoptTail(tail, noon.Add(23*time.Hour))

	if got := next.classifyResult(newEntry(1, "a"), refusal, noon.Add(24*time.Hour)); got !=
		weir.OutcomeRetry {
		t.Errorf("another process, a day later: got %s, want retry", got)
	}
}

// In the pause between two rounds (ProbedBelow is set), untried messages may be sent. In a pause
// because the CMS is away, none may be sent. Deliveries by another process make no difference.
func TestBreaker_AdoptTail_APauseForRefusedMessages(t *testing.T) {
	t.Parallel()
	until := noon.Add(time.Minute)
	for name, c := range map[string]struct {
		probedBelow, deliveredBefore int64
		isForRefused                 bool
	}{
		"ForRefused":             {9, 7, true},
		"OthersDeliveredSince":   {9, 3, true},
		"ForAll":                 {0, 7, false},
		"ForAllDeliveredBetween": {0, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newTestBreaker()
			g.recordDelivered(lane.Tail{Counts: lane.Counts{Delivered: c.deliveredBefore}})
			g.adoptTail(lane.Tail{CMSPause: lane.CMSPause{PausedUntil: until, ProbedBelow: c.probedBelow},
				Counts: lane.Counts{Delivered: 7}}, noon)
			g.letUntriedPass(noon)
			want := until
			if c.isForRefused {
				want = time.Time{}
			}

			if got := g.closedUntil(); g.isResting(noon) != c.isForRefused || !got.Equal(want) {
				t.Errorf("resting %t, closed until %v; want %t, %v", g.isResting(noon), got,
					c.isForRefused, want)
			}

			var tail lane.Tail
			if g.saveTo(&tail); !tail.PausedUntil.Equal(until) || g.isResting(until) {
				t.Errorf("the pause in tail ends at %v, resting then: %t; want %v, false",
					tail.PausedUntil, g.isResting(until), until)
			}
		})
	}
}

// A message that is refused in the pause between two rounds does not prolong the pause.
func TestBreaker_PauseRound_IsNotProlonged(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	until := noon.Add(time.Minute)
	g.adoptTail(lane.Tail{CMSPause: lane.CMSPause{PausedUntil: until, ProbedBelow: 9,
		RefusingSince: noon.Add(-time.Minute)}}, noon)
	g.letUntriedPass(noon)
	g.classifyResult(newEntry(9, "z"), refusal, noon)

	if g.endRound(noon) || !g.closedUntil().Equal(until) || g.probes != 0 {
		t.Errorf("closed until %v, %d refusals count for the next pause; want %v, 0",
			g.closedUntil(), g.probes, until)
	}

	if !g.endRound(until) || len(g.probedKeys) > 0 {
		t.Errorf("at its end: %d keys had their turn, want a new round", len(g.probedKeys))
	}
}

func TestBreaker_ClassifyResult_PausedTimeDoesNotCount(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	g.classifyResult(newEntry(1, "a"), refusal, noon)

	for i := range 2 {
		at := noon.Add(72*time.Hour + time.Duration(i)*time.Minute)
		if got := g.classifyResult(newEntry(1, "a"), refusal, at); got != weir.OutcomeUnavailable {
			t.Errorf("try %d after three days of a pause: got %s, want unavailable", i, got)
		}
	}
}

func TestBreaker_ClassifyResult_RefusalsCountAfterADelivery(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	g.classifyResult(newEntry(1, "a"), refusal, noon)
	g.classifyResult(newEntry(2, "b"), fine, noon)

	for i := range 4 {
		if got := g.classifyResult(newEntry(1, "a"), refusal, noon); got != weir.OutcomeRetry {
			t.Errorf("try %d after the CMS took another: got %s, want retry", i, got)
		}
	}

	if got := g.classifyResult(newEntry(3, "c"), refusal, noon); got != weir.OutcomeUnavailable {
		t.Errorf("another one's first: got %s, want unavailable", got)
	}
}

func TestBreaker_ClassifyResult_RefusedPausesTheLaneAfterSome(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	for i := range firstProbes {
		if g.hasProbedEnough() || g.closedUntil().After(noon) {
			t.Fatalf("%d refusals are enough for a pause, want %d", i, firstProbes)
		}
		g.classifyResult(newEntry(int64(i), fmt.Sprint("k", i)), refusal, noon)
	}

	if !g.hasProbedEnough() {
		t.Fatalf("%d refusals are not enough for a pause, want a pause", firstProbes)
	}

	g.beginPause(0, noon, refusedPause)

	for i := range laterProbes {
		if g.hasProbedEnough() {
			t.Fatalf("after a pause, %d refusals are enough for the next one, want %d", i,
				laterProbes)
		}
		g.classifyResult(newEntry(int64(100+i), fmt.Sprint("k", 100+i)), refusal, noon)
	}

	if !g.hasProbedEnough() {
		t.Errorf("after a pause, %d refusals are not enough for the next one, want a pause",
			laterProbes)
	}
}

func TestBreaker_ClassifyResult_RefusedWithRetryAfterPausesTheLane(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	r := refusal
	r.RetryAfter = 10 * time.Minute
	g.classifyResult(newEntry(1, "a"), r, noon)
	if got := g.closedUntil().Sub(noon); got != 10*time.Minute || g.probedBelow != 0 {
		t.Errorf("paused for %s (others may go: %v), want 10m for all", got, g.probedBelow != 0)
	}
}

func TestBreaker_ClassifyResult_UnansweredSettles(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	r := flaky
	r.Unanswered = true
	g.classifyResult(newEntry(1, "a"), r, noon)
	if got := g.closedUntil(); !got.Equal(noon.Add(3 * time.Second)) {
		t.Errorf("opens at %s, want 3s on", got)
	}
}

func TestBreaker_ClassifyResult_AfterAResumePausesBeginAnew(t *testing.T) {
	t.Parallel()
	g := newTestBreaker()
	for range 20 {
		g.classifyResult(newEntry(1, "a"), down, noon)
	}

	g.liftPause()
	if !g.closedUntil().IsZero() {
		t.Errorf("opens at %s, want the zero time", g.closedUntil())
	}

	g.classifyResult(newEntry(1, "a"), down, noon)
	if wait := g.closedUntil().Sub(noon); wait > time.Second {
		t.Errorf("the first pause after the resume is %s long, want at most 1s", wait)
	}
}

func TestBreaker_ClassifyResult_RetryAfterIsHonouredUpToAnHour(t *testing.T) {
	t.Parallel()
	waits := map[time.Duration]time.Duration{10 * time.Minute: 10 * time.Minute,
		5 * time.Hour: time.Hour}
	for asked, want := range waits {
		g := newTestBreaker()
		r := down
		r.RetryAfter = asked
		g.classifyResult(newEntry(1, "a"), r, noon)
		if got := g.closedUntil().Sub(noon); got != want {
			t.Errorf("asked %s: paused for %s, want %s", asked, got, want)
		}
	}
}

func TestBackoff_MinAndMax(t *testing.T) {
	t.Parallel()
	b := Backoff{Min: time.Second, Max: 5 * time.Minute, Rand: rand.Float64}
	want := []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}
	for i, w := range want {
		if got := b.longestDelay(i + 1); got != w*time.Second {
			t.Errorf("longestDelay(%d) = %s, want %s", i+1, got, w*time.Second)
		}
	}

	for range 1000 {
		if d := b.retryDelay(3, 0); d < 0 || d > 4*time.Second {
			t.Fatalf("retryDelay(3) = %s, want 0 to 4s", d)
		}
		if d := b.pauseDelay(3, 0); d < 2*time.Second || d > 4*time.Second {
			t.Fatalf("pauseDelay(3) = %s, want 2s to 4s", d)
		}
	}

	if d := b.retryDelay(1, 40*time.Second); d != 40*time.Second {
		t.Errorf("retryDelay(1) with a Retry-After of 40s = %s, want 40s", d)
	}
}

func TestBackoff_Steps(t *testing.T) {
	t.Parallel()
	b := Backoff{Steps: []time.Duration{10 * time.Second, time.Minute, 2 * time.Hour},
		Rand: rand.Float64}

	for i, want := range []time.Duration{10 * time.Second, time.Minute, 2 * time.Hour,
		2 * time.Hour} {
		if got := b.retryDelay(i+1, 0); got != want {
			t.Errorf("retry %d after %s, want %s", i+1, got, want)
		}
	}

	if got := b.retryDelay(1, 5*time.Hour); got != maxDelay {
		t.Errorf("Retry-After of 5 h: %s, want %v", got, maxDelay)
	}

	if got := b.pauseDelay(1, 0); got < 5*time.Second || got > 10*time.Second {
		t.Errorf("paused for %s, want 5s to 10s", got)
	}
}
