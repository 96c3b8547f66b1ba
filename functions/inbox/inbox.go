// Package inbox is the function that takes files when Event Grid reports them. Event Grid enqueues
// an event for each new file in the inbox. The function ignores the content of the event: it looks
// at the whole inbox, as the sweep does each minute. So a lost, repeated or late event does no
// harm.
package inbox

import (
	"context"
	"log/slog"
	"net/http"

	"weir/internal/invoke"
)

// Collector takes the files of the inbox; see Collector in weir/internal/inbox.
type Collector interface {
	CollectSoon(ctx context.Context) error
}

// Function takes files when an event arrives.
type Function struct {
	Inbox  Collector // nil = weir.yaml has no intake.files; the function then drops events
	Logger *slog.Logger
}

// Handler returns the handler that the host calls.
func (f *Function) Handler() http.Handler { return invoke.Handler("inbox", f.Logger, f.Take) }

// Take takes the files of the inbox. If files are left, Take returns no error, because the next
// sweep takes these files.
func (f *Function) Take(ctx context.Context, in invoke.Invocation) error {
	if f.Inbox == nil {
		f.Logger.Warn("inbox: event dropped, because intake.files is not set",
			"invocation_id", in.ID)
		return nil
	}

	if err := f.Inbox.CollectSoon(ctx); err != nil {
		f.Logger.Warn("inbox: files left for the next sweep", "invocation_id", in.ID, "err", err)
	}

	return nil
}
