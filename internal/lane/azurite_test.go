package lane_test

import (
	"fmt"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/azure"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/azurite"
)

func TestMain(m *testing.M) { azurite.Main(m) }

// TestRetention_OnAzurite runs the main cases of retention on Azurite: large transactions, refused
// transactions, and the search for bodies to which no row refers.
func TestRetention_OnAzurite(t *testing.T) {
	t.Parallel()
	account, err := azure.Open(azure.Config{ConnectionString: azurite.Shared(t),
		Prefix: fmt.Sprintf("keep%d", time.Now().UnixNano())})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(account.Close)
	if err := account.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}

	store := &lane.Store{Table: storagetest.Patient(account.Table()), Bodies: account.Bodies(),
		Lanes: 1, Now: time.Now}
	if err := store.Open(t.Context()); err != nil {
		t.Fatal(err)
	}

	const messages = 600
	fileDelivered(t, store, messages)
	forgotten := time.Now().UTC().Format(time.DateOnly) + "/1.0/forgotten"
	if err := account.Bodies().Put(t.Context(), forgotten, nil); err != nil {
		t.Fatal(err)
	}

	// The test removes one idempotency row. So storage refuses the transaction in which retention
	// deletes this row, and retention must repeat the transaction without this row.
	row, err := store.Table.Get(t.Context(), "1.0", "m_"+lane.OrderPos(30))
	if err != nil {
		t.Fatal(err)
	}

	if _, err := account.Table().Transact(t.Context(), "1.0",
		[]storage.Op{{Kind: storage.Delete, Key: row.Values["Idem"].(string)}}); err != nil {
		t.Fatal(err)
	}

	table, removed := &distantTable{Table: store.Table}, 0
	later := *store
	later.Table, later.Now = table, func() time.Time { return time.Now().Add(8 * oneDay) }
	r := &lane.Retention{Store: &later, KeepFinal: 7 * oneDay, KeepDead: 30 * oneDay,
		TimeShare: time.Minute, OnRemoved: func(n, _ int) { removed += n }}
	began := time.Now()

	if next, err := r.RunLane(t.Context(), 0); err != nil || next.IsZero() || removed != messages {
		t.Errorf("%d of %d messages removed, next %s, %v, want all removed, a next time and no error", removed,
			messages, next, err)
	}

	t.Logf("%d messages in %s, %.3f calls of the table a message", removed,
		time.Since(began).Round(time.Millisecond), float64(table.operations.Load())/messages)

	for _, prefix := range []string{"m_", "i_", "d_"} {
		page, err := store.Table.Range(t.Context(),
			storage.Query{Partition: "1.0", From: prefix, To: prefix + "~"})
		if err != nil || len(page.Rows) != 0 {
			t.Errorf("%d rows %s are left, %v, want none and no error", len(page.Rows), prefix, err)
		}
	}

	if _, err := r.RemoveForgottenBodies(t.Context()); err != nil {
		t.Error(err)
	}

	if _, err := account.Bodies().Get(t.Context(), forgotten); !storage.Is(err, storage.NotFound) {
		t.Errorf("the forgotten body: %v, want NotFound", err)
	}
}
