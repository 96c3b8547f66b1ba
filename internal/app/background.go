package app

import (
	"context"
	"time"
	_ "time/tzdata" // for platforms without time zone files

	"weir/internal/batch"
	"weir/internal/history"
	"weir/internal/inbox"
	"weir/internal/lane"
	"weir/internal/notify"
	"weir/internal/panics"
	"weir/internal/recur"
	"weir/internal/replay"
	"weir/internal/settings"
	"weir/internal/telemetry"
	"weir/internal/upkeep"
	"weir/internal/weir"
	"weir/internal/wire"
)

// newNotifier sets the store's Notifier to a new sender of callbacks and events, and returns the
// sender.
func (a *App) newNotifier(store *lane.Store) *notify.Sender {
	receivers, _ := a.settings.EventReceivers() // settings.Load has checked the receivers
	callbacks, _ := a.settings.CallbackRules()  // settings.Load has checked the rules
	sender := notify.New(notify.Config{Store: store, Leases: a.account.Leases(),
		Receivers: receivers,
		Callbacks: callbacks, Observer: a.instruments.notified, Now: time.Now, Log: a.log})
	store.Notifier = sender
	return sender
}

// startNotifier is newNotifier for a long-running process. It also starts the sending of events
// that remain in the lanes of earlier epochs.
func (a *App) startNotifier(ctx context.Context, store *lane.Store) *notify.Sender {
	sender := a.newNotifier(store)
	go func() {
		err := panics.Catch(func() error { return sender.ScanEarlierEpochs(ctx) })
		if err != nil && ctx.Err() == nil {
			a.log.Warn("notify: earlier outboxes not looked at", "err", err)
		}
	}()

	return sender
}

// closeNotifier closes the notifier. Before that, it lets the notifier send the events that are
// due, for at most half of stopTimeout.
func closeNotifier(ctx context.Context, sender *notify.Sender) error {
	limited, cancel := context.WithTimeout(ctx, stopTimeout/2)
	defer cancel()
	sender.WaitIdle(limited)
	return sender.Close(ctx)
}

// deadReceivers is a notifier that returns the receivers of events about dead messages, but sends
// no event. A command that uses deadReceivers stores the events, and other processes send them.
type deadReceivers struct{ *notify.Sender }

// WakeOutbox implements lane.Notifier.
func (deadReceivers) WakeOutbox(int) {}

func (p *pipeline) newScheduleStore() *recur.Store {
	return &recur.Store{Table: p.store.Table, Bodies: p.store.Bodies, Now: time.Now}
}

func (a *App) newSchedules(p *pipeline) *recur.Runner {
	return recur.New(recur.Config{
		Store:     p.newScheduleStore(),
		Log:       tracedLog{p.appender, p.store.Messages(), a.instruments.export},
		Contracts: a.contracts, Waker: p.waker.Filed(), Now: time.Now, Skew: a.account.Skew,
		Logger: a.log,
		Limits: a.settings.Schedules.Limits(),
	})
}

// tracedLog is the log for recurring messages. Each Append begins a trace.
type tracedLog struct {
	*lane.Appender
	lane.Messages
	export *telemetry.Export
}

// Append implements recur.Log.
func (l tracedLog) Append(ctx context.Context, m weir.Message, idempotencyKey string) (
	filed lane.Receipt, err error) {
	err = l.export.File(ctx, &m, func(ctx context.Context) error {
		filed, err = l.Appender.Append(ctx, m, idempotencyKey)
		return err
	})
	return filed, err
}

func (r *running) newReplays() *replay.Runner {
	finished := func(j replay.Job) error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*maxStorageRetry)
		defer cancel()
		return r.notifier.ReplayFinished(ctx, j.ID, j.FinishedAt, j)
	}

	return replay.New(replay.Config{
		Store: r.store, Log: replay.LogOf(r.store), Leases: r.account.Leases(),
		Lease: time.Duration(r.settings.Lease),
		Wake:  r.waker.Ring, Finished: finished, Interval: r.settings.Delivery.Rate.Interval(),
		Now:    time.Now,
		Logger: r.log,
	})
}

// tracedParts is the log for the parts of batches. It makes a span of the append of each part.
type tracedParts struct {
	*lane.Appender
	export *telemetry.Export
}

// AppendInOrder implements batch.Log.
func (l tracedParts) AppendInOrder(ctx context.Context,
	drafts []lane.Draft) (receipts []lane.Receipt, errs []error) {
	messages := make([]*weir.Message, len(drafts))
	for i := range drafts {
		messages[i] = &drafts[i].Message
	}

	l.export.FileAll(ctx, messages, func(ctx context.Context) []error {
		receipts, errs = l.Appender.AppendInOrder(ctx, drafts)
		return errs
	})

	return receipts, errs
}

func (r *running) newBatches() *batch.Runner {
	cfg := batch.Config{
		Store: r.store, Blobs: r.account.Bodies(), Leases: r.account.Leases(),
		Lease:     time.Duration(r.settings.Lease),
		Contracts: r.contracts, MaxBody: int64(r.settings.MaxBody),
		Filer: r.newFiler(tracedAppender{r.appender, r.instruments.export}, r.upstreams),
		Log:   tracedParts{r.appender, r.instruments.export},
		Wake:  r.waker.Filed().Ring, Refused: submissions{r.instruments, history.WayBatch}.Refused,
		Now: time.Now, Logger: r.log,
	}

	if r.settings.Intake.Files != nil {
		cfg.FinishFile = func(ctx context.Context, b wire.Batch, file string) error {
			return r.inbox.FinishBatch(ctx, b, file)
		}
	}

	if r.upstreams != nil {
		cfg.Quotas = r.upstreams
	}

	return batch.New(cfg)
}

// newInbox returns nil if weir.yaml has no intake.files.
func (r *running) newInbox() *inbox.Collector {
	s := r.settings.Intake.Files
	if s == nil {
		return nil
	}

	return inbox.New(inbox.Config{
		Inbox: r.account.Inbox(), Accepted: r.account.Accepted(), Rejected: r.account.Rejected(),
		Leases: r.account.Leases(), Lease: time.Duration(r.settings.Lease),
		Filer:   r.newFiler(tracedAppender{r.appender, r.instruments.export}, r.upstreams),
		Batches: r.batches, Messages: r.store.Messages(),
		CanSplit: len(r.contracts.SplitPaths()) > 0,
		MaxBody:  int64(r.settings.MaxBody), Quiet: time.Duration(s.Quiet),
		Folders: s.InboxFolders(), RefusesOthers: s.Others == settings.RefuseOthers,
		Retention: time.Duration(s.RetentionOrDefault()),
		Wake:      r.waker.Filed().Ring,
		Refused:   submissions{r.instruments, history.WayFile}.Refused, Now: time.Now,
		Logger: r.log,
	})
}

func (r *running) startHistory() *history.Keeper {
	return history.NewKeeper(history.Config{Table: r.store.Table, Recorder: r.instruments.recorder,
		Between: r.settings.Delivery.Rate.Interval(), Now: time.Now, Log: r.log})
}

// retentionShare is the time for which retention works on one lane before it turns to the next
// lane.
const retentionShare = 5 * time.Second

// newUpkeep returns the clean-up of this process. Jobs of parts that the process does not have are
// left out: other processes do them.
func (r *running) newUpkeep() *upkeep.Keeper { return r.newKeeper(r.account.LeaseBlobs()) }

func (r *running) newKeeper(leases upkeep.LeaseBlobs) *upkeep.Keeper {
	s := &r.settings
	retention := &lane.Retention{Store: r.store, KeepFinal: time.Duration(s.Retention),
		KeepDead: time.Duration(s.DeadRetention), TimeShare: retentionShare, Log: r.log,
		OnRemoved: r.instruments.metrics.Removed}
	parts := upkeep.Parts{Messages: retention, Audit: r.audit, Leases: leases, Now: time.Now,
		History:   history.Expiry{Table: r.store.Table, Now: time.Now},
		Replays:   replay.Expiry{Table: r.store.Table, Now: time.Now},
		Schedules: r.newScheduleStore()}

	if r.batches != nil {
		parts.Batches = r.batches
	}

	if r.inbox != nil {
		parts.Files = r.inbox
	}

	return upkeep.New(upkeep.Config{Retention: retention, Lanes: s.Lanes, Jobs: upkeep.Jobs(parts),
		Table: r.store.Table, JobsAt: r.upkeepAt, Now: time.Now, Logger: r.log})
}
