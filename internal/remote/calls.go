package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"weir/internal/wire"
)

// IdempotencyKey returns an idempotency key made from a body's hash. So a repeated post of the body
// creates no second message.
func IdempotencyKey(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha256-" + hex.EncodeToString(sum[:])
}

// Send posts a message with the IdempotencyKey of its body.
func (c *Client) Send(ctx context.Context, body []byte) (Answer[wire.Receipt], error) {
	return readAnswer[wire.Receipt](ctx, c, request{method: http.MethodPost, path: "/messages",
		contentType: "application/xml", idempotency: IdempotencyKey(body), isSubmission: true,
		body: body})
}

// SendBatch posts a batch. The batch's idempotency key is made from body, mode and split.
func (c *Client) SendBatch(ctx context.Context, contentType string, body []byte,
	mode wire.BatchMode, split []string) (Answer[wire.Batch], error) {
	query := url.Values{"mode": {string(mode)}, "split": split}
	key := IdempotencyKey(append([]byte(query.Encode()+"\n"), body...))
	return readAnswer[wire.Batch](ctx, c,
		request{method: http.MethodPost, path: "/batches", query: query,
			contentType: contentType, idempotency: key, isSubmission: true, body: body})
}

// Batch reads the progress of a batch.
func (c *Client) Batch(ctx context.Context, id string) (Answer[wire.Batch], error) {
	return getJSON[wire.Batch](ctx, c, "/batches/"+url.PathEscape(id), nil)
}

// CancelBatch asks Weir to accept no further parts of a batch.
func (c *Client) CancelBatch(ctx context.Context, id string) (Answer[wire.Batch], error) {
	return readAnswer[wire.Batch](ctx, c,
		request{method: http.MethodDelete, path: "/batches/" + url.PathEscape(id)})
}

// Message reads the state of a message.
func (c *Client) Message(ctx context.Context, id string) (Answer[wire.Message], error) {
	return getJSON[wire.Message](ctx, c, messagePath(id), nil)
}

// Outlook reads the state of a message. If the message is waiting, its state includes a forecast of
// the delivery.
func (c *Client) Outlook(ctx context.Context, id string) (Answer[wire.Message], error) {
	return getJSON[wire.Message](ctx, c, messagePath(id), url.Values{"outlook": {"1"}})
}

// Body returns a message's edited body if isEdited is true, and otherwise the accepted body.
func (c *Client) Body(ctx context.Context, id string, isEdited bool) ([]byte, error) {
	r := request{method: http.MethodGet, path: messagePath(id) + "/body"}
	if isEdited {
		r.query = url.Values{"which": {"edited"}}
	}
	return c.doRequest(ctx, r)
}

// Reveal returns the same body as Body, but shows the redacted values. The client needs the key of
// the function "write".
func (c *Client) Reveal(ctx context.Context, id string, isEdited bool) ([]byte, error) {
	r := request{method: http.MethodPost, path: messagePath(id) + "/reveal"}
	if isEdited {
		r.query = url.Values{"which": {"edited"}}
	}
	return c.doRequest(ctx, r)
}

// Difference returns the last edit of a message's body as a unified diff.
func (c *Client) Difference(ctx context.Context, id string) (string, error) {
	d, err := getJSON[struct {
		Difference string `json:"difference"`
	}](ctx, c, messagePath(id)+"/difference", nil)
	return d.Value.Difference, err
}

// Find searches for messages and returns a page of them, with the newest first.
func (c *Client) Find(ctx context.Context, query url.Values) (Answer[MessageList], error) {
	return getJSON[MessageList](ctx, c, "/messages", query)
}

// List returns a page of a list of messages. The path begins after /api.
func (c *Client) List(ctx context.Context, path string,
	query url.Values) (Answer[MessageList], error) {
	return getJSON[MessageList](ctx, c, path, query)
}

// Export copies a list of messages to a writer, in the format that query names. If Export fails, it
// may have written a part of the list.
func (c *Client) Export(ctx context.Context, path string, query url.Values, to io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		c.requestURL(request{path: path, query: query}), http.NoBody)
	if err != nil {
		return &Error{Message: "the request cannot be built", Err: err}
	}

	if c.key != "" {
		req.Header.Set("X-Functions-Key", c.key)
	}

	resp, err := c.http.Do(req)
	if err != nil {
		return unreachableError(ctx, err)
	}
	defer resp.Body.Close()

	if resp.StatusCode != http.StatusOK {
		// if the read fails, refusalError guesses the cause
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		return refusalError(resp, body)
	}

	if _, err := io.Copy(to, resp.Body); err != nil {
		return unreachableError(ctx, err)
	}

	return nil
}

// Errors lists the causes of dead messages. The parameter "limit" is the largest number of causes.
func (c *Client) Errors(ctx context.Context, limit int) (Answer[wire.ErrorList], error) {
	return getJSON[wire.ErrorList](ctx, c, "/errors", url.Values{"limit": {strconv.Itoa(limit)}})
}

// Replay requests a replay of a dead message. If force is true, Weir replays the message even if a
// later message of the key was delivered.
func (c *Client) Replay(ctx context.Context, id string, force bool) (Answer[wire.Message], error) {
	return readAnswer[wire.Message](ctx, c,
		request{method: http.MethodPost, path: messagePath(id) + "/replay",
			query: forceQuery(force)})
}

// Edit replaces the body of a dead message and requests a replay. note is the reason for the edit;
// "" = no reason. force has the same meaning as in Replay.
func (c *Client) Edit(ctx context.Context, id string, body []byte, note string,
	force bool) (Answer[wire.Message], error) {
	query := forceQuery(force)
	if note != "" {
		query.Set("note", note)
	}
	return readAnswer[wire.Message](ctx, c,
		request{method: http.MethodPost, path: messagePath(id) + "/edit", query: query,
			contentType: "application/xml", body: body})
}

// PlanReplay returns the expected effect of a bulk replay, without starting the bulk replay.
func (c *Client) PlanReplay(ctx context.Context,
	r wire.ReplayRequest) (Answer[wire.JobPlan], error) {
	r.DryRun = true
	return postJSON[wire.JobPlan](ctx, c, "/replays", r)
}

// StartReplay starts a bulk replay.
func (c *Client) StartReplay(ctx context.Context, r wire.ReplayRequest) (Answer[wire.Job], error) {
	r.DryRun = false
	return postJSON[wire.Job](ctx, c, "/replays", r)
}

// Job reads the state of a bulk replay.
func (c *Client) Job(ctx context.Context, id string) (Answer[wire.Job], error) {
	return getJSON[wire.Job](ctx, c, "/replays/"+url.PathEscape(id), nil)
}

// Cancel cancels a scheduled message, or requests the cancellation of a message that is queued or
// retrying.
func (c *Client) Cancel(ctx context.Context, id, reason string) (Answer[wire.Message], error) {
	return c.changeWithReason(ctx, messagePath(id)+"/cancel", reason)
}

// Erase erases the content of a final message.
func (c *Client) Erase(ctx context.Context, id string) (Answer[wire.Message], error) {
	return readAnswer[wire.Message](ctx, c,
		request{method: http.MethodPost, path: messagePath(id) + "/erase"})
}

// Discard requests that Weir gives a dead message up for good.
func (c *Client) Discard(ctx context.Context, id, reason string) (Answer[wire.Message], error) {
	return c.changeWithReason(ctx, messagePath(id)+"/discard", reason)
}

func (c *Client) changeWithReason(ctx context.Context, path,
	reason string) (Answer[wire.Message], error) {
	r := request{method: http.MethodPost, path: path}
	if reason != "" {
		r.query = url.Values{"reason": {reason}}
	}
	return readAnswer[wire.Message](ctx, c, r)
}

// DiscardMany requests the discard of the dead messages that r.Filter selects, beginning at
// r.Continue. If r.DryRun is true, Weir only counts the messages.
func (c *Client) DiscardMany(ctx context.Context,
	r wire.BulkRequest[wire.DiscardFilter]) (Answer[wire.BulkAnswer], error) {
	return postJSON[wire.BulkAnswer](ctx, c, "/discards", r)
}

// CancelMany cancels the waiting messages that r.Filter selects, beginning at r.Continue. If
// r.DryRun is true, Weir only counts the messages.
func (c *Client) CancelMany(ctx context.Context,
	r wire.BulkRequest[wire.WaitingFilter]) (Answer[wire.BulkAnswer], error) {
	return postJSON[wire.BulkAnswer](ctx, c, "/cancellations", r)
}

// Lanes returns the state of all lanes.
func (c *Client) Lanes(ctx context.Context) (Answer[wire.LaneList], error) {
	return getJSON[wire.LaneList](ctx, c, "/lanes", nil)
}

// Pauses lists the operators' pauses that are in force. The answer also has the state of the CMS's
// calendar, if one is configured.
func (c *Client) Pauses(ctx context.Context) (Answer[wire.PauseList], error) {
	return getJSON[wire.PauseList](ctx, c, "/pauses", nil)
}

// Pause pauses a target, and then lists the operators' pauses that are in force.
func (c *Client) Pause(ctx context.Context, p PauseRequest) (Answer[wire.PauseList], error) {
	return postJSON[wire.PauseList](ctx, c, "/pause", p)
}

// Resume ends the pauses of a target, and then lists the operators' pauses that are still in force.
func (c *Client) Resume(ctx context.Context, t Target) (Answer[wire.PauseList], error) {
	return postJSON[wire.PauseList](ctx, c, "/resume", t)
}

// Versions lists the newest delivered version of a key for each contract. If contract is not empty,
// it lists the version of that contract only.
func (c *Client) Versions(ctx context.Context, key,
	contract string) (Answer[wire.VersionList], error) {
	return getJSON[wire.VersionList](ctx, c, "/versions", newKeyQuery(key, contract))
}

func newKeyQuery(key, contract string) url.Values {
	query := url.Values{"key": {key}}
	if contract != "" {
		query.Set("contract", contract)
	}
	return query
}

// ForgetVersion asks Weir to forget the newest delivered version of a key for one contract.
func (c *Client) ForgetVersion(ctx context.Context, key,
	contract string) (Answer[wire.VersionList], error) {
	return postJSON[wire.VersionList](ctx, c, "/versions/forget",
		map[string]string{"key": key, "contract": contract})
}

// Remembered lists the remembered id of a key for each contract. If contract is not empty, it lists
// the id of that contract only.
func (c *Client) Remembered(ctx context.Context, key,
	contract string) (Answer[wire.RememberedList], error) {
	return getJSON[wire.RememberedList](ctx, c, "/remembered", newKeyQuery(key, contract))
}

// ForgetRemembered asks Weir to forget the remembered id of a key for one contract.
func (c *Client) ForgetRemembered(ctx context.Context, key,
	contract string) (Answer[wire.RememberedList], error) {
	return postJSON[wire.RememberedList](ctx, c, "/remembered/forget",
		map[string]string{"key": key, "contract": contract})
}

func messagePath(id string) string { return "/messages/" + url.PathEscape(id) }

func forceQuery(force bool) url.Values {
	query := url.Values{}
	if force {
		query.Set("force", "true")
	}
	return query
}
