package azure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"weir/internal/storage"
)

const opTransact = "table transact"

// Transact implements storage.Table.
func (t *Table) Transact(ctx context.Context, partition string, ops []storage.Op) ([]storage.ETag, error) {
	actions, err := actionsOf(partition, ops)
	if err != nil {
		return nil, err
	}
	b := &batch{quotes: strings.Contains(partition, "'") || anyQuote(ops)}
	err = once(ctx, opTransact, func(ctx context.Context) error {
		_, err := t.client.SubmitTransaction(context.WithValue(ctx, batchKey{}, b), actions, nil)
		return err
	})
	if b.answer == nil {
		return nil, err
	}
	return b.etags(ops)
}

func anyQuote(ops []storage.Op) bool {
	for _, op := range ops {
		if strings.Contains(op.Key, "'") {
			return true
		}
	}
	return false
}

// actionsOf checks what can be checked before sending: storage answers some of these
// with an error that names no operation.
func actionsOf(partition string, ops []storage.Op) ([]aztables.TransactionAction, error) {
	switch {
	case len(ops) == 0:
		return nil, refused(storage.Other, -1, errors.New("no operations"))
	case len(ops) > storage.MaxOps:
		return nil, refused(storage.TooLarge, -1, fmt.Errorf("%d operations", len(ops)))
	}
	if err := checkKey(partition); err != nil {
		return nil, refused(storage.Other, -1, fmt.Errorf("partition: %w", err))
	}
	actions := make([]aztables.TransactionAction, len(ops))
	seen := make(map[string]bool, len(ops))
	for i, op := range ops {
		action, err := actionOf(partition, op)
		if err == nil && seen[op.Key] {
			err = errors.New("a second operation on the same row")
		}
		if err := errors.Join(checkKey(op.Key), err); err != nil {
			return nil, refused(storage.Other, i, err)
		}
		if err := checkRow(op); err != nil {
			return nil, refused(storage.TooLarge, i, err)
		}
		seen[op.Key], actions[i] = true, action
	}
	return actions, nil
}

func refused(k storage.Kind, index int, err error) error {
	return &storage.Error{Op: opTransact, Kind: k, Index: index, Err: err}
}

func actionOf(partition string, op storage.Op) (a aztables.TransactionAction, err error) {
	values, conditional := op.Values, true
	switch op.Kind {
	case storage.Insert:
		a.ActionType, conditional = aztables.TransactionTypeAdd, false
	case storage.Replace:
		a.ActionType = aztables.TransactionTypeUpdateReplace
	case storage.Merge:
		a.ActionType = aztables.TransactionTypeUpdateMerge
	case storage.Delete:
		a.ActionType, values = aztables.TransactionTypeDelete, nil
	case storage.Upsert:
		a.ActionType, conditional = aztables.TransactionTypeInsertReplace, false
	default:
		return a, fmt.Errorf("unknown kind of operation %d", op.Kind)
	}
	if conditional {
		// Without the header, storage takes Replace and Merge for upserts.
		match := azcore.ETag(op.IfMatch)
		if match == "" {
			match = azcore.ETagAny
		}
		a.IfMatch = &match
	}
	a.Entity, err = encodeEntity(partition, op.Key, values)
	return a, err
}

type batchKey struct{}

// batch is a transaction under way and the raw answer to it.
type batch struct {
	quotes bool // some key has a quote in it
	answer *http.Response
	body   []byte
}

var errTaken = errors.New("the answer is read elsewhere")

// takeBatch takes the answer to a transaction before the SDK reads it: the SDK drops the
// ETags and which operation failed, and cannot bear a body it does not expect.
type takeBatch struct{}

// Do implements policy.Policy.
func (takeBatch) Do(req *policy.Request) (*http.Response, error) {
	b, ok := req.Raw().Context().Value(batchKey{}).(*batch)
	if !ok {
		return req.Next()
	}
	if req.Raw().ContentLength > storage.MaxPayloadBytes {
		return nil, refused(storage.TooLarge, -1, fmt.Errorf("%d bytes", req.Raw().ContentLength))
	}
	if b.quotes {
		if err := doubleQuotes(req); err != nil {
			return nil, refused(storage.Other, -1, err)
		}
	}
	resp, err := req.Next()
	if err != nil {
		return nil, err
	}
	if b.body, err = runtime.Payload(resp); err != nil {
		return nil, err
	}
	b.answer = resp
	return nil, errTaken
}

// doubleQuotes repairs the addresses in a transaction's body: a quote in a key has to be
// doubled there, which the SDK does for single requests only. The address lines are
// the only ones that begin with a method: an entity is one line of JSON.
func doubleQuotes(req *policy.Request) error {
	body, err := io.ReadAll(req.Body())
	if err != nil {
		return err
	}
	lines := bytes.Split(body, []byte("\n"))
	for i, l := range lines {
		for _, method := range []string{"PUT ", "PATCH ", "MERGE ", "DELETE "} {
			if bytes.HasPrefix(l, []byte(method)) {
				lines[i] = bytes.ReplaceAll(l, []byte("%27"), []byte("%27%27"))
			}
		}
	}
	whole := bytes.NewReader(bytes.Join(lines, []byte("\n")))
	return req.SetBody(streaming.NopCloser(whole), req.Raw().Header.Get("Content-Type"))
}
