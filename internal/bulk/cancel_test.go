package bulk_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/bulk"
	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/lane/lists"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const lanes = 3

// withDueTime makes a message due in one hour.
func withDueTime(m *weir.Message) { m.DueAt = time.Now().Add(time.Hour) }

// appendMessages appends three scheduled and two queued messages, and returns their ids by name.
// The last message of each kind is appended a minute after the others.
func appendMessages(l *lanetest.Lanes) map[string]weir.ID {
	note := func(m *weir.Message) { m.Contract = "note" }
	ids := map[string]weir.ID{
		"scheduled a1": l.Append("/a/1", "x", withDueTime),
		"scheduled a2": l.Append("/a/2", "x", withDueTime),
		"queued a1":    l.Append("/a/1", "x"),
	}

	time.Sleep(time.Minute)
	ids["scheduled note"] = l.Append("/b/1", "x", withDueTime, note)
	ids["queued b2"] = l.Append("/b/2", "x")

	return ids
}

// CancelWaiting cancels scheduled messages itself. A queued message may be in flight, so
// CancelWaiting only asks the lane's holder to cancel that message.
func TestCanceller_Filter(t *testing.T) {
	laneOfKey := lane.Of("/a/2", lanes)
	for name, c := range map[string]struct {
		filter           func(bulk.Selection, time.Time) bulk.Selection
		cancelled, asked int64
	}{
		"All": {func(f bulk.Selection, _ time.Time) bulk.Selection { return f }, 3, 2},
		"Key": {func(f bulk.Selection, _ time.Time) bulk.Selection { f.Key = "/a/1"; return f }, 1,
			1},
		"KeyPrefix": {func(f bulk.Selection, _ time.Time) bulk.Selection { f.KeyPrefix = "/a/"; return f },
			2, 1},
		"Contract": {func(f bulk.Selection, _ time.Time) bulk.Selection { f.Contract = "note"; return f },
			1, 0},
		"Stage": {func(f bulk.Selection, _ time.Time) bulk.Selection { f.Stage = weir.Queued; return f },
			0, 2},
		"From": {func(f bulk.Selection, later time.Time) bulk.Selection { f.From = later; return f }, 1, 1},
		"To": {func(f bulk.Selection, later time.Time) bulk.Selection { f.To = later; return f },
			2, 1},
		"KeyOfAnotherLane": {func(f bulk.Selection, _ time.Time) bulk.Selection {
			other := (laneOfKey + 1) % lanes
			f.Key, f.Lane = "/a/2", &other
			return f
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			lanetest.Simulate(t, func(t *testing.T) {
				l := lanetest.New(t, lanes)
				later := time.Now().Add(time.Minute)
				ids := appendMessages(l)
				filter := c.filter(bulk.Selection{}, later)
				cancel := bulk.Changer{Store: l.Store}.CancelWaiting
				for _, dryRun := range []bool{true, false} {
					counts, _, done, err := cancel(t.Context(), filter, bulk.Position{},
						1000, dryRun)
					if err != nil || !done || counts.Selected != c.cancelled+c.asked {
						t.Errorf("dry run %t: got %+v, done %t, %v, want %d selected", dryRun,
							counts, done, err, c.cancelled+c.asked)
					}

					want := lane.BulkCounts{Cancelled: c.cancelled, Asked: c.asked}
					if dryRun {
						want = lane.BulkCounts{}
					}

					if counts.BulkCounts != want {
						t.Errorf("dry run %t: got %+v, want %+v", dryRun, counts.BulkCounts, want)
					}
				}

				if got := countCancelled(l, ids); got != c.cancelled {
					t.Errorf("got %d cancelled messages, want %d", got, c.cancelled)
				}
			})
		})
	}
}

func countCancelled(l *lanetest.Lanes, ids map[string]weir.ID) (n int64) {
	for _, id := range ids {
		if l.Status(id).Stage == weir.Cancelled {
			n++
		}
	}
	return n
}

// With a limit of 1, each call ends after the first page that has messages. All calls together must
// count each message exactly once.
func TestCanceller_Continues(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		l := lanetest.New(t, lanes)
		const n = 700 // more than one page, which has at most 500 messages
		for range n {
			l.Append("/a", "x", withDueTime)
		}

		for i := range 5 {
			l.Append(fmt.Sprint("/b/", i), "x")
		}

		cancel := bulk.Changer{Store: l.Store}.CancelWaiting
		var total bulk.Counts
		var at bulk.Position
		calls := 0
		for done := false; !done; calls++ {
			var counts bulk.Counts
			var err error
			if counts, at, done, err = cancel(t.Context(), bulk.Selection{}, at, 1, false); err !=
				nil {
				t.Fatal(err)
			}

			if !at.IsValid() {
				t.Errorf("got the position %+v, want a valid one", at)
			}

			total.Selected += counts.Selected
			total.Cancelled += counts.Cancelled
			total.Asked += counts.Asked
			if !slices.IsSorted(counts.Lanes) {
				t.Errorf("got the lanes %v, want them in rising order", counts.Lanes)
			}
		}

		if total.Selected != n+5 || total.Cancelled != n || total.Asked != 5 || calls < 3 {
			t.Errorf("got %+v in %d calls, want %d cancelled and 5 requested, in at least 3 calls",
				total, calls, n)
		}
	})
}

// If storage fails, the call returns the position of the failed page, so that the caller can read
// the page again.
func TestCanceller_StorageFails(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		l, faults := lanetest.New(t, lanes), storagetest.NewFaults()
		ids := appendMessages(l)
		faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Op == "Range" {
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}
			return storagetest.Fault{}
		})

		cancel := bulk.Changer{Store: l.FaultyStore(faults)}.CancelWaiting
		_, at, done, err := cancel(t.Context(), bulk.Selection{}, bulk.Position{}, 1000, false)
		if weir.KindOf(err) != weir.Unavailable || done || at != (bulk.Position{}) {
			t.Errorf("got position %+v, done %t, %v, want Unavailable at the beginning",
				at, done, err)
		}

		faults.Set(nil)

		if counts, _, done, err := cancel(t.Context(), bulk.Selection{}, at, 1000, false); err !=
			nil || !done ||
			counts.Selected != int64(len(ids)) {
			t.Errorf("got %+v, done %t, %v, want all %d messages selected", counts, done,
				err, len(ids))
		}
	})
}

func TestCanceller_EndedContext(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		l := lanetest.New(t, lanes)
		ids := appendMessages(l)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		counts, at, done, err := bulk.Changer{Store: l.Store}.CancelWaiting(ctx, bulk.Selection{},
			bulk.Position{}, 1000, false)
		if err != nil || done || counts.Selected != 0 || at != (bulk.Position{}) ||
			countCancelled(l, ids) != 0 {
			t.Errorf("got %+v at %+v, done %t, %v, want no message cancelled", counts,
				at, done, err)
		}
	})
}

func TestPosition_IsValid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		position bulk.Position
		want     bool
	}{
		"Beginning": {bulk.Position{}, true},
		"ScheduledRow": {bulk.Position{Lane: 2,
			WaitingPlace: lists.WaitingPlace{After: "s_1"}}, true},
		"RowOfAnotherPart": {bulk.Position{WaitingPlace: lists.WaitingPlace{After: "!head"}},
			false},
		"NegativeLane":      {bulk.Position{Lane: -1}, false},
		"PartThatIsUnknown": {bulk.Position{WaitingPlace: lists.WaitingPlace{Part: 3}}, false},
	} {
		if got := c.position.IsValid(); got != c.want {
			t.Errorf("%s: got %t for %+v, want %t", name, got, c.position, c.want)
		}
	}
}

// After a change of the number of lanes, a position is in lanes that are closed. The next step must
// not go on there.
func TestCanceller_RefusesAPositionOfAnotherEpoch(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		l := lanetest.New(t, lanes)
		appendMessages(l)
		_, at, done, err := bulk.Changer{Store: l.Store}.CancelWaiting(t.Context(),
			bulk.Selection{}, bulk.Position{}, 1, true)
		if err != nil || done || at.Epoch != l.Store.Epoch {
			t.Fatalf("got %+v, done %t, %v, want a position in epoch %d", at, done, err,
				l.Store.Epoch)
		}

		next := l.Store.ForEpoch(epochs.Epoch{Number: l.Store.Epoch + 1, Lanes: 1})
		counts, _, done, err := bulk.Changer{Store: next}.CancelWaiting(t.Context(),
			bulk.Selection{}, at, 1, true)
		if weir.KindOf(err) != weir.Malformed ||
			!strings.Contains(err.Error(), "begin anew") || done {
			t.Errorf("got %+v, done %t, %v, want the error that begins anew", counts, done, err)
		}
	})
}
