package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
)

// IdempotencyKey names a body by what is in it: the same one sent again is the same message.
func IdempotencyKey(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha256-" + hex.EncodeToString(sum[:])
}

// Send sends a message, under the name of its content.
func (c *Client) Send(ctx context.Context, body []byte) (Answer[Receipt], error) {
	return read[Receipt](ctx, c, request{method: http.MethodPost, path: "/messages", contentType: "application/xml", idempotency: IdempotencyKey(body), body: body})
}

// Message tells where a message is.
func (c *Client) Message(ctx context.Context, id string) (Answer[Message], error) {
	return get[Message](ctx, c, message(id), nil)
}

// Outlook reads where a message is and, while it waits, its position and the reason.
func (c *Client) Outlook(ctx context.Context, id string) (Answer[Message], error) {
	return get[Message](ctx, c, message(id), url.Values{"outlook": {"1"}})
}

// Body gives a message's body as it was accepted, or as it was corrected.
func (c *Client) Body(ctx context.Context, id string, edited bool) ([]byte, error) {
	r := request{method: http.MethodGet, path: message(id) + "/body"}
	if edited {
		r.query = url.Values{"which": {"edited"}}
	}
	return c.ask(ctx, r)
}

// Difference gives what the last edit changed of the body, as a unified difference.
func (c *Client) Difference(ctx context.Context, id string) (string, error) {
	d, err := get[struct {
		Difference string `json:"difference"`
	}](ctx, c, message(id)+"/difference", nil)
	return d.Value.Difference, err
}

// Find lists messages, the newest first.
func (c *Client) Find(ctx context.Context, query url.Values) (Answer[MessageList], error) {
	return get[MessageList](ctx, c, "/messages", query)
}

// Errors lists what dead messages died of.
func (c *Client) Errors(ctx context.Context, limit int) (Answer[ErrorList], error) {
	return get[ErrorList](ctx, c, "/errors", url.Values{"limit": {strconv.Itoa(limit)}})
}

// Replay has a dead message delivered again, as it was accepted, or corrected last.
func (c *Client) Replay(ctx context.Context, id string, force bool) (Answer[Message], error) {
	return read[Message](ctx, c, request{method: http.MethodPost, path: message(id) + "/replay", query: forced(force)})
}

// Edit has a dead message delivered again, with a corrected body.
func (c *Client) Edit(ctx context.Context, id string, body []byte, note string, force bool) (Answer[Message], error) {
	query := forced(force)
	if note != "" {
		query.Set("note", note)
	}
	return read[Message](ctx, c, request{method: http.MethodPost, path: message(id) + "/edit", query: query, contentType: "application/xml", body: body})
}

// PlanReplay tells what a replay would come to.
func (c *Client) PlanReplay(ctx context.Context, r Replay) (Answer[Plan], error) {
	r.DryRun = true
	return post[Plan](ctx, c, "/replays", r)
}

// StartReplay begins a replay.
func (c *Client) StartReplay(ctx context.Context, r Replay) (Answer[Job], error) {
	r.DryRun = false
	return post[Job](ctx, c, "/replays", r)
}

// Job tells how far a replay has come.
func (c *Client) Job(ctx context.Context, id string) (Answer[Job], error) {
	return get[Job](ctx, c, "/replays/"+url.PathEscape(id), nil)
}

// Cancel stops a message from being delivered.
func (c *Client) Cancel(ctx context.Context, id string) (Answer[Message], error) {
	return read[Message](ctx, c, request{method: http.MethodPost, path: message(id) + "/cancel"})
}

// CancelMany cancels, or counts, the waiting messages of a filter, from r.Continue on.
func (c *Client) CancelMany(ctx context.Context, r Cancellation) (Answer[Cancelled], error) {
	return post[Cancelled](ctx, c, "/cancellations", r)
}

// Pauses lists what is paused.
func (c *Client) Pauses(ctx context.Context) (Answer[PauseList], error) {
	return get[PauseList](ctx, c, "/pauses", nil)
}

// Pause pauses, and lists what is paused then.
func (c *Client) Pause(ctx context.Context, p Pause) (Answer[PauseList], error) {
	return post[PauseList](ctx, c, "/pause", p)
}

// Resume ends pauses, and lists what is still paused.
func (c *Client) Resume(ctx context.Context, t Target) (Answer[PauseList], error) {
	return post[PauseList](ctx, c, "/resume", t)
}

func message(id string) string { return "/messages/" + url.PathEscape(id) }

func forced(force bool) url.Values {
	query := url.Values{}
	if force {
		query.Set("force", "true")
	}
	return query
}
