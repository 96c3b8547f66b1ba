package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"weir/internal/storage"
)

type answerKey struct{}

// answer has the body of storage's answer to a read of the table.
type answer struct{ body []byte }

// withAnswer returns a context for a read of the table. When storage answers, answerPolicy stores
// the body in the given answer.
func withAnswer(ctx context.Context, a *answer) context.Context {
	return context.WithValue(ctx, answerKey{}, a)
}

// answerPolicy takes the body of the answer to a read, and passes an empty object to the SDK in
// place of the body. Without this policy, the SDK would decode each row twice and encode the row
// again, and Weir would then decode the row once more. When a holder reads a backlog, this decoding
// would be more work than everything else that a message costs.
type answerPolicy struct{}

// Do implements policy.Policy.
func (answerPolicy) Do(req *policy.Request) (*http.Response, error) {
	resp, err := req.Next()
	a, isRead := req.Raw().Context().Value(answerKey{}).(*answer)
	if !isRead || err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}

	if a.body, err = runtime.Payload(resp); err != nil {
		return nil, err
	}

	resp.Body = io.NopCloser(strings.NewReader("{}"))

	return resp, nil
}

// decodeRow parses the answer to a get.
func (a *answer) decodeRow() (storage.Row, error) {
	var entity map[string]any
	if err := json.Unmarshal(a.body, &entity); err != nil {
		return storage.Row{}, fmt.Errorf("decode the answer: %w", err)
	}
	row, err := toRow(entity)
	return row, defectError("table get", err)
}

// decodeRows parses the answer to a query.
func (a *answer) decodeRows() ([]storage.Row, error) {
	var page struct {
		Value []map[string]any `json:"value"`
	}
	if err := json.Unmarshal(a.body, &page); err != nil {
		return nil, fmt.Errorf("decode the answer: %w", err)
	}

	rows := make([]storage.Row, len(page.Value))
	for i, entity := range page.Value {
		row, err := toRow(entity)
		if err == nil && row.ETag == "" {
			err = errors.New("an entity without an ETag")
		}

		if err != nil {
			return nil, defectError("table query", err)
		}

		rows[i] = row
	}

	return rows, nil
}
