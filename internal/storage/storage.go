// Package storage declares the ports to a storage account: a table with transactions, queues, blobs,
// files and blob leases. The ports have the semantics of Azure Storage but no types of its SDK, so that
// the same code runs on memory storage under virtual time and on the real service.
//
// Each implementation passes the suite in storagetest. All methods may be called concurrently. A call
// returns soon after its context ends. The error of a write is then Ambiguous, unless it is certain that
// the request was not sent.
package storage

import (
	"context"
	"io"
	"time"
)

// ETag is the version of a row or a file. As a condition, an empty ETag and AnyETag match every version.
type ETag string

// AnyETag is the condition that the row exists, in any version. It is for an Op, not for a file.
const AnyETag ETag = "*"

// Row is one table entity. A value is a string, int64, bool, float64, []byte or time.Time (UTC; storage
// keeps 100 ns). To write nil is the same as to leave the value out.
type Row struct {
	Partition string
	Key       string
	ETag      ETag
	Values    map[string]any
}

// OpKind is the effect of an Op on its row.
type OpKind int

// The kinds of operations.
const (
	Insert  OpKind = iota + 1 // the row must not exist
	Replace                   // the row must exist; all values are replaced
	Merge                     // the row must exist; the given values are set, the others stay
	Delete                    // the row must exist
	Upsert                    // the row is inserted or replaced
)

// Op is one operation of a transaction. IfMatch is for Replace, Merge and Delete; an empty IfMatch
// means AnyETag.
type Op struct {
	Kind    OpKind
	Key     string
	IfMatch ETag
	Values  map[string]any
}

// Limits of one transaction, by Azure's documentation ("Performing entity group
// transactions"): 100 operations, each on a row of its own, and a payload of 4 MiB as it is sent.
const (
	MaxOps          = 100
	MaxPayloadBytes = 4 << 20
)

// Query selects rows of one partition in the order of their keys.
type Query struct {
	Partition string
	From      string   // first key, inclusive
	After     string   // only later keys: the last key of the previous page; From still applies
	To        string   // last key, exclusive; empty = no bound
	Limit     int      // rows at most, 1 to 1000; 0 = 1000
	Columns   []string // names of the wanted values; nil = all, empty = none
}

// Page is one answer to a Query: a snapshot of the partition. If More is set, the page has at least one
// row, and other rows may follow its last row.
type Page struct {
	Rows []Row
	More bool
}

// Table reads and changes rows.
type Table interface {
	// Get reads one row, or returns NotFound.
	Get(ctx context.Context, partition, key string) (Row, error)
	// Range reads one page, in byte order of the keys.
	Range(ctx context.Context, q Query) (Page, error)
	// Transact applies all operations or none, and returns the new ETag of each row in order
	// (empty for Delete). The error is an *Error. Its Index is the index of the failed operation; -1 means
	// no particular operation. Its Kind is Conflict (an inserted row exists), NotFound, Precondition (the
	// ETag differs), TooLarge, Throttled, Unavailable (nothing was sent or done), Ambiguous (sent,
	// with an unknown result), or Other. Transact never sends the transaction twice.
	Transact(ctx context.Context, partition string, ops []Op) ([]ETag, error)
}

// QueueMessage is a message that was dequeued. The messages of a queue are not those of upstreams.
type QueueMessage struct {
	ID           string
	PopReceipt   string
	Text         string
	DequeueCount int64
	InsertedAt   time.Time
}

// Queue is an Azure Storage queue. Text is base64 on the wire, as the Functions host expects. Each call is
// sent once, so its error can be Ambiguous.
type Queue interface {
	// Put adds a message that becomes visible after delay (0 to 7 days, rounded up to seconds).
	Put(ctx context.Context, text string, delay time.Duration) error
	// Get dequeues up to max (1 to 32) messages, and hides them for a time, hide (at least 1 s).
	Get(ctx context.Context, max int, hide time.Duration) ([]QueueMessage, error)
	// Update changes the text and hides the message for a time, hide. Later calls need the new pop receipt.
	// Update returns NotFound if the message was deleted, dequeued again or updated since.
	Update(ctx context.Context, m QueueMessage, text string, hide time.Duration) (popReceipt string, err error)
	// Delete removes a dequeued message, or returns NotFound if the message was deleted, dequeued again or
	// updated since.
	Delete(ctx context.Context, m QueueMessage) error
}

// QueueLength is a queue that knows its length.
type QueueLength interface {
	// Length returns the approximate number of messages in the queue, hidden ones included.
	Length(ctx context.Context) (int64, error)
}

// Blobs are the blobs of a container.
type Blobs interface {
	// Put writes a whole blob, and replaces an existing one.
	Put(ctx context.Context, name string, data []byte) error
	// Get reads a whole blob, or returns NotFound.
	Get(ctx context.Context, name string) ([]byte, error)
	// Delete removes a blob, or returns NotFound.
	Delete(ctx context.Context, name string) error
}

// BlobInfo describes a blob in a listing.
type BlobInfo struct {
	Name       string
	ModifiedAt time.Time
	Marked     bool // Mark was called since the last Put
}

// BlobPage is one page of a listing. It can be short, or empty, before the end. Next is an opaque
// marker of the next page, and empty at the end.
type BlobPage struct {
	Infos []BlobInfo
	Next  string
}

// BlobMarks marks the blobs that a row refers to. It also lists blobs: so retention finds the unmarked ones.
type BlobMarks interface {
	// Mark sets the blob's mark, or returns NotFound. It is idempotent. A Put clears the mark.
	Mark(ctx context.Context, name string) error
	// List returns one page of the blobs with a prefix, at most 1000, in the order of their names.
	// An empty marker means the first page, BlobPage.Next the page that follows.
	List(ctx context.Context, prefix, marker string) (BlobPage, error)
}

// File is a version of a file. A file is a blob of the inbox or the archive.
type File struct {
	Name        string
	ETag        ETag
	Size        int64
	ModifiedAt  time.Time // in whole seconds on Azure
	ContentType string
	Metadata    map[string]string // storage ignores the case of the names
	// IsGrowing means that readers can see the file before it is whole, because it is an append blob or a page
	// blob. Readers see a block blob only once it is whole, except in an account with a hierarchical namespace.
	IsGrowing bool
}

// FilePage is one page of a listing of files. The rules are those of BlobPage.
type FilePage struct {
	Files []File
	Next  string
}

// Files are the files of a container. Folders of an account with a hierarchical namespace are not among them.
type Files interface {
	// List returns one page of the files with a prefix, at most 1000, in the order of their names. An empty marker
	// means the first page, FilePage.Next the page that follows.
	List(ctx context.Context, prefix, marker string) (FilePage, error)
	// Read returns bytes of a file: length bytes, from offset on. The file must have the given version; an empty
	// version means any. The caller asks for at least one byte, and only for bytes that exist. Precondition means
	// that the file has another version, NotFound that there is no file.
	Read(ctx context.Context, name string, version ETag, offset, length int64) ([]byte, error)
	// Write writes a file, and replaces an existing one. The file becomes visible only when it is whole. If reading
	// from body fails, Write returns that error unchanged. Names of metadata are C# identifiers, and values are ASCII.
	Write(ctx context.Context, name, contentType string, metadata map[string]string, body io.Reader) error
	// Delete removes a file if it has the given version; an empty version means any. Precondition means that this
	// version does not exist, NotFound that there is no file. If a version is given and there is no file, the error
	// can be either of the two.
	Delete(ctx context.Context, name string, version ETag) error
}

// Leases are blob leases, on blobs that are created on demand. The caller chooses the id, a UUID. Each
// call is sent once.
type Leases interface {
	// Acquire takes the lease for length (15 to 60 s), or returns Conflict if another id holds it. Acquire
	// with the id that holds the lease renews it, for the new length.
	Acquire(ctx context.Context, name, id string, length time.Duration) error
	// Renew lets the lease last for its length from now on, or returns Conflict if the id does not hold it. It also
	// renews a lease that has expired, unless another id has acquired the lease since.
	Renew(ctx context.Context, name, id string) error
	// Release ends the lease, or returns Conflict if the id does not hold it.
	Release(ctx context.Context, name, id string) error
}
