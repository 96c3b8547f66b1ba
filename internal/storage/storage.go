// Package storage declares the ports to a storage account: interfaces for a table with
// transactions, queues, blobs, files and blob leases. The ports have the semantics of Azure
// Storage, but no types of Azure's SDK. So the same code runs on the real service, and in memory
// under virtual time.
//
// Each implementation passes the suite in package storagetest. All methods may be called
// concurrently.
//
// A call returns soon after its context ends. The error of a write is then Unavailable if the
// request was certainly not sent, and Ambiguous otherwise.
package storage

import (
	"context"
	"io"
	"time"
)

// ETag identifies a version of a row or a file. As a condition, an empty ETag matches every
// version.
type ETag string

// AnyETag is the condition of an Op that matches every version of an existing row. Files do not
// support it.
const AnyETag ETag = "*"

// Row is one table entity. Each value is a string, int64, bool, float64, []byte or time.Time. Times
// are in UTC and have a precision of 100 ns. A write ignores values that are nil.
//
// WrittenAt is the time of the row's last write, by the clock of storage: of two writes of a row,
// the later one has no earlier time, whichever processes made them. Get returns it if that write
// had Op.KeepsTime. In all other cases it has no meaning.
type Row struct {
	Partition string
	Key       string
	ETag      ETag
	WrittenAt time.Time
	Values    map[string]any
}

// OpKind is the effect of an Op on its row.
type OpKind int

// The kinds of operations.
const (
	Insert  OpKind = iota + 1 // the row must not exist
	Replace                   // the row must exist; all values are replaced
	Merge                     // the row must exist; the given values are set, other values stay
	Delete                    // the row must exist
	Upsert                    // the row is inserted, or replaced if it exists
)

// Op is one operation of a transaction. Replace, Merge and Delete succeed only if the row's ETag is
// IfMatch. An empty IfMatch means AnyETag. KeepsTime makes storage keep the time of the write; see
// Row.WrittenAt.
type Op struct {
	Kind      OpKind
	Key       string
	IfMatch   ETag
	Values    map[string]any
	KeepsTime bool
}

// Limits of one transaction, from Azure's documentation ("Performing entity group transactions").
// Each operation must be on a different row. The payload is the body of the request.
const (
	MaxOps          = 100
	MaxPayloadBytes = 4 << 20
)

// Query selects rows of one partition in the order of their keys.
type Query struct {
	Partition string
	From      string // smallest key; if empty, no bound
	// last key of the previous page: only greater keys follow; From still applies
	After   string
	To      string   // only keys less than To; if empty, no bound
	Limit   int      // largest number of rows, 1 to 1000; 0 = 1000
	Columns []string // names of the wanted values; nil = all, empty = none
}

// Page is the answer to a Query. All rows of a page are from the same moment. If More is set, the
// page has at least one row, and further rows can follow.
type Page struct {
	Rows []Row
	More bool
}

// Table reads and changes rows.
type Table interface {
	// Get reads one row. If the row does not exist, Get returns NotFound.
	Get(ctx context.Context, partition, key string) (Row, error)
	// Range reads one page, in byte order of the keys.
	Range(ctx context.Context, q Query) (Page, error)
	// Transact applies all operations or none. It returns the new ETags of the rows, in the order
	// of ops; the ETag for a Delete is empty. Transact sends its request at most once.
	//
	// An error of Transact is an *Error with the index of the failed operation, or with -1 if
	// storage names no operation. The Kind is one of:
	//   - Conflict: a row to insert exists already
	//   - NotFound: a row to replace, merge or delete does not exist
	//   - Precondition: a row's ETag is not IfMatch
	//   - TooLarge, Throttled, Unavailable, Ambiguous or Other: see Kind
	Transact(ctx context.Context, partition string, ops []Op) ([]ETag, error)
}

// Partitions lists the partitions of a table.
type Partitions interface {
	// Partitions calls visit with the name of each partition that has a row, in byte order. If
	// visit fails, Partitions returns its error unchanged, and calls visit no more. A partition
	// that gets its first row or loses its last one meanwhile can be left out.
	Partitions(ctx context.Context, visit func(name string) error) error
}

// QueueMessage is a message that was dequeued from a Queue. Upstreams' messages are never in a
// Queue.
type QueueMessage struct {
	ID           string
	PopReceipt   string
	Text         string
	DequeueCount int64
	InsertedAt   time.Time
}

// Queue is an Azure Storage queue. Requests and answers have the text in base64, because the
// Functions host expects base64. If the result of a request is unknown, the method does not repeat
// the request, but returns Ambiguous.
type Queue interface {
	// Put adds a message that becomes visible after delay (0 to 7 days, rounded up to whole
	// seconds).
	Put(ctx context.Context, text string, delay time.Duration) error
	// Get dequeues up to max messages (1 to 32), and hides each of them for the duration hide (1 s
	// to 7 days).
	Get(ctx context.Context, max int, hide time.Duration) ([]QueueMessage, error)
	// Update changes the text of m, hides m for the duration hide (0 to 7 days), and returns a new
	// pop receipt. Later calls need the new pop receipt in m. If m.PopReceipt is no longer valid,
	// Update returns NotFound: the message was deleted, dequeued again or updated.
	Update(ctx context.Context, m QueueMessage, text string, hide time.Duration) (popReceipt string,
		err error)
	// Delete removes m. If m.PopReceipt is no longer valid, Delete returns NotFound: the message
	// was deleted, dequeued again or updated.
	Delete(ctx context.Context, m QueueMessage) error
}

// QueueLength is implemented by a Queue that knows its length.
type QueueLength interface {
	// Length returns the approximate number of messages in the queue, hidden ones included.
	Length(ctx context.Context) (int64, error)
}

// Blobs are the blobs of a container.
type Blobs interface {
	// Put writes a whole blob. If the blob exists, Put replaces it.
	Put(ctx context.Context, name string, data []byte) error
	// Get reads a whole blob. If the blob does not exist, Get returns NotFound. If storage cannot
	// return the content of this blob, Get returns Unreadable.
	Get(ctx context.Context, name string) ([]byte, error)
	// Delete removes a blob. If the blob does not exist, Delete returns NotFound.
	Delete(ctx context.Context, name string) error
}

// BlobInfo describes a blob in a listing.
type BlobInfo struct {
	Name       string
	ModifiedAt time.Time
	Marked     bool // Mark was called after the last Put
}

// BlobPage is one page of a listing. Any page can have few infos or none. Next is the marker with
// which List returns the next page; if Next is empty, this page is the last one.
type BlobPage struct {
	Infos []BlobInfo
	Next  string
}

// BlobMarks marks blobs, and lists blobs with their marks. A mark means that a table row refers to
// the blob. Retention looks for blobs without a mark.
type BlobMarks interface {
	// Mark sets the blob's mark. The caller can repeat Mark. A later Put clears the mark. If the
	// blob does not exist, Mark returns NotFound.
	Mark(ctx context.Context, name string) error
	// List returns one page of the blobs whose names begin with prefix, in the order of their
	// names, 1000 at most. An empty marker selects the first page; the Next of a page selects the
	// page after it.
	List(ctx context.Context, prefix, marker string) (BlobPage, error)
}

// File describes a version of a file. A file is a blob in the inbox or the archive.
type File struct {
	Name        string
	ETag        ETag
	Size        int64
	ModifiedAt  time.Time // in whole seconds on Azure
	ContentType string
	// ContentEncoding is the coding in which the writer has stored the content, for example "gzip".
	// Read returns the content as it is stored.
	ContentEncoding string
	Metadata        map[string]string // the names are not case-sensitive
	// IsGrowing means that the file is an append blob or a page blob. Readers can see such a file
	// before it is complete. They can see an incomplete block blob only in an account with a
	// hierarchical namespace.
	IsGrowing bool
}

// FilePage is one page of a listing of files. Any page can have few files or none. Next is the
// marker with which List returns the next page; if Next is empty, this page is the last one.
type FilePage struct {
	Files []File
	Next  string
}

// Files are the files of a container. The folders of an account with a hierarchical namespace do
// not count as files.
type Files interface {
	// List returns one page of the files whose names begin with prefix, in the order of their
	// names, 1000 at most. An empty marker selects the first page; the Next of a page selects the
	// page after it.
	List(ctx context.Context, prefix, marker string) (FilePage, error)
	// Read returns length bytes of a file, from offset on. All these bytes must exist, and length
	// must be at least 1. If version is empty, Read accepts every version. If the file has another
	// version, Read returns Precondition; if there is no file, NotFound. If storage cannot return
	// the content of this file, Read returns Unreadable.
	Read(ctx context.Context, name string, version ETag, offset, length int64) ([]byte, error)
	// Write creates or replaces a file. Readers do not see the new version before it is complete.
	// If reading from body fails, Write returns the error of body unchanged. Metadata names must be
	// C# identifiers, and the values ASCII.
	Write(ctx context.Context, name, contentType string, metadata map[string]string, body io.Reader) error
	// Delete removes a file. If version is empty, Delete accepts every version. If the file has
	// another version, Delete returns Precondition. If there is no file, a Delete with an empty
	// version returns NotFound, and a Delete with a version returns NotFound or Precondition.
	Delete(ctx context.Context, name string, version ETag) error
}

// Leases are leases of blobs. The id, a UUID, identifies a holder of leases; the caller chooses it.
// If the result of a request is unknown, the method does not repeat the request, but returns
// Ambiguous.
type Leases interface {
	// Acquire takes the lease for the given length (15 to 60 s, rounded up to whole seconds), and
	// creates a missing blob. If id holds the lease already, Acquire renews the lease with the new
	// length. If another id holds the lease, Acquire returns Conflict.
	Acquire(ctx context.Context, name, id string, length time.Duration) error
	// Renew lets the lease last for its full length from now on. Renew also works for an expired
	// lease that no other id has acquired. Renew returns Conflict if id never held the lease, if id
	// released the lease, or if another id acquired the lease since.
	Renew(ctx context.Context, name, id string) error
	// Release ends the lease. It returns Conflict in the same cases as Renew.
	Release(ctx context.Context, name, id string) error
}
