// Package inbox is the function for the events of the inbox: Event Grid enqueues an event for each file that a system
// puts into the inbox. The event is a hint only. For each event the function looks at the whole inbox, as the sweep
// does each minute. So if an event is lost, repeated or late, no file is lost or taken twice.
package inbox

import (
	"context"
	"log/slog"
	"net/http"

	"weir/internal/invoke"
)

// Collector takes the files of the inbox; see inbox.Collector.
type Collector interface {
	CollectSoon(ctx context.Context) error
}

// Function takes files when an event arrives.
type Function struct {
	Inbox  Collector // nil = weir.yaml has no intake.files, so events are dropped
	Logger *slog.Logger
}

// Handler returns the handler that the host calls.
func (f *Function) Handler() http.Handler { return invoke.Handler("inbox", f.Logger, f.Take) }

// Take takes the files of the inbox. It returns no error if files are left: the next sweep takes them, and a repeated
// event would only make Take look at the inbox once more.
func (f *Function) Take(ctx context.Context, in invoke.Invocation) error {
	if f.Inbox == nil {
		f.Logger.Warn("inbox: event dropped, because intake.files is not set", "invocation_id", in.ID)
		return nil
	}
	if err := f.Inbox.CollectSoon(ctx); err != nil {
		f.Logger.Warn("inbox: files left for the next sweep", "invocation_id", in.ID, "err", err)
	}
	return nil
}
