package lane_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

// cutTable cuts answers about control rows behind their first row, as storage may.
type cutTable struct {
	storage.Table
	cuts    int
	queries int
	between func() // called after each cut
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
		cuts, queries int
		changes       int // between the pages of the first readings
	}{
		"Once":               {1, 3, 0}, // cut, its rest, and whole
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
				store := *b.eyes
				store.Table = table
				c, err := store.ReadControl(t.Context(), 0)
				if err != nil || c.Head.RequestSeq != c.Tail.RequestsSeen || table.queries != test.queries {
					t.Errorf("head %+v, tail %+v of one moment? %v, %d queries, want %d", c.Head, c.Tail, err,
						table.queries, test.queries)
				}
			})
		})
	}
	t.Run("NeverTwiceTheSame", func(t *testing.T) {
		simulate(t, func(t *testing.T, b *bench) {
			store := *b.eyes
			store.Table = &cutTable{Table: b.account.Table(), cuts: 1000, between: b.touchBoth}
			if _, err := store.ReadControl(t.Context(), 0); !storage.Is(err, storage.Unavailable) {
				t.Errorf("%v, want Unavailable", err)
			}
		})
	})
}

// touchBoth changes both control rows together.
func (b *bench) touchBoth() {
	b.t.Helper()
	c, err := b.eyes.ReadControl(b.t.Context(), 0)
	if err != nil {
		b.t.Fatal(err)
	}
	n := c.Head.RequestSeq + 1
	if _, err := b.account.Table().Transact(b.t.Context(), "1.0", []storage.Op{
		{Kind: storage.Merge, Key: "!head", Values: map[string]any{"Touched": n}},
		{Kind: storage.Merge, Key: "!tail", Values: map[string]any{"TouchedSeen": n}}}); err != nil {
		b.t.Fatal(err)
	}
}

// next opens the epoch after that of the bench.
func (b *bench) next(table storage.Table) *lane.Store {
	b.t.Helper()
	meta, err := b.eyes.UpdateEpochRecord(b.t.Context(), func(m *lane.EpochRecord) error {
		if m.Open.Number == 2 {
			return lane.ErrNoChange
		}
		m.Earlier, m.Open, m.Used = []lane.Epoch{m.Open}, lane.Epoch{Number: 2, Lanes: 1}, 2
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	next := *b.eyes
	next.Table = table
	next.UseEpochRecord(meta)
	if err := next.EnsureControlRows(b.t.Context(), 0); err != nil {
		b.t.Fatal(err)
	}
	return &next
}

// A short answer about the control rows of an earlier epoch's lane deletes nothing.
func TestRetention_EarlierWithShortAnswers(t *testing.T) {
	for _, cuts := range []int{1, 2, 1000} {
		t.Run(fmt.Sprint(cuts), func(t *testing.T) {
			simulate(t, func(t *testing.T, b *bench) {
				ids := b.fileApart(3, 0)
				w := b.holder()
				for _, id := range ids {
					b.finish(w, id.Seq, weir.Delivered)
				}
				next := b.next(&cutTable{Table: b.account.Table(), cuts: cuts})
				if _, err := b.retention(next).RunEarlierEpochs(t.Context()); err != nil {
					t.Error(err)
				}
				if st, err := next.Status(t.Context(), ids[0]); err != nil || st.Stage != weir.Delivered {
					t.Errorf("seconds after it was delivered: %q, %v", st.Stage, err)
				}
				r, err := lane.NewAppender(next, quiet).Append(t.Context(), message("0", "x"), "k0")
				if err != nil || !r.Duplicate {
					t.Errorf("the same submission again: duplicate %v, %v", r.Duplicate, err)
				}
			})
		})
	}
}

// A lane without control rows is deleted only if it has no messages.
func TestRetention_DropsOnlyWhatIsGone(t *testing.T) {
	remove := func(keys ...string) []storage.Op {
		var ops []storage.Op
		for _, key := range keys {
			ops = append(ops, storage.Op{Kind: storage.Delete, Key: key})
		}
		return ops
	}
	for name, test := range map[string]struct {
		gone    []storage.Op
		file    bool
		forgets bool
	}{
		"BothAndMessages":      {remove("!head", "!tail"), true, false},
		"OneAndMessages":       {remove("!head"), true, false},
		"BothAndNoMessages":    {remove("!head", "!tail"), false, true},
		"OneOfADropCutInTwo":   {remove("!head"), false, true},
		"NothingIsMissingThen": {nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, b *bench) {
				if test.file {
					b.fileApart(3, 0)
				}
				next := b.next(b.account.Table())
				if test.gone != nil {
					if _, err := b.account.Table().Transact(t.Context(), "1.0", test.gone); err != nil {
						t.Fatal(err)
					}
				}
				_, err := b.retention(next).RunEarlierEpochs(t.Context())
				meta, metaErr := next.ReadEpochRecord(t.Context())
				if metaErr != nil || (len(meta.Earlier) == 0) != test.forgets ||
					(err != nil) != (test.gone != nil && test.file) {
					t.Errorf("earlier epochs %v, want forgotten %v; %v %v", meta.Earlier, test.forgets, err, metaErr)
				}
				if want := map[bool]int{true: 3}[test.file]; b.count("m_") != want {
					t.Errorf("%d messages are left, want %d", b.count("m_"), want)
				}
			})
		})
	}
}

// An earlier epoch whose messages lost their d_ rows is deleted in the end.
func TestRetention_ForgetsAnEpochThatLostItsPackedRows(t *testing.T) {
	simulate(t, func(t *testing.T, b *bench) {
		b.fileApart(20, 0)
		b.deliver(b.holder(), 21, seqsTo(1, 20)...)
		if _, err := b.account.Table().Transact(t.Context(), "1.0",
			[]storage.Op{{Kind: storage.Delete, Key: "d_" + lane.OrderPos(20)}}); err != nil {
			t.Fatal(err)
		}
		next := b.next(b.account.Table())
		r := b.retention(next)
		for range 10 * 24 {
			time.Sleep(time.Hour)
			if _, err := r.RunEarlierEpochs(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		meta, err := next.ReadEpochRecord(t.Context())
		if err != nil || len(meta.Earlier) != 0 || len(b.keys()) != 0 {
			t.Errorf("after ten days: earlier epochs %v, %d found of its lane; %v", meta.Earlier, len(b.keys()), err)
		}
	})
}
