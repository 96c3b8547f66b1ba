package azure

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"weir/internal/storage"
)

// etags reads the answer to a transaction: one part for each operation with its new
// ETag, or a single part that tells what failed, or no parts when the whole was refused.
func (b *batch) etags(ops []storage.Op) ([]storage.ETag, error) {
	if b.answer.StatusCode != http.StatusAccepted {
		return nil, classify(opTransact, writing, runtime.NewResponseError(b.answer))
	}
	parts, err := b.parts()
	if err != nil {
		return nil, refused(storage.Ambiguous, -1, fmt.Errorf("read answer: %w", err))
	}
	for _, p := range parts {
		if p.status >= 300 {
			return nil, p.failure(len(ops))
		}
	}
	if len(parts) != len(ops) {
		return nil, refused(storage.Ambiguous, -1, fmt.Errorf("%d answers to %d operations", len(parts), len(ops)))
	}
	tags := make([]storage.ETag, len(ops))
	for i, p := range parts {
		if ops[i].Kind == storage.Delete {
			continue
		}
		if tags[i] = p.etag; p.etag == "" {
			return nil, refused(storage.Ambiguous, -1, fmt.Errorf("no ETag for operation %d", i))
		}
	}
	return tags, nil
}

// part is the answer to one operation.
type part struct {
	status int
	etag   storage.ETag
	header http.Header
	body   []byte
}

// parts unpacks the multipart answer, in which stands a second one.
func (b *batch) parts() (parts []part, err error) {
	outer, err := open(b.answer.Header.Get("Content-Type"), bytes.NewReader(b.body))
	if err != nil {
		return nil, err
	}
	set, err := outer.NextPart()
	if err != nil {
		return nil, err
	}
	inner, err := open(set.Header.Get("Content-Type"), set)
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

func open(contentType string, r io.Reader) (*multipart.Reader, error) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, err
	}
	if params["boundary"] == "" {
		return nil, errors.New("no boundary")
	}
	return multipart.NewReader(r, params["boundary"]), nil
}

func readPart(r *bufio.Reader) (part, error) {
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return part{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return part{}, err
	}
	return part{resp.StatusCode, storage.ETag(resp.Header.Get("ETag")), resp.Header, body}, nil
}

// failure tells which operation failed and how.
func (p part) failure(ops int) error {
	var doc struct {
		Error struct {
			Code    string `json:"code"`
			Message struct {
				Value string `json:"value"`
			} `json:"message"`
		} `json:"odata.error"`
	}
	// A body that is no JSON leaves status and no index, which is all there is.
	_ = json.Unmarshal(p.body, &doc)
	e := &storage.Error{
		Op: opTransact, Kind: kindOf(writing, p.status, doc.Error.Code), Index: -1,
		RetryAfter: retryAfter(&http.Response{Header: p.header}),
		Err:        causeOf(doc.Error.Code, fmt.Errorf("%d %s", p.status, doc.Error.Code)),
	}
	if p.status < 500 && e.Kind != storage.Throttled {
		e.Index = indexOf(doc.Error.Message.Value, ops) // above, it is storage's fault and no operation's
	}
	return e
}

// indexOf reads the number before the colon with which storage's message begins.
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
