package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"weir/internal/storage"
)

const opTransact = "table transact"

// Transact implements storage.Table.
func (t *Table) Transact(ctx context.Context, partition string,
	ops []storage.Op) ([]storage.ETag, error) {
	if err := checkOps(partition, ops); err != nil {
		return nil, err
	}

	b := &batch{table: t.name, partition: partition, ops: ops}
	err := doOnce(ctx, opTransact, func(ctx context.Context) error {
		_, err := t.client.SubmitTransaction(context.WithValue(ctx, batchKey{}, b),
			placeholderActions, nil)
		return err
	})

	if b.response == nil {
		return nil, err
	}

	return b.readETags(ops)
}

// placeholderActions make the SDK build a request. batchPolicy replaces the body of this request.
var placeholderActions = []aztables.TransactionAction{{ActionType: aztables.TransactionTypeDelete,
	Entity: []byte(`{"PartitionKey":"-","RowKey":"-"}`)}}

// checkOps refuses invalid operations before Transact sends them. For some mistakes, storage's own
// error does not name the operation.
func checkOps(partition string, ops []storage.Op) error {
	switch {
	case len(ops) == 0:
		return refusedError(storage.Other, -1, errors.New("no operations"))
	case len(ops) > storage.MaxOps:
		return refusedError(storage.TooLarge, -1, fmt.Errorf("%d operations", len(ops)))
	}

	if err := checkKey(partition); err != nil {
		return refusedError(storage.Other, -1, fmt.Errorf("partition: %w", err))
	}

	seen := make(map[string]bool, len(ops))
	for i, op := range ops {
		err := checkKey(op.Key)
		switch {
		case err != nil:
		case op.Kind < storage.Insert || op.Kind > storage.Upsert:
			err = fmt.Errorf("unknown kind of operation %d", op.Kind)
		case seen[op.Key]:
			err = errors.New("a second operation on the same row")
		}

		if err != nil {
			return refusedError(storage.Other, i, err)
		}

		if err := checkRow(op); err != nil {
			return refusedError(storage.TooLarge, i, err)
		}

		seen[op.Key] = true
	}

	return nil
}

func refusedError(k storage.Kind, index int, err error) error {
	return &storage.Error{Op: opTransact, Kind: k, Index: index, Err: err}
}

type batchKey struct{}

// batch is a transaction and its raw response.
type batch struct {
	table     string
	partition string
	ops       []storage.Op
	response  *http.Response
	body      []byte
}

var errResponseTaken = errors.New("the response is read by batchPolicy")

// batchPolicy sets the body of a transaction's request, and reads the response in place of the SDK.
// The SDK would drop the ETags and the index of the failed operation, and would fail on an
// unexpected body.
type batchPolicy struct{}

// Do implements policy.Policy.
func (batchPolicy) Do(req *policy.Request) (*http.Response, error) {
	b, ok := req.Raw().Context().Value(batchKey{}).(*batch)
	if !ok {
		return req.Next()
	}

	set, err := newChangeset(newTableAddress(*req.Raw().URL, b.table), b.partition, b.ops)
	if err != nil {
		return nil, err
	}
	if set.Len() > storage.MaxPayloadBytes {
		return nil, refusedError(storage.TooLarge, -1, fmt.Errorf("%d bytes", set.Len()))
	}

	if err := set.setBody(req); err != nil {
		return nil, refusedError(storage.Other, -1, err)
	}

	resp, err := req.Next()
	if err != nil {
		return nil, err
	}

	if b.body, err = runtime.Payload(resp); err != nil {
		return nil, err
	}

	b.response = resp

	return nil, errResponseTaken
}
