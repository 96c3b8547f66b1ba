package lane_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/weir"
)

// setFormat replaces the format in the record of epochs; 0 = there is none.
func setFormat(t *testing.T, table storage.Table, format int64) {
	t.Helper()
	row, err := table.Get(t.Context(), "meta", "lanes")
	if err != nil {
		t.Fatal(err)
	}

	row.Values["Format"] = format
	if format == 0 {
		delete(row.Values, "Format")
	}

	_, err = table.Transact(t.Context(), "meta", []storage.Op{{Kind: storage.Replace, Key: "lanes",
		IfMatch: row.ETag, Values: row.Values}})
	if err != nil {
		t.Fatal(err)
	}
}

// Storage without a format is refused as soon as a lane has taken a message, or as a schedule is
// stored. Until then the first start adds the format. A later format is always refused.
func TestStore_OpenOfAnotherFormat(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		format int64
		use    func(*testing.T, *lane.Store)
		want   error
	}{
		"NoFormatUnused":   {0, func(*testing.T, *lane.Store) {}, nil},
		"NoFormatMessage":  {0, appendOne, epochs.ErrNoFormat},
		"NoFormatSchedule": {0, putSchedule, epochs.ErrNoFormat},
		"LaterFormat":      {epochs.Format + 1, appendOne, epochs.ErrLaterFormat},
		"LaterFormatUnused": {epochs.Format + 1, func(*testing.T, *lane.Store) {},
			epochs.ErrLaterFormat},
		"PresentFormat": {epochs.Format, appendOne, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			account := memory.New(time.Now)
			store := &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: 3,
				Now: time.Now}
			if err := store.Open(t.Context()); err != nil {
				t.Fatal(err)
			}

			c.use(t, store)
			setFormat(t, account.Table(), c.format)

			for range 2 {
				again := &lane.Store{Table: account.Table(), Lanes: 3, Now: time.Now}
				err := again.Open(t.Context())
				if !errors.Is(err, c.want) || lane.IsPermanent(err) != (c.want != nil) {
					t.Errorf("got %v, want %v", err, c.want)
				}

				if err != nil && strings.ContainsAny(err.Error(), ".\n") {
					t.Errorf("got %q, want one sentence", err)
				}
			}
		})
	}
}

func appendOne(t *testing.T, store *lane.Store) {
	t.Helper()
	m := weir.Message{Contract: "a", Key: "k", Body: []byte("<a/>"), Size: 4}
	if _, err := lane.NewAppender(store, quiet).Append(t.Context(), m, ""); err != nil {
		t.Fatal(err)
	}
}

func putSchedule(t *testing.T, store *lane.Store) {
	t.Helper()
	_, err := store.Table.Transact(t.Context(), "schedules",
		[]storage.Op{{Kind: storage.Insert, Key: "s", Values: map[string]any{"Cron": "@daily"}}})
	if err != nil {
		t.Fatal(err)
	}
}
