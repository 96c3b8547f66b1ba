package app

import (
	"context"
	"errors"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/retry"
	"weir/internal/storage"
	"weir/internal/verify"
)

// The first and the longest pause between two attempts to open storage.
const (
	firstStorageRetry = 100 * time.Millisecond
	maxStorageRetry   = 2 * time.Second
)

// awaitStore opens storage, and tries again until ctx ends. If the number of lanes is wrong, it returns the error at
// once. If lost is not nil, the returned store calls it when the table disappears later.
func (a *App) awaitStore(ctx context.Context, lost func(error)) (store *lane.Store, err error) {
	err = retry.Policy{
		First: firstStorageRetry, Max: maxStorageRetry,
		IsTransient: func(err error) bool { return !errors.Is(err, lane.ErrLaneCount) },
		BeforePause: func(err error, pause time.Duration) (time.Duration, bool) {
			a.log.Warn("handler: storage not open yet", "err", err)
			return pause, true
		},
	}.Do(ctx, func() error {
		store, err = a.openStore(ctx, lost)
		return err
	})
	return store, err
}

// openStore opens storage. If there is no table, it makes the table, the queues and the containers. If there is no
// record of lanes, it makes the record and the lanes' control rows. Otherwise it only reads the record.
func (a *App) openStore(ctx context.Context, lost func(error)) (*lane.Store, error) {
	store := &lane.Store{Table: a.account.Table(), Bodies: a.account.Bodies(), Lanes: a.settings.Lanes,
		Now: time.Now, SettleTime: a.settings.settleTime()}
	err := store.Open(ctx)
	if errors.Is(err, storage.ErrGone) {
		a.log.Info("handler: no table found, so storage is new or its table was removed; the table is made")
		if err = a.account.Ensure(ctx); err == nil {
			err = store.Open(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	if lost != nil {
		store.Table = watchedTable{store.Table, lost}
	}
	return store, nil
}

// PrepareStorage makes the table, the queues and the containers that are missing.
func (a *App) PrepareStorage(ctx context.Context) error { return a.account.Ensure(ctx) }

// CompareLanes reads all messages, and calls the function "print" with the report of each lane. It stops at the first
// error. It writes nothing, and returns an error if there is no table, or no record of lanes in it.
func (a *App) CompareLanes(ctx context.Context, print func(verify.Report) error) error {
	store := &lane.Store{Table: a.account.Table(), Bodies: a.account.Bodies(), Lanes: a.settings.Lanes,
		Now: time.Now, SettleTime: a.settings.settleTime()}
	_, err := epochs.Read(ctx, store.Table) // Open would make a record
	switch {
	case errors.Is(err, storage.ErrGone):
		return errors.New("storage has no table of Weir under this WEIR_PREFIX")
	case storage.Is(err, storage.NotFound):
		return errors.New("the table has no record of lanes: nothing was stored in it, or the copy is incomplete")
	case err == nil:
		err = store.Open(ctx)
	}
	for number := 0; err == nil && number < store.Lanes; number++ {
		var r verify.Report
		if r, err = verify.CompareLane(ctx, store, number); err == nil {
			err = print(r)
		}
	}
	return err
}
