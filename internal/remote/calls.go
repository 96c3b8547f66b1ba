package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"

	"weir/internal/wire"
)

// IdempotencyKey returns a key from a body's hash, so that the same body sent again is the same message.
func IdempotencyKey(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha256-" + hex.EncodeToString(sum[:])
}

// Send posts a message with the IdempotencyKey of its body.
func (c *Client) Send(ctx context.Context, body []byte) (Answer[wire.Receipt], error) {
	return readAnswer[wire.Receipt](ctx, c, request{method: http.MethodPost, path: "/messages",
		contentType: "application/xml", idempotency: IdempotencyKey(body), body: body})
}

// Message reads the state of a message.
func (c *Client) Message(ctx context.Context, id string) (Answer[wire.Message], error) {
	return getJSON[wire.Message](ctx, c, messagePath(id), nil)
}

// Outlook reads the state of a message and, while it waits, its forecast.
func (c *Client) Outlook(ctx context.Context, id string) (Answer[wire.Message], error) {
	return getJSON[wire.Message](ctx, c, messagePath(id), url.Values{"outlook": {"1"}})
}

// Body returns the accepted or the edited body of a message.
func (c *Client) Body(ctx context.Context, id string, edited bool) ([]byte, error) {
	r := request{method: http.MethodGet, path: messagePath(id) + "/body"}
	if edited {
		r.query = url.Values{"which": {"edited"}}
	}
	return c.doRequest(ctx, r)
}

// Difference returns the changes of the last edit as a unified diff.
func (c *Client) Difference(ctx context.Context, id string) (string, error) {
	d, err := getJSON[struct {
		Difference string `json:"difference"`
	}](ctx, c, messagePath(id)+"/difference", nil)
	return d.Value.Difference, err
}

// Find lists messages, the newest first.
func (c *Client) Find(ctx context.Context, query url.Values) (Answer[MessageList], error) {
	return getJSON[MessageList](ctx, c, "/messages", query)
}

// Errors lists dead messages, grouped by cause.
func (c *Client) Errors(ctx context.Context, limit int) (Answer[wire.ErrorList], error) {
	return getJSON[wire.ErrorList](ctx, c, "/errors", url.Values{"limit": {strconv.Itoa(limit)}})
}

// Replay replays a dead message with its present body.
func (c *Client) Replay(ctx context.Context, id string, force bool) (Answer[wire.Message], error) {
	return readAnswer[wire.Message](ctx, c, request{method: http.MethodPost, path: messagePath(id) + "/replay",
		query: forceQuery(force)})
}

// Edit replays a dead message with a corrected body.
func (c *Client) Edit(ctx context.Context, id string, body []byte, note string, force bool) (Answer[wire.Message], error) {
	query := forceQuery(force)
	if note != "" {
		query.Set("note", note)
	}
	return readAnswer[wire.Message](ctx, c, request{method: http.MethodPost, path: messagePath(id) + "/edit", query: query,
		contentType: "application/xml", body: body})
}

// PlanReplay counts the messages of a bulk replay.
func (c *Client) PlanReplay(ctx context.Context, r ReplayRequest) (Answer[wire.JobPlan], error) {
	r.DryRun = true
	return postJSON[wire.JobPlan](ctx, c, "/replays", r)
}

// StartReplay starts a bulk replay.
func (c *Client) StartReplay(ctx context.Context, r ReplayRequest) (Answer[wire.Job], error) {
	r.DryRun = false
	return postJSON[wire.Job](ctx, c, "/replays", r)
}

// Job reads the state of a bulk replay.
func (c *Client) Job(ctx context.Context, id string) (Answer[wire.Job], error) {
	return getJSON[wire.Job](ctx, c, "/replays/"+url.PathEscape(id), nil)
}

// Cancel cancels a message.
func (c *Client) Cancel(ctx context.Context, id string) (Answer[wire.Message], error) {
	return readAnswer[wire.Message](ctx, c, request{method: http.MethodPost, path: messagePath(id) + "/cancel"})
}

// CancelMany cancels, or counts, the waiting messages of a filter, from r.Continue on.
func (c *Client) CancelMany(ctx context.Context, r Cancellation) (Answer[Cancelled], error) {
	return postJSON[Cancelled](ctx, c, "/cancellations", r)
}

// Pauses lists the pauses that hold now.
func (c *Client) Pauses(ctx context.Context) (Answer[wire.PauseList], error) {
	return getJSON[wire.PauseList](ctx, c, "/pauses", nil)
}

// Pause pauses a target, and lists the pauses that hold then.
func (c *Client) Pause(ctx context.Context, p PauseRequest) (Answer[wire.PauseList], error) {
	return postJSON[wire.PauseList](ctx, c, "/pause", p)
}

// Resume ends pauses, and lists the remaining ones.
func (c *Client) Resume(ctx context.Context, t Target) (Answer[wire.PauseList], error) {
	return postJSON[wire.PauseList](ctx, c, "/resume", t)
}

func messagePath(id string) string { return "/messages/" + url.PathEscape(id) }

func forceQuery(force bool) url.Values {
	query := url.Values{}
	if force {
		query.Set("force", "true")
	}
	return query
}
