package lane_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/storage"
	"weir/internal/weir"
)

// cutTable shortens the first answers that have several control rows to one row each. Storage may
// do so. cutTable also counts the queries for control rows.
type cutTable struct {
	storage.Table
	cuts    int // number of answers still to cut
	queries int
	between func() // if set, called after each cut
}

func (c *cutTable) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	page, err := c.Table.Range(ctx, q)
	if q.To != "!tail~" {
		return page, err
	}

	c.queries++
	if err == nil && c.cuts > 0 && len(page.Rows) > 1 {
		c.cuts--
		page.Rows, page.More = page.Rows[:1], true
		if c.between != nil {
			c.between()
		}
	}

	return page, err
}

func TestStore_ControlCut(t *testing.T) {
	for name, test := range map[string]struct {
		// the largest number of cut answers, and the number of queries that ReadControl makes
		cuts, queries int
		changes       int // number of times that both control rows change, each time after a cut
	}{
		// a cut answer, an answer with the missing rows, and a whole answer
		"Once":               {1, 3, 0},
		"Always":             {100, 4, 0},
		"AlwaysWhileChanged": {100, 8, 2},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, b *bench) {
				table := &cutTable{Table: b.account.Table(), cuts: test.cuts}
				table.between = func() {
					if test.changes--; test.changes >= 0 {
						b.touchBoth()
					}
				}

				store := *b.faultless
				store.Table = table
				c, err := store.ReadControl(t.Context(), 0)
				if err != nil || c.Head.RequestSeq != c.Tail.RequestsSeen ||
					table.queries != test.queries {
					t.Errorf("head %+v, tail %+v, %v, %d queries; want both from one snapshot, no error and %d queries",
						c.Head, c.Tail, err, table.queries, test.queries)
				}
			})
		})
	}

	t.Run("ChangedBeforeEachRead", func(t *testing.T) {
		simulate(t, func(t *testing.T, b *bench) {
			store := *b.faultless
			store.Table = &cutTable{Table: b.account.Table(), cuts: 1000, between: b.touchBoth}
			if _, err := store.ReadControl(t.Context(), 0); !storage.Is(err, storage.Unavailable) {
				t.Errorf("%v, want Unavailable", err)
			}
		})
	})
}

// touchBoth changes both control rows with one transaction. Afterwards Head.RequestSeq equals
// Tail.RequestsSeen.
func (b *bench) touchBoth() {
	b.t.Helper()
	c, err := b.faultless.ReadControl(b.t.Context(), 0)
	if err != nil {
		b.t.Fatal(err)
	}

	n := c.Head.RequestSeq + 1
	if _, err := b.account.Table().Transact(b.t.Context(), "1.0", []storage.Op{
		{Kind: storage.Merge, Key: "!head", Values: map[string]any{"Touched": n}},
		{Kind: storage.Merge, Key: "!tail", Values: map[string]any{"TouchedSeen": n}}}); err !=
		nil {
		b.t.Fatal(err)
	}
}

// openNextEpoch opens epoch 2, and returns a store for it that uses table.
func (b *bench) openNextEpoch(table storage.Table) *lane.Store {
	b.t.Helper()
	meta, err := epochs.Update(b.t.Context(), b.faultless.Table, func(m *epochs.Record) error {
		if m.Open.Number == 2 {
			return epochs.ErrNoChange
		}
		m.Earlier, m.Open, m.Used = []epochs.Epoch{m.Open}, epochs.Epoch{Number: 2, Lanes: 1}, 2
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}

	next := *b.faultless
	next.Table = table
	next.UseEpochRecord(meta)
	if err := next.EnsureControlRows(b.t.Context(), 0, 0); err != nil {
		b.t.Fatal(err)
	}

	return &next
}

// Storage cuts the answers with the control rows of an earlier epoch's lane. Even so, retention
// must notice that the lane exists, and must keep its messages.
func TestRetention_EarlierWithShortAnswers(t *testing.T) {
	for _, cuts := range []int{1, 2, 1000} {
		t.Run(fmt.Sprint(cuts), func(t *testing.T) {
			simulate(t, func(t *testing.T, b *bench) {
				ids := b.fileApart(3, 0)
				w := b.raiseFence()
				for _, id := range ids {
					b.commitFinal(w, id.Seq, weir.Delivered)
				}

				next := b.openNextEpoch(&cutTable{Table: b.account.Table(), cuts: cuts})
				if _, err := b.newRetention(next).RunEarlierEpochs(t.Context()); err != nil {
					t.Error(err)
				}

				if st, err := next.Messages().Status(t.Context(), ids[0]); err != nil ||
					st.Stage != weir.Delivered {
					t.Errorf("just after the delivery: %q, %v, want Stage delivered and no error",
						st.Stage, err)
				}

				r, err := lane.NewAppender(next, quiet).Append(t.Context(),
					newMessage("0", "x"), "k0")
				if err != nil || !r.Duplicate {
					t.Errorf("Append of the same submission = duplicate %v, %v, want true and no error", r.Duplicate,
						err)
				}
			})
		})
	}
}

// A lane of an earlier epoch that lacks head and tail, and has no messages, was deleted. If it has
// messages, or lacks only one of the two rows, which one transaction deletes, its epoch stays in
// the record.
func TestRetention_DropsOnlyLanesWithoutMessages(t *testing.T) {
	remove := func(keys ...string) []storage.Op {
		var ops []storage.Op
		for _, key := range keys {
			ops = append(ops, storage.Op{Kind: storage.Delete, Key: key})
		}
		return ops
	}
	for name, test := range map[string]struct {
		gone    []storage.Op // the operations that remove control rows; nil = none
		file    bool         // the lane has messages
		forgets bool         // the epoch is removed from the record
	}{
		"BothGoneWithMessages":    {remove("!head", "!tail"), true, false},
		"OneGoneWithMessages":     {remove("!head"), true, false},
		"BothGoneWithoutMessages": {remove("!head", "!tail"), false, true},
		"OneGoneWithoutMessages":  {remove("!head"), false, false},
		"NoneGoneWithMessages":    {nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, b *bench) {
				if test.file {
					b.fileApart(3, 0)
				}

				next := b.openNextEpoch(b.account.Table())

				if test.gone != nil {
					if _, err := b.account.Table().Transact(t.Context(), "1.0", test.gone); err !=
						nil {
						t.Fatal(err)
					}
				}

				_, err := b.newRetention(next).RunEarlierEpochs(t.Context())
				meta, metaErr := epochs.Read(t.Context(), next.Table)
				if metaErr != nil || (len(meta.Earlier) == 0) != test.forgets ||
					(err != nil) != (test.gone != nil && !test.forgets) {
					t.Errorf("earlier epochs %v, %v, %v; want the epoch removed: %t", meta.Earlier,
						err, metaErr, test.forgets)
				}

				if want := map[bool]int{true: 3}[test.file]; b.countRows("m_") != want {
					t.Errorf("%d messages are left, want %d", b.countRows("m_"), want)
				}
			})
		})
	}
}

// Retention deletes an earlier epoch even if the epoch's lane has lost a packed row (its key begins
// with d_).
func TestRetention_ForgetsAnEpochThatLostItsPackedRows(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.fileApart(20, 0)
		b.commitDeliveries(b.raiseFence(), 21, seqsTo(1, 20)...)

		if _, err := b.account.Table().Transact(t.Context(), "1.0",
			[]storage.Op{{Kind: storage.Delete, Key: "d_" + lane.OrderPos(20)}}); err != nil {
			t.Fatal(err)
		}

		next := b.openNextEpoch(b.account.Table())
		r := b.newRetention(next)
		for range 10 * 24 {
			time.Sleep(time.Hour)
			if _, err := r.RunEarlierEpochs(t.Context()); err != nil {
				t.Fatal(err)
			}
		}

		meta, err := epochs.Read(t.Context(), next.Table)
		if err != nil || len(meta.Earlier) != 0 || len(b.listKeys()) != 0 {
			t.Errorf("after ten days: earlier epochs %v, %d rows of the lane, %v; want none, none and no error",
				meta.Earlier, len(b.listKeys()), err)
		}
	})
}

// The lane pauses because the CMS refuses the messages of some keys. If a message of another key
// becomes due, it must not wait for the end of the pause. But the retry of a refused message must
// wait. Otherwise the holder would send requests to the CMS without a pause.
func TestControl_NextWorkAtInAPauseForRefusedMessages(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	never := time.Time{}
	for name, c := range map[string]struct {
		due, untried time.Time
		isOpen       bool // the last holder crashed
		// Head.Next; 10 = message 9 is new; each key with a message below 9 had its turn
		next       int64
		want       time.Time
		hasUntried bool
	}{
		"NothingIsHeld":     {never, never, false, 9, at(60), false},
		"RetryInThePause":   {at(30), never, false, 9, at(60), false},
		"RetryAndScheduled": {at(20), at(30), false, 9, at(30).Add(-lane.DueLead), false},
		"DueInThePause":     {at(30), at(30), false, 9, at(30).Add(-lane.DueLead), false},
		"DueWithinTheLead":  {at(1), at(1), false, 9, now, true},
		"DueAfterACrash":    {at(19), at(19), true, 9, now, true},
		"DueAfterThePause":  {at(90), at(90), false, 9, at(60), false},
		"NewMessage":        {at(30), never, false, 10, now, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			control := lane.Control{Head: lane.Head{Next: c.next}, Tail: lane.Tail{Cursor: 5,
				CMSPause:    lane.CMSPause{ProbedBelow: 9, PausedUntil: at(60)},
				DueState:    lane.DueState{NextDueAt: c.due, NextUntriedAt: c.untried},
				CrashRecord: lane.CrashRecord{IsOpen: c.isOpen}}}

			got, ok := control.NextWorkAt(now)
			if !ok || !got.Equal(c.want) || control.HasUntried(now) != c.hasUntried {
				t.Errorf("NextWorkAt = %s, %t, HasUntried = %t; want %s, true, %t",
					got, ok, control.HasUntried(now), c.want, c.hasUntried)
			}
		})
	}
}

// If the lane pauses because the CMS does not answer, due messages wait for the end of the pause,
// too.
func TestControl_NextWorkAtInAPauseForAll(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)
	until, due := now.Add(time.Minute), now.Add(30*time.Second)
	control := lane.Control{Head: lane.Head{Next: 9},
		Tail: lane.Tail{Cursor: 5, CMSPause: lane.CMSPause{PausedUntil: until},
			DueState: lane.DueState{NextDueAt: due, NextUntriedAt: due}}}
	if got, ok := control.NextWorkAt(now); !ok || !got.Equal(until) {
		t.Errorf("NextWorkAt = %s, %t; want %s, true", got, ok, until)
	}
}
