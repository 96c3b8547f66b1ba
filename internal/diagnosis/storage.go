package diagnosis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/panics"
	"weir/internal/recur"
	"weir/internal/storage"
	"weir/internal/storage/azure"
	"weir/internal/storage/embedded"
	"weir/internal/storage/timelimit"
)

// Account is the storage of an installation.
type Account interface {
	Table() storage.Table
	Bodies() timelimit.BlobPort
	Tickets() timelimit.QueuePort
	Poison() timelimit.QueuePort
	InboxEvents() timelimit.QueuePort
	Inbox() storage.Files
	// Skew returns the time by which the clock of storage is ahead of this machine's clock.
	Skew(ctx context.Context) (time.Duration, error)
}

const (
	todoStorage = "see whether AzureWebJobsStorage names the right account, its key is valid or the identity " +
		"has the roles, and its network rules let this machine in"
	notThereYet = "not there yet; the first start makes it"
)

func (s *System) checkStorage(ctx context.Context, wrong error) []Finding {
	if errors.Is(wrong, embedded.ErrNoStore) {
		return []Finding{{Name: "storage", Detail: s.Settings.Data + ": " + notThereYet}}
	}
	if s.Account == nil && s.Settings.Data != "" {
		return []Finding{{Name: "storage", Wrong: wrong, Todo: "see docs/without-azure.md"}}
	}

	if s.Account == nil {
		return []Finding{{Name: "storage", Wrong: cmp.Or(wrong, errors.New("no account is named")),
			Todo: "set AzureWebJobsStorage (or AzureWebJobsStorage__accountName), " +
				"and WEIR_PREFIX if it is not weir"}}
	}

	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	checks := []func(context.Context) Finding{s.checkTable, s.checkMessages,
		s.checkSchedules, s.checkQueues, s.checkBlobs, s.checkClock}
	if s.Settings.Intake.Files != nil {
		checks = append(checks, s.checkInbox)
	}

	findings := make([]Finding, len(checks))
	var all sync.WaitGroup
	for i, check := range checks {
		all.Go(func() {
			err := panics.Catch(func() error { findings[i] = check(ctx); return nil })
			if err != nil {
				findings[i] = Finding{Name: "check", Wrong: err}
			}
		})
	}

	all.Wait()

	return findings
}

func (s *System) checkTable(ctx context.Context) Finding {
	f := Finding{Name: "table", Todo: todoStorage}
	record, err := epochs.Read(ctx, s.Account.Table())
	if storage.Is(err, storage.NotFound) || errors.Is(err, epochs.ErrNoFormat) &&
		s.isStorageUnused(ctx) {
		err = nil
	}

	recorded := record.Open
	want := epochs.Epoch{Lanes: s.Settings.Lanes, Fold: s.Settings.Fold.Rules}
	switch {
	case err != nil:
		return addStorageError(f, err)
	case record.Step.IsMove():
		f.Wrong, f.Todo = lane.CheckNotMoved(record), "docs/without-azure.md#move-to-azure-and-back"
	case recorded.Lanes == 0:
		f.Detail = notThereYet
	case !recorded.HasSameLanes(want) && s.isStorageUnused(ctx):
		f.Detail = fmt.Sprintf(
			"lanes: %s; storage was never used, so the next start takes lanes: %s from %s",
			recorded,
			want, s.Settings.FileName)

	case recorded.Fold != want.Fold:
		f.Wrong = fmt.Errorf("storage has lanes: %d and fold: %s, and the settings have lanes: %d and fold: %s",
			recorded.Lanes, recorded.Fold, want.Lanes, want.Fold)
		f.Todo = fmt.Sprintf("set lanes: %d and fold: %s, or change storage by weir lanes %d --fold %s", recorded.Lanes,
			recorded.Fold, want.Lanes, want.Fold.Flag())

	case recorded.Lanes != want.Lanes:
		f.Wrong = fmt.Errorf("the number of lanes is %d in storage, and %d in the setting",
			recorded.Lanes, want.Lanes)
		f.Todo = fmt.Sprintf("set lanes: %d, or change storage by weir lanes %d", recorded.Lanes,
			want.Lanes)

	default:
		f.Detail = fmt.Sprintf("lanes: %s", recorded)
	}

	return f
}

// isStorageUnused reports whether a process takes the number of lanes from its settings at its next
// start.
func (s *System) isStorageUnused(ctx context.Context) bool {
	store := &lane.Store{Table: s.Account.Table(), Now: time.Now}
	record, err := epochs.Read(ctx, store.Table)
	if err != nil && !errors.Is(err, epochs.ErrNoFormat) || record.Step != epochs.StepNone {
		return false
	}

	isUnused, err := store.IsUnused(ctx, record)
	return err == nil && isUnused
}

func (s *System) checkSchedules(ctx context.Context) Finding {
	load, err := (&recur.Store{Table: s.Account.Table(), Now: time.Now}).ReadLoad(ctx)
	return addStorageError(compareSchedules(load, s.Settings.Schedules.Limits()), err)
}

// compareSchedules warns if the load exceeds a limit. It reports no error, because stored schedules
// still run after a limit was lowered.
func compareSchedules(load recur.Load, limits recur.Limits) Finding {
	f := Finding{Name: "schedules", Todo: todoStorage,
		Detail: fmt.Sprintf("%d of at most %d, up to %.3g messages a second of at most %.3g",
			load.Count, limits.Count, load.Rate, limits.Rate)}
	if load.Count > limits.Count || load.Rate > limits.Rate {
		f.Warnings = append(f.Warnings,
			"the stored schedules exceed the limits (schedules.max, schedules.rate); "+
				"they run on, and none can be added")
	}

	return f
}

func (s *System) checkQueues(ctx context.Context) Finding {
	tickets, err := s.Account.Tickets().Length(ctx)
	poison, poisonErr := s.Account.Poison().Length(ctx)
	return addStorageError(Finding{Name: "queues", Todo: todoStorage,
		Detail: fmt.Sprintf("%d waiting, %d poisoned", tickets, poison)}, cmp.Or(err, poisonErr))
}

func (s *System) checkBlobs(ctx context.Context) Finding {
	_, err := s.Account.Bodies().List(ctx, "none/", "")
	return addStorageError(Finding{Name: "blobs", Todo: todoStorage}, err)
}

// maxInboxAge is the age above which weir check warns of a file that waits in the inbox. Weir lets
// an empty file wait for an hour, so maxInboxAge is longer.
const maxInboxAge = 2 * time.Hour

func (s *System) checkInbox(ctx context.Context) Finding {
	page, err := s.Account.Inbox().List(ctx, "", "")
	events, eventsErr := s.Account.InboxEvents().Length(ctx)
	return addStorageError(describeInbox(page, events, time.Now()), cmp.Or(err, eventsErr))
}

func describeInbox(page storage.FilePage, events int64, now time.Time) Finding {
	count, old := fmt.Sprint(len(page.Files)), 0
	if page.Next != "" {
		count += " and more"
	}

	for _, f := range page.Files {
		if now.Sub(f.ModifiedAt) > maxInboxAge {
			old++
		}
	}

	f := Finding{Name: "inbox", Todo: todoStorage,
		Detail: fmt.Sprintf("files waiting: %s, events: %d", count, events)}

	if old > 0 {
		f.Warnings = append(f.Warnings,
			fmt.Sprintf("files in the inbox for over %.0f hours: %d; docs/files.md has "+
				"the reasons", maxInboxAge.Hours(), old))
	}

	return f
}

func (s *System) checkClock(ctx context.Context) Finding {
	skew, err := s.Account.Skew(ctx)
	if azure.Missing(err) {
		return Finding{Name: "clock",
			Detail: "not compared yet; that needs what the first start makes"}
	}

	f := addStorageError(Finding{Name: "clock", Todo: todoStorage,
		Detail: fmt.Sprintf("differs from storage's by about %s", skew.Abs().Round(time.Second))},
		err)

	if err == nil && skew.Abs() >= lane.ClockSkew {
		f.Wrong = fmt.Errorf("storage's clock differs by about %s", skew.Round(time.Second))
		f.Todo = "have this machine's clock set by NTP"
	}

	return f
}

// addStorageError adds the error of a check to the finding. A missing table, queue or container is
// no problem, because the first start of a process creates it.
func addStorageError(f Finding, err error) Finding {
	switch {
	case azure.Missing(err):
		f.Detail = notThereYet
	case err != nil:
		f.Wrong = firstLine(err)
	}
	return f
}

// firstLine shortens err to its first line, because errors of the Azure SDK have many lines.
func firstLine(err error) error {
	line, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
	return errors.New(strings.TrimSpace(line))
}
