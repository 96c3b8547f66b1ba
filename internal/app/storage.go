package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/relane"
	"weir/internal/retry"
	"weir/internal/storage"
	"weir/internal/verify"
)

// The first and the longest pause between two tries to open storage.
const (
	firstStorageRetry = 100 * time.Millisecond
	maxStorageRetry   = 2 * time.Second
)

// awaitStore opens storage. It returns a permanent error (see lane.IsPermanent) at once. After any
// other error, it tries again until ctx ends. If lost is not nil, the returned store calls lost
// when a request finds that the table was removed.
func (a *App) awaitStore(ctx context.Context, lost func(error)) (store *lane.Store, err error) {
	err = retry.Policy{
		First: firstStorageRetry, Max: maxStorageRetry,
		IsTransient: func(err error) bool { return !lane.IsPermanent(err) },
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

// openStore opens storage. If there is no table, it creates the table, the queues and the
// containers. If the table has no record of the number of lanes, it creates that record and the
// lanes' control rows. For the parameter lost, see awaitStore.
func (a *App) openStore(ctx context.Context, lost func(error)) (*lane.Store, error) {
	store := &lane.Store{Table: a.account.Table(), Bodies: a.account.Bodies(),
		Lanes: a.settings.Lanes,
		Fold:  a.settings.Fold.Rules, Now: time.Now, SettleTime: a.settings.SettleTime(),
		Contracts: a.contractNames(),
		Damages:   a.damages}

	err := store.Open(ctx)
	if errors.Is(err, storage.ErrGone) {
		a.log.Info("handler: no table found, so storage is new or its table was removed; the table is made")
		if err = a.account.Ensure(ctx); err == nil {
			err = store.Open(ctx)
		}
	}

	if lane.IsOtherLanes(err) {
		err = a.takeLanes(ctx, store, err)
	}

	if err != nil {
		return nil, err
	}

	if lost != nil {
		store.Table = watchedTable{store.Table, lost}
	}

	return store, nil
}

// takeLanes changes the number of lanes and the folding of keys in storage to those of the settings
// if storage was never used, and opens the store. If storage was used, it returns the error
// "refused" of Open.
func (a *App) takeLanes(ctx context.Context, store *lane.Store, refused error) error {
	before, err := epochs.Read(ctx, store.Table)
	if err != nil {
		return err
	}

	err = a.NewResharder(func(string) {}).TakeLanes(ctx, store.Present())
	for _, refusal := range []error{relane.ErrUsed, relane.ErrUnderWay, relane.ErrUndone,
		relane.ErrPaused, relane.ErrReplays} {
		if errors.Is(err, refusal) {
			return refused
		}
	}

	if err != nil {
		return fmt.Errorf("take the lanes from the settings: %w", err)
	}

	a.log.Info("handler: storage was never used, so it takes the number of lanes from the settings",
		"detail", fmt.Sprintf("lanes: %s to %s", before.Open, store.Present()))

	return store.Open(ctx)
}

// PrepareStorage creates the table, the queues and the containers, if they are missing.
func (a *App) PrepareStorage(ctx context.Context) error { return a.account.Ensure(ctx) }

// CompareLanes reads all messages, and calls print with a report on each lane. It stops at the
// first error. It writes nothing: if there is no table, or no record of the number of lanes, it
// returns an error.
func (a *App) CompareLanes(ctx context.Context, print func(verify.Report) error) error {
	store := &lane.Store{Table: a.account.Table(), Bodies: a.account.Bodies(),
		Lanes: a.settings.Lanes,
		Fold:  a.settings.Fold.Rules, Now: time.Now, SettleTime: a.settings.SettleTime(),
		Contracts: a.contractNames()}

	// before Open, because Open would create a missing record
	record, err := epochs.Read(ctx, store.Table)
	switch {
	case errors.Is(err, storage.ErrGone):
		return errors.New("storage has no table of Weir under this WEIR_PREFIX")
	case storage.Is(err, storage.NotFound):
		return errors.New("the table has no record of lanes: nothing was stored in it, or the copy is incomplete")
	case err == nil && (record.Step == epochs.StepLeave || record.Step == epochs.StepLeft):
		// no process serves the store, but it can be compared with the copy
		store.UseEpochRecord(record)
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
