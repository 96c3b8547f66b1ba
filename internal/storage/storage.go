// Package storage names what Weir asks of a storage account: a table with
// transactions, a queue, blobs and blob leases. The ports carry the semantics of
// Azure Storage and nothing of its SDK, so that the same promises can be tried on
// memory under virtual time and on the real thing.
//
// Every implementation passes the suite in storagetest. All methods may be called
// concurrently. A context that ends makes a call return soon; for a write the error
// is then Ambiguous unless it is certain that nothing was sent.
package storage

import (
	"context"
	"time"
)

// ETag is the version of a row. Empty stands for "no condition" in an Op; AnyETag
// matches every existing row.
type ETag string

// AnyETag as an Op's condition: the row must exist, in whatever version.
const AnyETag ETag = "*"

// Row is one table entity. Values holds string, int64, bool, float64, []byte or
// time.Time (UTC; storage keeps 100 ns); an absent value and a nil value are the same.
type Row struct {
	Partition string
	Key       string
	ETag      ETag
	Values    map[string]any
}

// OpKind says what an Op does to its row.
type OpKind int

// What a transaction can do to a row.
const (
	Insert  OpKind = iota + 1 // the row must not exist
	Replace                   // the row must exist; all values are replaced
	Merge                     // the row must exist; the values given are replaced
	Delete                    // the row must exist
	Upsert                    // insert or replace, whatever is there
)

// Op is one operation of a transaction. IfMatch is for Replace, Merge and Delete;
// empty means AnyETag.
type Op struct {
	Kind    OpKind
	Key     string
	IfMatch ETag
	Values  map[string]any
}

// Limits of one transaction, by Azure's documentation ("Performing entity group
// transactions"): 100 operations, each on another row, 4 MiB as sent.
const (
	MaxOps          = 100
	MaxPayloadBytes = 4 << 20
)

// Query asks for rows of one partition in the order of their keys.
type Query struct {
	Partition string
	From      string   // first key, inclusive
	After     string   // or: first key, exclusive; continues where a page ended
	To        string   // last key, exclusive; empty = no bound
	Limit     int      // rows at most, 1 to 1000; 0 = 1000
	Columns   []string // values wanted; nil = all
}

// Page is one answer to a Query: one snapshot of the partition. More says that rows
// may follow the last one; a page with More has at least one row.
type Page struct {
	Rows []Row
	More bool
}

// Table reads and changes rows.
type Table interface {
	// Get reads one row; NotFound when there is none.
	Get(ctx context.Context, partition, key string) (Row, error)
	// Range reads one page. Rows come in byte order of their keys.
	Range(ctx context.Context, q Query) (Page, error)
	// Transact applies all operations or none, and gives back each row's new ETag
	// (empty for Delete), in order. On failure the error is an *Error whose Index
	// says which operation failed (-1: none in particular) and whose Kind says how:
	// Conflict (insert, exists), NotFound, Precondition (ETag differs), TooLarge,
	// Throttled, Unavailable (nothing was sent or nothing was done), Ambiguous (sent,
	// and what came of it is unknown). It never sends the transaction twice.
	Transact(ctx context.Context, partition string, ops []Op) ([]ETag, error)
}

// QueueMessage is a message in hand.
type QueueMessage struct {
	ID           string
	PopReceipt   string
	Text         string
	DequeueCount int64
	InsertedAt   time.Time
}

// Queue is an Azure Storage queue. Text is base64 on the wire, as the Functions host expects.
type Queue interface {
	// Put adds a message that becomes visible after delay (0 to 7 days; whole seconds,
	// rounded up). Sent once; Ambiguous is possible.
	Put(ctx context.Context, text string, delay time.Duration) error
	// Get takes up to max (1 to 32) messages and hides them for the time given (at least 1 s).
	Get(ctx context.Context, max int, hide time.Duration) ([]QueueMessage, error)
	// Update changes text and hides the message for the time given; the new pop receipt
	// is needed from then on. NotFound when the message is gone or in other hands.
	Update(ctx context.Context, m QueueMessage, text string, hide time.Duration) (popReceipt string, err error)
	// Delete removes a message in hand; NotFound when it is gone or in other hands.
	Delete(ctx context.Context, m QueueMessage) error
}

// QueueLength tells about how many messages a queue holds, hidden ones included.
type QueueLength interface {
	Length(ctx context.Context) (int64, error)
}

// Blobs keeps large bodies.
type Blobs interface {
	// Put writes a blob whole, whether or not one is there.
	Put(ctx context.Context, name string, data []byte) error
	// Get reads a blob whole; NotFound when there is none.
	Get(ctx context.Context, name string) ([]byte, error)
	// Delete removes a blob; NotFound when there is none.
	Delete(ctx context.Context, name string) error
}

// BlobInfo is what a listing says of a blob.
type BlobInfo struct {
	Name       string
	ModifiedAt time.Time
	Marked     bool
}

// BlobPage is one answer to a List. It may be short, or empty, before the end: Next continues the
// listing, and is empty at its end; only storage knows the form of it.
type BlobPage struct {
	Infos []BlobInfo
	Next  string
}

// BlobMarks marks blobs and lists them, to find those that nothing refers to.
type BlobMarks interface {
	// Mark sets the blob's mark; NotFound when there is none. Idempotent. A Put clears it.
	Mark(ctx context.Context, name string) error
	// List returns one page of the blobs whose name begins with prefix, at most 1000, in the
	// order of their names: the first page if the marker is empty, else the page that the marker
	// leads to.
	List(ctx context.Context, prefix, marker string) (BlobPage, error)
}

// Leases are blob leases on blobs made on demand. The id is the caller's, a UUID.
// Each call is sent once.
type Leases interface {
	// Acquire takes the lease for 15 to 60 s. Conflict: somebody else has it. Acquiring
	// under the id that holds it renews it.
	Acquire(ctx context.Context, name, id string, length time.Duration) error
	// Renew prolongs by the same length. Conflict: it is not ours (any more).
	Renew(ctx context.Context, name, id string) error
	// Release gives it back. Conflict: it is not ours (any more).
	Release(ctx context.Context, name, id string) error
}
