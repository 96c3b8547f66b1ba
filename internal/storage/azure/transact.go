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
func (t *Table) Transact(ctx context.Context, partition string, ops []storage.Op) ([]storage.ETag, error) {
	if err := checkOps(partition, ops); err != nil {
		return nil, err
	}
	b := &batch{table: t.name, partition: partition, ops: ops}
	err := once(ctx, opTransact, func(ctx context.Context) error {
		_, err := t.client.SubmitTransaction(context.WithValue(ctx, batchKey{}, b), placeholder, nil)
		return err
	})
	if b.answer == nil {
		return nil, err
	}
	return b.etags(ops)
}

// placeholder is what the SDK makes a request of, whose body takeBatch replaces.
var placeholder = []aztables.TransactionAction{{ActionType: aztables.TransactionTypeDelete, Entity: []byte(`{"PartitionKey":"-","RowKey":"-"}`)}}

// checkOps checks what can be checked before sending: storage answers some of these
// with an error that names no operation.
func checkOps(partition string, ops []storage.Op) error {
	switch {
	case len(ops) == 0:
		return refused(storage.Other, -1, errors.New("no operations"))
	case len(ops) > storage.MaxOps:
		return refused(storage.TooLarge, -1, fmt.Errorf("%d operations", len(ops)))
	}
	if err := checkKey(partition); err != nil {
		return refused(storage.Other, -1, fmt.Errorf("partition: %w", err))
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
			return refused(storage.Other, i, err)
		}
		if err := checkRow(op); err != nil {
			return refused(storage.TooLarge, i, err)
		}
		seen[op.Key] = true
	}
	return nil
}

func refused(k storage.Kind, index int, err error) error {
	return &storage.Error{Op: opTransact, Kind: k, Index: index, Err: err}
}

type batchKey struct{}

// batch is a transaction under way and the raw answer to it.
type batch struct {
	table     string // its name
	partition string
	ops       []storage.Op
	answer    *http.Response
	body      []byte
}

var errTaken = errors.New("the answer is read elsewhere")

// takeBatch gives a transaction's request the body we made, and takes the answer before the
// SDK reads it: the SDK drops the ETags and which operation failed, and cannot bear a body
// it does not expect.
type takeBatch struct{}

// Do implements policy.Policy.
func (takeBatch) Do(req *policy.Request) (*http.Response, error) {
	b, ok := req.Raw().Context().Value(batchKey{}).(*batch)
	if !ok {
		return req.Next()
	}
	set, err := newChangeset(addressOf(*req.Raw().URL, b.table), b.partition, b.ops)
	if err != nil {
		return nil, err
	}
	if set.Len() > storage.MaxPayloadBytes {
		return nil, refused(storage.TooLarge, -1, fmt.Errorf("%d bytes", set.Len()))
	}
	if err := set.send(req); err != nil {
		return nil, refused(storage.Other, -1, err)
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
