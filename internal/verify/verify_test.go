package verify_test

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/testkit/lanetest"
	"weir/internal/verify"
	"weir/internal/weir"
)

func TestCompareLane_Whole(t *testing.T) {
	t.Parallel()
	a := newAccount(t)
	if r := a.compareLane(); !r.IsWhole() || r.Accepted != 0 {
		t.Errorf("a new lane: %+v, want it whole with no message", r)
	}

	a.appendMessages(5, 0)
	a.appendMessages(1, 100<<10)
	a.appendScheduled()
	r := a.compareLane()
	if !r.IsWhole() || r.Accepted != 7 || r.Waiting != 7 || r.Stored != 7 || r.InUse {
		t.Errorf("got %+v, want a whole lane with 7 messages that wait", r)
	}
}

// Each case leaves a lane in a state that a row-by-row copy of an account can have.
func TestCompareLane_Differences(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(*account)
		problem string
	}{
		"HeadCopiedFirst": {(*account).restoreHead, "3 messages stand behind the end of the log"},
		"RowLost": {func(a *account) { a.removeRow("m_", 2) },
			"1 messages have no row: sequence 2"},
		"RowOfScheduledLost": {func(a *account) { a.removeRow("m_", 7) },
			"1 messages are queued or scheduled, and do not wait by their rows: sequence 7"},
		"DeliveredAfterTail": {func(a *account) { a.setStage(3, weir.Delivered) },
			"10 messages wait by the counters, and 9 by their rows"},
		"RowDamaged": {func(a *account) {
			a.writeRow(storage.Op{Kind: storage.Insert, Key: "n_junk", Values: map[string]any{}})
		}, "row n_junk of partition 1.0 is damaged: key: it names no event"},
		"DueTimeLost": {func(a *account) { a.removeRow("s_", 7) },
			"1 scheduled messages have no row of their due time, so none is sent: sequence 7"},
		"BodyLost": {(*account).removeBody, "1 waiting messages have no body: sequence 6"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAccount(t)
			a.appendMessages(5, 0)
			a.appendMessages(1, 100<<10)
			a.appendScheduled()
			a.keepHead()
			a.appendMessages(3, 0)
			c.change(a)
			r := a.compareLane()
			found := strings.Join(r.Problems(), "; ")
			if r.IsWhole() || !strings.Contains(found, c.problem) {
				t.Errorf("got %q, want %q in it", found, c.problem)
			}
		})
	}
}

// account is a storage account in memory with one lane.
type account struct {
	t      *testing.T
	lanes  *lanetest.Lanes
	memory *memory.Account
	store  *lane.Store
	head   storage.Row
}

func newAccount(t *testing.T) *account {
	t.Helper()
	l := lanetest.New(t, 1)
	return &account{t: t, lanes: l, memory: l.Account, store: l.Store}
}

func (a *account) compareLane() verify.Report {
	a.t.Helper()
	r, err := verify.CompareLane(a.t.Context(), a.store, 0)
	if err != nil {
		a.t.Fatal(err)
	}
	return r
}

// appendMessages appends messages. The parameter "count" is the number of messages. Each body ends
// with random bytes, which do not compress; the parameter "size" is the number of these bytes.
func (a *account) appendMessages(count, size int) {
	a.t.Helper()
	for range count {
		noise := make([]byte, size)
		_, _ = rand.Read(noise) // never fails
		a.appendMessage(weir.Message{Body: append([]byte("<a/>"), noise...)})
	}
}

func (a *account) appendScheduled() {
	a.t.Helper()
	a.appendMessage(weir.Message{Body: []byte("<a/>"), DueAt: time.Now().Add(time.Hour)})
}

func (a *account) appendMessage(m weir.Message) {
	a.t.Helper()
	a.lanes.Append("/a", string(m.Body), func(to *weir.Message) { to.DueAt = m.DueAt })
}

func (a *account) partitionName() string {
	return strings.TrimPrefix(a.store.LeaseName(0), "lane-")
}

func (a *account) readRow(key string) storage.Row {
	a.t.Helper()
	row, err := a.memory.Table().Get(a.t.Context(), a.partitionName(), key)
	if err != nil {
		a.t.Fatalf("get row %s: %v", key, err)
	}
	return row
}

func (a *account) writeRow(op storage.Op) {
	a.t.Helper()
	if _, err := a.memory.Table().Transact(a.t.Context(), a.partitionName(), []storage.Op{op}); err != nil {
		a.t.Fatal(err)
	}
}

func (a *account) keepHead() { a.head = a.readRow("!head") }

// restoreHead writes back the head that keepHead read, as in a copy whose head is older than its
// messages.
func (a *account) restoreHead() {
	a.writeRow(storage.Op{Kind: storage.Merge, Key: "!head", Values: a.head.Values,
		IfMatch: storage.AnyETag})
}

// removeRow removes the first row of a message whose key has the prefix.
func (a *account) removeRow(prefix string, seq int64) {
	a.t.Helper()
	page, err := a.memory.Table().Range(a.t.Context(),
		storage.Query{Partition: a.partitionName(), From: prefix, To: prefix + "~"})
	if err != nil {
		a.t.Fatal(err)
	}

	for _, r := range page.Rows {
		if strings.HasSuffix(r.Key, lane.OrderPos(seq)) {
			a.writeRow(storage.Op{Kind: storage.Delete, Key: r.Key, IfMatch: storage.AnyETag})
		}
	}
}

func (a *account) setStage(seq int64, stage weir.Stage) {
	a.writeRow(storage.Op{Kind: storage.Merge, Key: "m_" + lane.OrderPos(seq),
		Values:  map[string]any{"Stage": string(stage)},
		IfMatch: storage.AnyETag})
}

// removeBody removes the only body that is a blob.
func (a *account) removeBody() {
	a.t.Helper()
	page, err := a.memory.Blobs().List(a.t.Context(), "", "")
	if err != nil || len(page.Infos) != 1 {
		a.t.Fatalf("%d blobs (%v), want one", len(page.Infos), err)
	}

	for _, info := range page.Infos {
		if err := a.memory.Blobs().Delete(a.t.Context(), info.Name); err != nil {
			a.t.Fatal(err)
		}
	}
}
