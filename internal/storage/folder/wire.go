package folder

import (
	"encoding/gob"
	"errors"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/embedded"
)

// callPath is the path of all calls. Another version of the encoding has another path, so that two
// versions of the program refuse each other.
const callPath = "/v1/call"

// Names of the ports of an account.
const (
	portTable  = "table"
	portQueue  = "queue"
	portBlobs  = "blobs"
	portFiles  = "files"
	portLeases = "leases"
	portBlobsL = "lease blobs"
	portStore  = "store"
)

// call is one call of a port. Each method uses some of the fields.
type call struct {
	Port, Name, Method string // Name is that of the queue or container

	Partition, Key, ID, Prefix, Marker, Version, ContentType, Text string

	Ops       []storage.Op
	Query     storage.Query
	NoColumns bool // Query.Columns is empty, and not nil; gob does not keep the difference
	Message   storage.QueueMessage
	Max       int
	Time      time.Duration
	Offset    int64
	Length    int64
	Data      []byte
	Metadata  map[string]string
}

// answer is the answer to a call.
type answer struct {
	Failure  *failure
	Row      storage.Row
	Page     storage.Page
	ETags    []storage.ETag
	Messages []storage.QueueMessage
	Blobs    storage.BlobPage
	Files    storage.FilePage
	Names    []string
	Text     string
	Data     []byte
	Number   int64
	Report   embedded.Report
}

// failure is an error of a port.
type failure struct {
	Op, Code, Text string
	Kind           storage.Kind
	Index          int
	RetryAfter     time.Duration
}

func encodeError(err error) *failure {
	if err == nil {
		return nil
	}

	f := &failure{Op: "store", Text: err.Error(), Index: -1}
	var e *storage.Error
	if errors.As(err, &e) {
		f.Op, f.Code, f.Kind, f.Index, f.RetryAfter = e.Op, e.Code, e.Kind, e.Index, e.RetryAfter
		f.Text = ""
		if e.Err != nil {
			f.Text = e.Err.Error()
		}
	}

	return f
}

func (f *failure) decode() error {
	e := &storage.Error{Op: f.Op, Kind: f.Kind, Index: f.Index, Code: f.Code,
		RetryAfter: f.RetryAfter}
	if f.Text != "" {
		e.Err = errors.New(f.Text)
	}

	return e
}

func init() { gob.Register(time.Time{}) }

// withoutNil returns operations without values that are nil, which gob cannot encode and a write
// ignores.
func withoutNil(ops []storage.Op) []storage.Op {
	out := make([]storage.Op, len(ops))
	for i, op := range ops {
		out[i] = op
		out[i].Values = make(map[string]any, len(op.Values))
		for name, value := range op.Values {
			if value != nil {
				out[i].Values[name] = value
			}
		}
	}

	return out
}
