package remote

import (
	"context"
	"encoding/json"
	"net/url"
	"time"
)

// ChangeList is a page of the audit log.
type ChangeList struct {
	Entries []Change `json:"entries"`
	// parameter "continue" of the query for the next page; "" = last page
	Continue string `json:"continue"`
}

// Change is an entry of the audit log.
type Change struct {
	At        time.Time       `json:"at"`
	Action    string          `json:"action"`
	Subject   string          `json:"subject"`
	Detail    json.RawMessage `json:"detail"`
	Function  string          `json:"function"`
	Status    int             `json:"status"`
	Principal string          `json:"principal"`
	KeyID     string          `json:"keyId"`
	From      string          `json:"from"`

	RedactedBy []string `json:"redactedBy"` // ids of the messages whose erasure changed Detail
}

// Changes reads a page of the audit log, with the newest entries first.
func (c *Client) Changes(ctx context.Context, query url.Values) (Answer[ChangeList], error) {
	return getJSON[ChangeList](ctx, c, "/audit", query)
}
