package azure

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"

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

// readETags returns the new ETags from the answer to a transaction. The answer has one of these
// forms:
//
//   - one part for each operation
//   - one part with the failure of an operation
//   - no parts, if storage refused the whole request
func (b *batch) readETags(ops []storage.Op) ([]storage.ETag, error) {
	if b.response.StatusCode != http.StatusAccepted {
		return nil, toStorageError(opTransact, sentWrite, runtime.NewResponseError(b.response))
	}

	parts, err := b.readParts()
	if err != nil {
		return nil, refusedError(storage.Ambiguous, -1, fmt.Errorf("read answer: %w", err))
	}

	for _, p := range parts {
		if p.status >= 300 {
			return nil, p.parseError(len(ops))
		}
	}

	if len(parts) != len(ops) {
		return nil, refusedError(storage.Ambiguous, -1,
			fmt.Errorf("%d answers to %d operations", len(parts), len(ops)))
	}

	tags := make([]storage.ETag, len(ops))
	for i, p := range parts {
		if ops[i].Kind == storage.Delete {
			continue
		}

		if tags[i] = p.etag; p.etag == "" {
			return nil, refusedError(storage.Ambiguous, -1,
				fmt.Errorf("no ETag for operation %d", i))
		}
	}

	return tags, nil
}

// responsePart is the answer to one operation.
type responsePart struct {
	status int
	etag   storage.ETag
	header http.Header
	body   []byte
}

// readParts unpacks the multipart answer, which contains a second multipart answer.
func (b *batch) readParts() (parts []responsePart, err error) {
	outer, err := openMultipart(b.response.Header.Get("Content-Type"), bytes.NewReader(b.body))
	if err != nil {
		return nil, err
	}

	set, err := outer.NextPart()
	if err != nil {
		return nil, err
	}

	inner, err := openMultipart(set.Header.Get("Content-Type"), set)
	if err != nil {
		return nil, err
	}

	r := bufio.NewReader(nil)
	for {
		raw, err := inner.NextPart()
		if errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil {
			return nil, err
		}

		r.Reset(raw)
		p, err := readPart(r)
		if err != nil {
			return nil, err
		}

		parts = append(parts, p)
	}
}

func openMultipart(contentType string, r io.Reader) (*multipart.Reader, error) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, err
	}
	if params["boundary"] == "" {
		return nil, errors.New("no boundary")
	}

	return multipart.NewReader(r, params["boundary"]), nil
}

func readPart(r *bufio.Reader) (responsePart, error) {
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return responsePart{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return responsePart{}, err
	}

	return responsePart{resp.StatusCode, storage.ETag(resp.Header.Get("ETag")), resp.Header, body},
		nil
}

// parseError returns the failure that a part reports. Parameter ops is the number of the
// transaction's operations.
func (p responsePart) parseError(ops int) error {
	var doc struct {
		Error struct {
			Code    string `json:"code"`
			Message struct {
				Value string `json:"value"`
			} `json:"message"`
		} `json:"odata.error"`
	}

	// If the body is not JSON, code and message stay empty.
	_ = json.Unmarshal(p.body, &doc)
	e := &storage.Error{
		Op: opTransact, Kind: kindOf(sentWrite, p.status, doc.Error.Code), Index: -1,
		RetryAfter: retryAfter(&http.Response{Header: p.header}),
		Err:        addErrGone(doc.Error.Code, fmt.Errorf("%d %s", p.status, doc.Error.Code)),
	}

	// If the status is 500 or more, or if Kind is Throttled, no single operation has caused the
	// failure.
	if p.status < 500 && e.Kind != storage.Throttled {
		e.Index = indexOf(doc.Error.Message.Value, ops)
	}

	return e
}

// indexOf returns the index of the failed operation, which is the number in front of the first
// colon of storage's message. If the message has no such number, the index is 0 for a transaction
// of one operation, otherwise -1.
func indexOf(message string, ops int) int {
	number, _, found := strings.Cut(message, ":")
	if n, err := strconv.Atoi(number); found && err == nil && n >= 0 && n < ops {
		return n
	}

	if ops == 1 {
		return 0
	}

	return -1
}
