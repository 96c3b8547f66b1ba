package batch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
)

// chunkSize is the size of a chunk, in bytes. Only the last chunk of a document may be smaller.
const chunkSize = 1 << 20

func blobPrefix(id string) string { return blobsPrefix + id + "/" }

func chunkName(id string, n int) string { return fmt.Sprintf("%sdocument/%04d", blobPrefix(id), n) }

const blobsPrefix = "batches/"

// storeDocument stores a document in chunks. It returns the document's size in bytes and its
// SHA-256. After an error, size covers all stored chunks, so that the caller can remove the chunks.
func storeDocument(ctx context.Context, blobs storage.Blobs, id string, body io.Reader) (size int64,
	digest string, err error) {
	hash, chunk := sha256.New(), make([]byte, chunkSize)
	for n := 0; ; n++ {
		length, err := io.ReadFull(body, chunk)
		isLast := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !isLast {
			return size, "", err
		}

		if size += int64(length); size > MaxBytes {
			return size, "", errTooLarge()
		}

		if length > 0 {
			hash.Write(chunk[:length])
			if err := blobs.Put(ctx, chunkName(id, n), chunk[:length]); err != nil {
				return size, "", err
			}
		}

		if isLast {
			return size, hex.EncodeToString(hash.Sum(nil)), nil
		}
	}
}

func errTooLarge() error {
	return &weir.Error{Kind: weir.TooLarge, Op: "batch",
		Message: fmt.Sprintf("the batch is over %d bytes", MaxBytes)}
}

// removeDocument removes the chunks of a document; size is the document's size in bytes.
func removeDocument(ctx context.Context, blobs storage.Blobs, id string, size int64) error {
	for n := range int((size + chunkSize - 1) / chunkSize) {
		if err := blobs.Delete(ctx, chunkName(id, n)); err != nil &&
			!storage.Is(err, storage.NotFound) {
			return err
		}
	}
	return nil
}

const (
	// cachedChunks is the number of chunks in memory. The files of a zip need not lie in the order
	// of its directory; a reader of one chunk would read a chunk of 1 MiB for each file that lies
	// elsewhere.
	cachedChunks = 4
	// maxLoads limits the reads of chunks for one pass over a document: 8 for each chunk of the
	// largest document. A zip whose files lie in the order of its directory needs one for each
	// chunk, and some for the directory.
	maxLoads = 8 * MaxBytes / chunkSize
)

// document reads a stored document and keeps cachedChunks chunks in memory. It is not safe for
// concurrent use.
type document struct {
	ctx    context.Context
	blobs  storage.Blobs
	id     string
	size   int64
	at     int64 // position of the next Read
	number int   // number of the present chunk, from 0
	chunk  []byte
	cached []cachedChunk // the chunk that was used last comes first
	loads  int           // reads of chunks so far

	failed    error // error of the last read of a chunk; nil = no error
	mayRead   int64 // bytes that ReadAt may still read; checked only if isLimited is set
	isLimited bool
}

type cachedChunk struct {
	number  int
	content []byte
}

// errLimit is ReadAt's error if more than mayRead bytes are asked for while isLimited is set. The
// limit is set only while the directory of a zip is read.
var errLimit = errors.New("too much was read")

// Read implements io.Reader.
func (d *document) Read(p []byte) (int, error) {
	n, err := d.ReadAt(p, d.at)
	d.at += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// ReadAt implements io.ReaderAt.
func (d *document) ReadAt(p []byte, at int64) (n int, err error) {
	if d.mayRead -= int64(len(p)); d.isLimited && d.mayRead < 0 {
		return 0, errLimit
	}

	for n < len(p) {
		if at >= d.size {
			return n, io.EOF
		}

		number, offset := int(at/chunkSize), int(at%chunkSize)
		if err := d.loadChunk(number); err != nil {
			return n, err
		}

		if offset >= len(d.chunk) {
			d.failed = fmt.Errorf("batch %s: chunk %d ends early", d.id, number)
			return n, d.failed
		}

		copied := copy(p[n:], d.chunk[offset:])
		n, at = n+copied, at+int64(copied)
	}

	return n, nil
}

func (d *document) loadChunk(number int) error {
	if d.chunk != nil && d.number == number {
		return nil
	}

	at := slices.IndexFunc(d.cached, func(c cachedChunk) bool { return c.number == number })
	if at >= 0 {
		found := d.cached[at]
		d.cached = slices.Insert(slices.Delete(d.cached, at, at+1), 0, found)
		d.chunk, d.number = found.content, number
		return nil
	}

	if d.loads++; d.loads > maxLoads {
		d.failed = malformedError(
			fmt.Sprintf("the files lie in another order than in the directory of the zip: to read "+
				"them takes more than %d reads of %d bytes; pack the zip anew", maxLoads,
				chunkSize))
		return d.failed
	}

	d.cached = d.cached[:min(len(d.cached), cachedChunks-1)]
	d.chunk, d.number = nil, number
	d.chunk, d.failed = d.readChunk(number)
	if d.failed == nil {
		d.cached = slices.Insert(d.cached, 0, cachedChunk{number, d.chunk})
	}

	switch {
	case d.failed == nil:
	case storage.Is(d.failed, storage.NotFound): // no retry: the same chunk would fail again
		d.failed = &weir.Error{Kind: weir.Internal, Op: "batch",
			Message: "the stored document was removed by others", Err: d.failed}
	case storage.IsObjectFault(d.failed):
		d.failed = &weir.Error{Kind: weir.Internal, Op: "batch", Err: d.failed,
			Message: "storage does not return the stored document: " + storage.Describe(d.failed)}
	default:
		d.failed = &unreadError{"the stored document", d.failed}
	}

	return d.failed
}

// chunkTimeout limits the read of a chunk, which has 1 MiB at most. Meanwhile no other batch has
// the shift.
const chunkTimeout = 10 * time.Second

func (d *document) readChunk(number int) ([]byte, error) {
	limited, cancel := context.WithTimeout(d.ctx, chunkTimeout)
	defer cancel()
	return d.blobs.Get(limited, chunkName(d.id, number))
}

// dropChunks frees the memory of the chunks while other batches work. The reads that load them
// again do not count.
func (d *document) dropChunks() {
	d.loads -= len(d.cached)
	d.chunk, d.cached = nil, nil
}
