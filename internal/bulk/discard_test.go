package bulk_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/bulk"
	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/weir"
)

// putDead fills a lane with n dead messages. Messages with an odd sequence number have the key
// /odd. The other messages have the key /even and another error.
func putDead(t *testing.T, s *lane.Store, account *memory.Account, number, n int) {
	t.Helper()
	for i := 1; i <= n; i++ {
		key, reason := "/even", "500 index locked"
		if i%2 == 1 {
			key, reason = "/odd", "422 title missing"
		}

		seq := int64(i)
		ops := []storage.Op{
			{Kind: storage.Insert, Key: rows.MessageKey(seq),
				Values: rows.Values(rows.Nonce.Is(fmt.Sprintf("%020x", i)),
					rows.Key.Is(key), rows.Contract.Is("article"), rows.Stage.Is("dead"),
					rows.FinishedAt.Is(diedAt(i)))},
			{Kind: storage.Insert, Key: rows.DeadKey(seq), Values: rows.Values(rows.Key.Is(key),
				rows.Contract.Is("article"), rows.Reason.Is(reason), rows.DiedAt.Is(diedAt(i)))},
		}
		if _, err := account.Table().Transact(t.Context(), s.Partition(number), ops); err != nil {
			t.Fatal(err)
		}
	}
}

func diedAt(i int) time.Time { return time.Date(2026, 3, 4, 5, 0, i, 0, time.UTC) }

func TestDiscardDead(t *testing.T) {
	t.Parallel()
	const n = 700 // more than one page
	account := memory.New(time.Now)
	s := &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: 2, Now: time.Now}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}

	putDead(t, s, account, 1, n)
	d := bulk.Changer{Store: s}
	odd, _ := weir.Fingerprint("article", 0, "422 title missing")
	zero, one := 0, 1
	for name, c := range map[string]struct {
		filter bulk.Selection
		want   int64
	}{
		"All":         {bulk.Selection{}, n},
		"Lane":        {bulk.Selection{Lane: &one}, n},
		"OtherLane":   {bulk.Selection{Lane: &zero}, 0},
		"Contract":    {bulk.Selection{Contract: "article"}, n},
		"Other":       {bulk.Selection{Contract: "other"}, 0},
		"Fingerprint": {bulk.Selection{Fingerprint: odd}, n / 2},
		"Span":        {bulk.Selection{From: diedAt(100), To: diedAt(110)}, 10},
	} {
		counts, _, done, err := d.DiscardDead(t.Context(), c.filter, bulk.Position{},
			10_000, "", true)
		if err != nil || !done || counts.Selected != c.want || counts.Asked != 0 {
			t.Errorf("%s: got %+v, %v, %v, want %d selected", name, counts, done, err, c.want)
		}
	}

	var asked int64
	for at, done := (bulk.Position{}), false; !done; {
		var counts bulk.Counts
		var err error
		counts, at, done, err = d.DiscardDead(t.Context(), bulk.Selection{Fingerprint: odd}, at, 1,
			"old", false)
		if err != nil {
			t.Fatal(err)
		}

		asked += counts.Asked
	}

	requests := 0
	for r, err := range rows.Scan(t.Context(), account.Table(),
		rows.WithPrefix(s.Partition(1), "w_discard_", nil)) {
		if err != nil || rows.Seq.Of(r.Values)%2 != 1 || rows.DiscardReason.Of(r.Values) != "old" {
			t.Fatalf("got the request %+v, %v, want an odd sequence number and the reason \"old\"",
				r, err)
		}
		requests++
	}

	if asked != n/2 || requests != n/2 {
		t.Errorf("got Asked %d and %d rows of requests, want %d of each", asked, requests, n/2)
	}
}

// After a change of the number of lanes, a position is in lanes that are closed. The next step must
// not go on there.
func TestDiscardDead_RefusesAPositionOfAnotherEpoch(t *testing.T) {
	t.Parallel()
	account := memory.New(time.Now)
	s := &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: 2, Now: time.Now}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}

	putDead(t, s, account, 1, 600)
	_, at, done, err := bulk.Changer{Store: s}.DiscardDead(t.Context(), bulk.Selection{},
		bulk.Position{}, 1, "", true)
	if err != nil || done || at.Epoch != s.Epoch {
		t.Fatalf("got %+v, done %t, %v, want a position in epoch %d", at, done, err, s.Epoch)
	}

	next := s.ForEpoch(epochs.Epoch{Number: s.Epoch + 1, Lanes: 1})
	counts, _, done, err := bulk.Changer{Store: next}.DiscardDead(t.Context(),
		bulk.Selection{}, at, 1, "", true)
	if weir.KindOf(err) != weir.Malformed || !strings.Contains(err.Error(), "begin anew") || done {
		t.Errorf("got %+v, done %t, %v, want the error that begins anew", counts, done, err)
	}
}
