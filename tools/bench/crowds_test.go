package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/democms"
	"weir/internal/lane"
)

func TestReadDelays(t *testing.T) {
	t.Parallel()
	got, err := readDelays("0s, 10ms")
	if err != nil || !slices.Equal(got, []time.Duration{0, 10 * time.Millisecond}) {
		t.Errorf("got %v, %v, want 0s and 10ms", got, err)
	}

	for _, wrong := range []string{"", "10", "-1ms", "1ms,,2ms"} {
		if got, err := readDelays(wrong); err == nil ||
			!strings.Contains(err.Error(), "want a duration") {
			t.Errorf("%q: got %v, %v, want an error", wrong, got, err)
		}
	}
}

func TestResult_WithDelay(t *testing.T) {
	t.Parallel()
	if r := newRow("a", "s", 1).withDelay(0); r.Name != "a" || r.Delay != 0 {
		t.Errorf("no delay: got %+v, want Name a and Delay 0", r)
	}

	if r := newRow("a", "s", 1).withDelay(10 * time.Millisecond); r.Name != "a, storage at 10ms" ||
		r.Delay != 10 {
		t.Errorf("10 ms: got %+v, want Name \"a, storage at 10ms\" and Delay 10", r)
	}
}

func TestPathsByLane(t *testing.T) {
	t.Parallel()
	paths := pathsByLane("p", 3, 4)
	if len(paths) != 12 {
		t.Fatalf("got %d paths, want 12", len(paths))
	}

	for i, path := range paths {
		if got := lane.Of(path, 3); got != i/4 {
			t.Errorf("path %d, %s, is in lane %d, want %d", i, path, got, i/4)
		}
	}
}

// requestsAt returns requests of one second each. They begin the given numbers of seconds after
// "from".
func requestsAt(from time.Time, seconds ...int) []democms.Request {
	var all []democms.Request
	for _, s := range seconds {
		at := from.Add(time.Duration(s) * time.Second)
		all = append(all, democms.Request{StartedAt: at, EndedAt: at.Add(time.Second)})
	}
	return all
}

func TestLongestStandstill(t *testing.T) {
	t.Parallel()
	from := time.Now()
	for name, c := range map[string]struct {
		begun []int
		want  time.Duration
	}{
		"Between":        {[]int{7, 1, 3}, 4 * time.Second},
		"AtTheStart":     {[]int{6, 8}, 6 * time.Second},
		"AtTheEnd":       {[]int{1, 2}, 8 * time.Second},
		"NoRequest":      {nil, 10 * time.Second},
		"OutsideTheSpan": {[]int{-5, 5, 20}, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := longestStandstill(requestsAt(from, c.begun...), from, from.Add(10*time.Second)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestBusyWriters(t *testing.T) {
	t.Parallel()
	if got := busyWriters(requestsAt(time.Now(), 3, 0, 0, 1)); got != 1 {
		t.Errorf("got %g writers, want 1: four requests of a second each within four seconds", got)
	}

	if got := busyWriters(requestsAt(time.Now(), 0, 0, 0)); got != 3 {
		t.Errorf("got %g writers, want 3", got)
	}
}

func TestFartherSizes(t *testing.T) {
	t.Parallel()
	if got := tiny.fartherSizes(); got.trickle.messages != tiny.trickle.messages ||
		got.backlog.long != tiny.backlog.long || got.recipe != tiny.recipe {
		t.Errorf("tiny sizes changed: %+v, want trickle.messages %v, backlog.long %v and recipe %v",
			got, tiny.trickle.messages, tiny.backlog.long, tiny.recipe)
	}

	if got := fullSizes.fartherSizes(); got.idle.minutes != 1 ||
		got.backlog.long >= fullSizes.backlog.long ||
		got.load.burst != fullSizes.load.burst {
		t.Errorf("got %+v, want one idle minute, a shorter long backlog and the same burst", got)
	}
}

func TestRunPasses(t *testing.T) {
	t.Parallel()
	ran := map[string]int{}
	counting := func(name string, w passRule) scenario {
		return scenario{name, "", func(context.Context, *bench) ([]result, error) {
			ran[name]++
			return []result{newRow(name, "", 1)}, nil
		}, w}
	}

	b := &bench{out: io.Discard, openStorage: shareStorage(nil)}
	if err := b.runPasses(t.Context(),
		[]scenario{counting("each", inEachPass), counting("once", inLastPass)},
		[]time.Duration{0, 0}); err != nil {
		t.Fatal(err)
	}

	if ran["each"] != 2 || ran["once"] != 1 || len(b.results) != 3 {
		t.Errorf("ran %v with %d rows, want each twice, once once, 3 rows", ran, len(b.results))
	}
}
