package storagetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/storage"
)

// Queue is the suite for storage.Queue and storage.QueueLength.
func Queue(t *testing.T, h QueueHarness) {
	t.Helper()

	// These three tests move the clock that all tests share. So they run one by one before the
	// other tests.
	t.Run("Time/PutDelayed", func(t *testing.T) { putDelayed(t, h.Open(t), h.Advance) })
	t.Run("Time/TakenAgain", func(t *testing.T) { takenAgain(t, h.Open(t), h.Advance) })
	t.Run("Time/PutBack", func(t *testing.T) { putBack(t, h.Open(t), h.Advance) })
	runEach(t, h.Open, map[string]func(*testing.T, QueuePort){
		"Get/Message":      getMessage,
		"Get/Several":      getSeveral,
		"Get/Hidden":       getHidden,
		"Get/OneTaker":     getOneTaker,
		"Put/Texts":        putTexts,
		"Put/TooLarge":     putTooLarge,
		"Put/LongestDelay": putLongestDelay,
		"Update/Receipts":  updateReceipts,
		"Delete/NotFound":  deleteNotFound,
		"Get/Refused":      getRefused,
		"ContextEnded":     queueContextEnded,
	})
}

func putDelayed(t *testing.T, q QueuePort, advance func(time.Duration)) {
	requireNoError(t, q.Put(t.Context(), "late", 1001*time.Millisecond)) // rounded up to 2 s
	requireNoError(t, q.Put(t.Context(), "now", 0))
	if got := takeMessages(t, q, 32); len(got) != 1 || got[0].Text != "now" {
		t.Fatalf("at once: %+v, want one and Text now", got)
	}

	advance(1200 * time.Millisecond)
	if got := takeMessages(t, q, 32); len(got) != 0 {
		t.Errorf("before the delay was over: %+v, want none", got)
	}

	advance(800*time.Millisecond + spare)

	if got := takeMessages(t, q, 32); len(got) != 1 || got[0].Text != "late" ||
		got[0].DequeueCount != 1 {
		t.Errorf("after the delay: %+v, want one, Text late and DequeueCount 1", got)
	}
}

// takenAgain checks that a dequeued message becomes visible again if it is not deleted in time. The
// second dequeue must invalidate the first pop receipt.
func takenAgain(t *testing.T, q QueuePort, advance func(time.Duration)) {
	ctx := t.Context()
	requireNoError(t, q.Put(ctx, "lane 1", 0))
	first, err := q.Get(ctx, 1, 2*time.Second)
	requireNoError(t, err)
	if got := takeMessages(t, q, 1); len(first) != 1 || len(got) != 0 {
		t.Fatalf("first %+v, while hidden %+v, want one, and none while hidden", first, got)
	}

	advance(2*time.Second + spare)
	second := takeMessages(t, q, 1)
	if len(second) != 1 || second[0].DequeueCount != 2 || second[0].ID != first[0].ID ||
		second[0].PopReceipt == first[0].PopReceipt {
		t.Fatalf("second %+v, first %+v, want one, DequeueCount 2, ID %v and PopReceipt another than %v", second,
			first, first[0].ID, first[0].PopReceipt)
	}

	if !second[0].InsertedAt.Equal(first[0].InsertedAt) {
		t.Errorf("inserted at %v, then at %v, want %v", first[0].InsertedAt, second[0].InsertedAt,
			first[0].InsertedAt)
	}

	wantKind(t, "delete with the first receipt", q.Delete(ctx, first[0]), storage.NotFound)
	_, err = q.Update(ctx, first[0], "mine", time.Minute)
	wantKind(t, "update with the first receipt", err, storage.NotFound)
	requireNoError(t, q.Delete(ctx, second[0]))
	wantLength(t, q, 0)
}

// putBack checks that Update changes the time at which a message becomes visible, and keeps the
// dequeue count.
func putBack(t *testing.T, q QueuePort, advance func(time.Duration)) {
	ctx := t.Context()
	requireNoError(t, q.Put(ctx, "before", 0))
	got := takeMessages(t, q, 1)
	if len(got) != 1 {
		t.Fatalf("got %+v, want one", got)
	}

	receipt, err := q.Update(ctx, got[0], "after", 2*time.Second)
	requireNoError(t, err)
	if receipt == "" || receipt == got[0].PopReceipt {
		t.Errorf("receipt %q after %q, want another receipt", receipt, got[0].PopReceipt)
	}

	if again := takeMessages(t, q, 1); len(again) != 0 {
		t.Errorf("while hidden: %+v, want none", again)
	}

	advance(2*time.Second + spare)

	if again := takeMessages(t, q, 1); len(again) != 1 || again[0].Text != "after" ||
		again[0].DequeueCount != 2 {
		t.Errorf("after the time: %+v, want one, Text after and DequeueCount 2", again)
	}
}

func getMessage(t *testing.T, q QueuePort) {
	if got := takeMessages(t, q, 32); len(got) != 0 {
		t.Fatalf("got %+v of an empty queue, want none", got)
	}

	requireNoError(t, q.Put(t.Context(), "lane 1", 0))
	got := takeMessages(t, q, 32)
	if len(got) != 1 || got[0].Text != "lane 1" || got[0].DequeueCount != 1 {
		t.Fatalf("got %+v, want one, Text \"lane 1\" and DequeueCount 1", got)
	}

	if m := got[0]; m.ID == "" || m.PopReceipt == "" || m.InsertedAt.IsZero() ||
		m.InsertedAt.Location() != time.UTC {
		t.Errorf("got %+v, want an ID, a PopReceipt, an InsertedAt and Location %v", m, time.UTC)
	}

	wantLength(t, q, 1)
	requireNoError(t, q.Delete(t.Context(), got[0]))
	wantLength(t, q, 0)
}

func getSeveral(t *testing.T, q QueuePort) {
	want := map[string]bool{}
	for i := range 40 {
		text := fmt.Sprintf("lane %d", i)
		want[text] = true
		requireNoError(t, q.Put(t.Context(), text, 0))
	}

	wantLength(t, q, 40)

	for _, most := range []int{1, 32, 32} {
		got := takeMessages(t, q, most)
		if len(got) == 0 || len(got) > most {
			t.Fatalf("%d messages of at most %d, want more than 0 and at most %v", len(got),
				most, most)
		}

		for _, m := range got {
			if !want[m.Text] {
				t.Errorf("got %q twice or unknown, want each of the messages once", m.Text)
			}
			delete(want, m.Text)
		}
	}

	if len(want) != 0 {
		t.Errorf("no Get returned %v, want each message once", want)
	}
}

func getHidden(t *testing.T, q QueuePort) {
	requireNoError(t, q.Put(t.Context(), "taken", 0))
	requireNoError(t, q.Put(t.Context(), "delayed", time.Hour))
	got := takeMessages(t, q, 32)
	if len(got) != 1 || got[0].Text != "taken" {
		t.Fatalf("got %+v, want one and Text taken", got)
	}

	if again := takeMessages(t, q, 32); len(again) != 0 {
		t.Errorf("hidden ones: %+v, want none", again)
	}

	wantLength(t, q, 2)
	if _, err := q.Update(t.Context(), got[0], "shown", 0); err != nil {
		t.Errorf("Update to show it at once = %v, want no error", err)
	}

	if again := takeMessages(t, q, 32); len(again) != 1 || again[0].Text != "shown" {
		t.Errorf("shown at once: %+v, want one and Text shown", again)
	}
}

func getRefused(t *testing.T, q QueuePort) {
	requireNoError(t, q.Put(t.Context(), "lane 1", 0))
	_, err := q.Get(t.Context(), 1, 0)
	wantKind(t, "hidden for no time", err, storage.Other)
	_, err = q.Get(t.Context(), 0, time.Minute)
	wantKind(t, "no messages", err, storage.Other)
	if got := takeMessages(t, q, 1); len(got) != 1 || got[0].DequeueCount != 1 {
		t.Errorf("after refusals: %+v, want one and DequeueCount 1", got)
	}
}

// getOneTaker lets several callers dequeue one message concurrently. Exactly one caller must get
// the message.
func getOneTaker(t *testing.T, q QueuePort) {
	const takers = 8
	requireNoError(t, q.Put(t.Context(), "lane 1", 0))
	counts := make(chan int, takers)
	for range takers {
		go func() {
			got, err := q.Get(t.Context(), 1, time.Minute)
			if err != nil {
				t.Error(err)
			}
			counts <- len(got)
		}()
	}

	sum := 0
	for range takers {
		sum += <-counts
	}

	if sum != 1 {
		t.Errorf("%d takers got the message, want 1", sum)
	}
}

func putTexts(t *testing.T, q QueuePort) {
	for _, text := range []string{"lane 1", "ä€日 🏞", `{"lane":1}`, "<a>&</a>\r\n",
		strings.Repeat("x", 48<<10)} {
		requireNoError(t, q.Put(t.Context(), text, 0))
		got := takeMessages(t, q, 1)
		if len(got) != 1 || got[0].Text != text {
			t.Fatalf("%.40q comes back as %.100q, want one and Text %v", text,
				fmt.Sprint(got), text)
		}

		requireNoError(t, q.Delete(t.Context(), got[0]))
	}
}

func putTooLarge(t *testing.T, q QueuePort) {
	large := strings.Repeat("x", 48<<10+1)
	wantKind(t, "put", q.Put(t.Context(), large, 0), storage.TooLarge)
	wantLength(t, q, 0)
	requireNoError(t, q.Put(t.Context(), "small", 0))
	got := takeMessages(t, q, 1)
	_, err := q.Update(t.Context(), got[0], large, time.Minute)
	wantKind(t, "update", err, storage.TooLarge)
}

func putLongestDelay(t *testing.T, q QueuePort) {
	requireNoError(t, q.Put(t.Context(), "next week", 7*24*time.Hour))
	wantLength(t, q, 1)
	wantKind(t, "a longer delay", q.Put(t.Context(), "later", 7*24*time.Hour+time.Second),
		storage.Other)
}

func updateReceipts(t *testing.T, q QueuePort) {
	ctx := t.Context()
	requireNoError(t, q.Put(ctx, "lane 1", 0))
	m := takeMessages(t, q, 1)[0]
	old := m

	for range 3 {
		receipt, err := q.Update(ctx, m, "lane 1", time.Minute)
		requireNoError(t, err)
		m.PopReceipt = receipt
	}

	wantKind(t, "delete with an old receipt", q.Delete(ctx, old), storage.NotFound)
	_, err := q.Update(ctx, old, "old", time.Minute)
	wantKind(t, "update with an old receipt", err, storage.NotFound)
	requireNoError(t, q.Delete(ctx, m))
}

func deleteNotFound(t *testing.T, q QueuePort) {
	ctx := t.Context()
	requireNoError(t, q.Put(ctx, "lane 1", 0))
	m := takeMessages(t, q, 1)[0]
	requireNoError(t, q.Delete(ctx, m))
	wantKind(t, "delete a message that is gone", q.Delete(ctx, m), storage.NotFound)
	_, err := q.Update(ctx, m, "gone", time.Minute)
	wantKind(t, "update a message that is gone", err, storage.NotFound)
}

func queueContextEnded(t *testing.T, q QueuePort) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantKind(t, "put", q.Put(ctx, "never", 0), storage.Unavailable)
	_, err := q.Get(ctx, 1, time.Minute)
	wantKind(t, "get", err, storage.Unavailable)
	_, err = q.Length(ctx)
	wantKind(t, "length", err, storage.Unavailable)
	wantLength(t, q, 0)
}

func takeMessages(t *testing.T, q QueuePort, most int) []storage.QueueMessage {
	t.Helper()
	got, err := q.Get(t.Context(), most, time.Minute)
	requireNoError(t, err)
	return got
}

func wantLength(t *testing.T, q QueuePort, want int64) {
	t.Helper()
	if n, err := q.Length(t.Context()); n != want || err != nil {
		t.Errorf("length = %d, %v, want %d", n, err, want)
	}
}
