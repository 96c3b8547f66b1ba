package lane_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"weir/internal/fold"
	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/lane/rows"
	"weir/internal/storage/memory"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

// openFolded opens lanes whose epoch folds keys.
func openFolded(t *testing.T, lanes int, rules fold.Rules) *lane.Store {
	t.Helper()
	account := memory.New(time.Now)
	s := &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: lanes, Fold: rules,
		Now: time.Now}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}

	return s
}

// Spellings of one key share a lane and an order, and each message keeps its key as it came.
func TestFold_AppendsToOneLane(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		s := openFolded(t, 64, fold.All)
		a := lane.NewAppender(s, quiet)
		keys := []string{"cafe", "Café", "CAFE\u0301"}
		for i, key := range keys {
			r, err := a.Append(t.Context(), newMessage(key, "x"), "same")
			if err != nil || r.Duplicate {
				t.Fatalf("append of %q: got %+v, %v, want a message of its own", key, r, err)
			}

			if id := r.Message.ID; id.Lane != s.LaneOf(keys[0]) || id.Seq != int64(i+1) {
				t.Errorf("%q is at %+v, want number %d of lane %d", key, id, i+1, s.LaneOf(keys[0]))
			}

			again, err := a.Append(t.Context(), newMessage(key, "x"), "same")
			if err != nil || !again.Duplicate || again.Message.ID != r.Message.ID {
				t.Errorf("the repeat of %q: got %+v, %v, want the message %+v", key, again, err,
					r.Message.ID)
			}

			found, err := s.Messages().FindSubmission(t.Context(), key, "same")
			if err != nil || found.Seq != r.Message.ID.Seq {
				t.Errorf("the submission of %q: got %+v, %v, want %+v", key, found, err,
					r.Message.ID)
			}
		}

		entries, err := s.ReadLog(t.Context(), s.LaneOf("cafe"), 1, 10)
		if err != nil || len(entries) != len(keys) {
			t.Fatalf("got %d messages, %v, want %d", len(entries), err, len(keys))
		}

		for i, e := range entries {
			if e.Message.Key != keys[i] || e.KeyHash() != s.KeyHash("cafe") ||
				e.BlockID() != s.KeyHash("cafe") {
				t.Errorf("got the key %q with the hashes %s and %s, want %q with that of its folded key", e.Message.Key,
					e.KeyHash(), e.BlockID(), keys[i])
			}
		}
	})
}

// Without folding, lanes and hashes are those of the key itself. Stored messages have them.
func TestFold_NothingChangesWithoutRules(t *testing.T) {
	t.Parallel()
	s := &lane.Store{Lanes: 64}
	for _, key := range []string{"", "/news/1", "Café", "a\\|b|c"} {
		if got, want := s.LaneOf(key), lane.Of(key, 64); got != want {
			t.Errorf("the lane of %q: got %d, want %d", key, got, want)
		}
		if got, want := s.KeyHash(key), rows.Hash("key", key); got != want {
			t.Errorf("the hash of %q: got %s, want %s", key, got, want)
		}
	}
}

// A process whose settings have another folding or number of lanes than storage does not start, and
// names the remedy.
func TestStore_Open_OtherFolding(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		s := openFolded(t, 4, fold.Case)
		for _, c := range []struct {
			lanes             int
			rules             fold.Rules
			isCount, isFold   bool
			storage, settings string
			remedy            string
		}{
			{4, fold.Case, false, false, "", "", ""},
			{4, 0, false, true, "fold: [case]", "[]", "`weir lanes 4 --fold none`"},
			{4, fold.All, false, true, "fold: [case]", "[case, accents, nfc]",
				"`weir lanes 4 --fold case,accents,nfc`"},
			{5, fold.Case, true, false, "lanes: 4", "5", "`weir lanes 5`"},
			{5, fold.NFC, true, true, "lanes: 4 and fold: [case]", "lanes: 5 and fold: [nfc]",
				"`weir lanes 5 --fold nfc`"},
		} {
			other := &lane.Store{Table: s.Table, Lanes: c.lanes, Fold: c.rules, Now: time.Now}
			err := other.Open(t.Context())
			if errors.Is(err, lane.ErrLaneCount) != c.isCount ||
				errors.Is(err, lane.ErrFold) != c.isFold ||
				lane.IsOtherLanes(err) != (c.isCount || c.isFold) ||
				(err == nil) != (c.remedy == "") {
				t.Errorf("lanes %d, fold %v: got %v, want ErrLaneCount: %v, ErrFold: %v", c.lanes,
					c.rules, err, c.isCount, c.isFold)
				continue
			}

			for _, part := range []string{c.storage, c.settings, c.remedy} {
				if err != nil && !strings.Contains(err.Error(), part) {
					t.Errorf("lanes %d, fold %v: got %v, want %q in it", c.lanes,
						c.rules, err, part)
				}
			}
		}
	})
}

// The row of an erased message leads to the lane of its key by each folding, so that its copy is
// found after any change. The key is in no row any more, and the row of another spelling is as it
// was.
func TestFold_ErasedRows(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		s := openFolded(t, 16, fold.All)
		a := lane.NewAppender(s, quiet)
		ids := map[string]weir.ID{}
		for _, key := range []string{"Jane Doé", "jane doe"} {
			m := newMessage(key, "x")
			m.DueAt = time.Now().Add(time.Hour)
			r, err := a.Append(t.Context(), m, "")
			if err != nil {
				t.Fatal(err)
			}

			if _, err := s.Requests().Cancel(t.Context(), r.Message.ID); err != nil {
				t.Fatal(err)
			}

			ids[key] = r.Message.ID
		}

		if _, err := s.Requests().Erase(t.Context(), ids["Jane Doé"]); err != nil {
			t.Fatal(err)
		}

		row, err := s.Table.Get(t.Context(), s.Partition(ids["Jane Doé"].Lane), rows.MessageKey(1))
		if err != nil || rows.Key.Of(row.Values) != lane.ErasedKey("Jane Doé") {
			t.Fatalf("got the key %q, %v, want %q", rows.Key.Of(row.Values), err,
				lane.ErasedKey("Jane Doé"))
		}

		for rules := range fold.All + 1 {
			for lanes := range 20 {
				e := epochs.Epoch{Lanes: lanes + 1, Fold: rules}
				if got, want := lane.OfRow(row.Values, e), lane.OfKey("Jane Doé", e); got != want {
					t.Errorf("epoch %+v: the erased row is of lane %d, want %d", e, got, want)
				}
			}
		}

		st, err := s.Messages().Status(t.Context(), ids["jane doe"])
		if err != nil || st.Message.Key != "jane doe" || !st.ErasedAt.IsZero() {
			t.Errorf("the other spelling: got %+v, %v, want it as it was", st, err)
		}
	})
}
