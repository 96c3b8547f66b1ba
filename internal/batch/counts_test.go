package batch_test

import (
	"maps"
	"testing"

	"weir/internal/batch"
	"weir/internal/lane/epochs"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// Even after a change of the number of lanes, GetStages needs only a few reads for each window of
// 200 parts. The dead message of this test has no copy in the new epoch, so GetStages counts the
// message as removed.
func TestGetStages_OfAnEarlierEpoch(t *testing.T) {
	simulate(t, func(w *world) {
		first := w.startProcess()
		id := first.awaitFinal(first.accept(batch.Spec{}, newFeed(1000, "/a", "/b", "/c", "/d")).ID).ID
		first.stop()
		store := w.lanes.Store
		died := storage.Op{Kind: storage.Merge, Key: rows.MessageKey(1),
			Values: rows.Values(rows.Stage.Is(string(weir.Dead)))}
		if _, err := w.lanes.Account.Table().Transact(w.Context(), store.Partition(0), []storage.Op{died}); err != nil {
			t.Fatal(err)
		}

		store.EarlierEpochs = []epochs.Epoch{{Number: store.Epoch, Lanes: store.Lanes}}
		store.Epoch++
		p, reads := w.startProcess(), 0
		defer p.stop()
		p.faults.Set(func(storagetest.Call) storagetest.Fault { reads++; return storagetest.Fault{} })
		stages, err := p.GetStages(w.Context(), id)
		if want := map[weir.Stage]int{weir.Queued: 999, "removed": 1}; err != nil ||
			!maps.Equal(stages, want) {
			t.Errorf("got %v, %v, want %v", stages, err, want)
		}

		if reads > 100 {
			t.Errorf("got %d reads for 1000 messages, want a few for each window", reads)
		}
	})
}
