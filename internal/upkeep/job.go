package upkeep

import (
	"context"
	"time"

	"weir/internal/storage"
)

// Job is one kind of clean-up beside the retention of the lanes' messages.
type Job struct {
	// Name identifies the job in the log and in its row, so it never changes.
	Name string
	// Every is the time from a run that is done to the next run.
	Every time.Duration
	// Limit is the longest time of one call of Run. The rest of the work follows in the next pass.
	Limit time.Duration
	// Run continues from a marker; "" = from the beginning. When Run returns an error or ctx has
	// ended, Step.Marker is the place to continue from.
	Run func(ctx context.Context, marker string) (Step, error)
}

// Step is the result of one call of Job.Run.
type Step struct {
	Marker string    // where the next call continues; "" = at the beginning
	IsDone bool      // nothing is left to do before NextAt
	NextAt time.Time // time of the next call if IsDone is set; zero = after Job.Every
}

const (
	day = 24 * time.Hour
	// hourly is a little less than an hour, because some processes run jobs only at the start of an
	// hour.
	hourly = 50 * time.Minute
	// stepLimit is the limit of most jobs. All jobs together need a few minutes for a pass, even if
	// each of them has more to remove than it can.
	stepLimit = 30 * time.Second
)

// Parts has the stores that the jobs of a process keep clean. Batches and Files can be nil: other
// processes then do these jobs.
type Parts struct {
	Messages  MessageRetention
	Audit     Remover
	History   Remover
	Replays   Remover
	Schedules ScheduleStore
	Leases    LeaseBlobs
	Batches   BatchStore
	Files     FileArchive
	Now       func() time.Time
}

// ScheduleStore has the large messages of schedules.
type ScheduleStore interface {
	RemoveMessages(ctx context.Context, marker string) (next string, isDone bool, err error)
}

// BatchStore has batches and their documents.
type BatchStore interface {
	Remover
	RemoveDocuments(ctx context.Context, marker string) (next string, isDone bool, err error)
}

// FileArchive has the files that were taken from the inbox.
type FileArchive interface {
	RemoveAccepted(ctx context.Context, marker string) (next string, isDone bool, err error)
	RemoveRejected(ctx context.Context, marker string) (next string, isDone bool, err error)
}

// Jobs returns all jobs of a process. Each kind of row and blob that grows beside the lanes has a
// job here.
func Jobs(p Parts) []Job {
	jobs := []Job{EarlierEpochs(p.Messages), ForgottenBodies(p.Messages), AuditEntries(p.Audit),
		HistoryRows(p.History), FinishedReplays(p.Replays),
		ScheduleMessages(p.Schedules.RemoveMessages),
		UnusedLeases(p.Leases, p.Now)}

	if p.Batches != nil {
		jobs = append(jobs, Batches(p.Batches), BatchDocuments(p.Batches.RemoveDocuments))
	}

	if p.Files != nil {
		jobs = append(jobs, AcceptedFiles(p.Files.RemoveAccepted),
			RejectedFiles(p.Files.RemoveRejected))
	}

	return jobs
}

// Remover removes what is expired. RemoveExpired reports whether nothing expired is left. It needs
// no marker, because it finds the oldest at once.
type Remover interface {
	RemoveExpired(ctx context.Context) (isDone bool, err error)
}

func (r removal) run(ctx context.Context, _ string) (Step, error) {
	isDone, err := r.RemoveExpired(ctx)
	return Step{IsDone: isDone}, err
}

type removal struct{ Remover }

// AuditEntries removes the entries of the audit log past their retention.
func AuditEntries(log Remover) Job {
	return Job{Name: "audit-entries", Every: hourly, Limit: stepLimit, Run: removal{log}.run}
}

// HistoryRows removes old rows of the history.
func HistoryRows(history Remover) Job {
	return Job{Name: "history-rows", Every: hourly, Limit: stepLimit, Run: removal{history}.run}
}

// FinishedReplays removes the bulk replays past their retention.
func FinishedReplays(replays Remover) Job {
	return Job{Name: "finished-replays", Every: day, Limit: stepLimit, Run: removal{replays}.run}
}

// Batches removes the batches past their retention, with their documents.
func Batches(batches Remover) Job {
	return Job{Name: "batches", Every: day, Limit: stepLimit, Run: removal{batches}.run}
}

// Walk removes what is expired of a listing without order, from a marker on. It returns the marker
// to continue from, and reports whether the listing has ended.
type Walk func(ctx context.Context, marker string) (next string, isDone bool, err error)

func (w Walk) run(ctx context.Context, marker string) (Step, error) {
	next, isDone, err := w(ctx, marker)
	return Step{Marker: next, IsDone: isDone}, err
}

// BatchDocuments removes stored documents without a batch.
func BatchDocuments(walk Walk) Job {
	return Job{Name: "batch-documents", Every: day, Limit: stepLimit, Run: walk.run}
}

// ScheduleMessages removes stored messages that no schedule has.
func ScheduleMessages(walk Walk) Job {
	return Job{Name: "schedule-messages", Every: day, Limit: stepLimit, Run: walk.run}
}

// AcceptedFiles removes the accepted files of the inbox past their retention.
func AcceptedFiles(walk Walk) Job {
	return Job{Name: "accepted-files", Every: day, Limit: stepLimit, Run: walk.run}
}

// RejectedFiles removes the rejected files of the inbox past their retention.
func RejectedFiles(walk Walk) Job {
	return Job{Name: "rejected-files", Every: day, Limit: stepLimit, Run: walk.run}
}

// MessageRetention removes messages of earlier epochs, and bodies to which no row refers. It keeps
// its own markers. Each method returns the time from which to call it again; the zero time means
// soon.
type MessageRetention interface {
	RunEarlierEpochs(ctx context.Context) (time.Time, error)
	RemoveForgottenBodies(ctx context.Context) (time.Time, error)
}

func runUntil(run func(context.Context) (time.Time, error)) func(context.Context, string) (Step,
	error) {
	return func(ctx context.Context, _ string) (Step, error) {
		next, err := run(ctx)
		return Step{IsDone: err == nil && !next.IsZero(), NextAt: next}, err
	}
}

// EarlierEpochs removes expired messages from the lanes of earlier epochs.
func EarlierEpochs(r MessageRetention) Job {
	return Job{Name: "earlier-epochs", Every: hourly, Limit: passLimit,
		Run: runUntil(r.RunEarlierEpochs)}
}

// ForgottenBodies removes bodies to which no row refers.
func ForgottenBodies(r MessageRetention) Job {
	// it stops by itself after about a minute, but only between two days
	const limit = 5 * time.Minute
	return Job{Name: "forgotten-bodies", Every: day, Limit: limit,
		Run: runUntil(r.RemoveForgottenBodies)}
}

// RemoveRows removes the rows that a query finds, until none is left or ctx ends. It reports whether
// none is left.
func RemoveRows(ctx context.Context, table storage.Table, q storage.Query) (isDone bool,
	err error) {
	q.Limit, q.Columns = storage.MaxOps, []string{"None"}
	for {
		page, err := table.Range(ctx, q)
		if err != nil {
			return false, err
		}
		if len(page.Rows) == 0 {
			return !page.More, nil
		}

		var ops []storage.Op
		for _, row := range page.Rows {
			ops = append(ops, storage.Op{Kind: storage.Delete, Key: row.Key})
		}

		_, err = table.Transact(ctx, q.Partition, ops)

		// NotFound means that another process has deleted one of the rows; the next page has the
		// rest.
		if err != nil && !storage.Is(err, storage.NotFound) {
			return false, err
		}
	}
}
