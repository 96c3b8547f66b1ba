package lane

import (
	"bytes"
	"compress/flate"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// inlineLimit is the largest compressed body, in bytes, that is stored in the message's row. A column can hold 64 KiB;
// the difference is a reserve.
const inlineLimit = 60 << 10

// bodyStore is the part of blob storage that Store needs.
type bodyStore interface {
	storage.Blobs
	storage.BlobMarks
}

// storedLimit is the largest body, in bytes, that is stored without compression. A small body is stored in the deflate
// format, too, so that all bodies are read in the same way. Compression of a small body would not lower the cost of
// storage, which is per transaction, but would cost time.
const storedLimit = 2 << 10

// Writers are reused, because a new writer allocates more than a megabyte.
var (
	compressingWriters = newWriters(flate.BestSpeed)
	plainWriters       = newWriters(flate.NoCompression)
)

func newWriters(level int) *sync.Pool {
	return &sync.Pool{New: func() any {
		w, err := flate.NewWriter(nil, level)
		if err != nil {
			panic(err) // only for an invalid level
		}
		return w
	}}
}

func compressBytes(data []byte) ([]byte, error) {
	var b bytes.Buffer
	writers := compressingWriters
	if len(data) <= storedLimit {
		writers = plainWriters
	}
	w := writers.Get().(*flate.Writer)
	defer writers.Put(w)
	w.Reset(&b)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// flateReaders are reused, because a new reader allocates 40 KB.
var flateReaders = sync.Pool{New: func() any { return flate.NewReader(nil) }}

func decompressBytes(data []byte) ([]byte, error) {
	r := flateReaders.Get().(io.ReadCloser)
	defer flateReaders.Put(r)
	if err := r.(flate.Resetter).Reset(bytes.NewReader(data), nil); err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	return out, r.Close()
}

// blobName returns the name of a body's blob. Retention searches for blobs to which no row refers. The day in the name
// lets this search list one day at a time. The partition in the name tells which rows can refer to the blob.
func blobName(at time.Time, partition, nonce string) string {
	return at.UTC().Format("2006-01-02") + "/" + partition + "/" + nonce
}

// editedName returns the last part of the blob name of an edited body. Retention finds the message's row by the
// sequence number in the name. The day in the name does not help to find the row, because it is the day of the edit.
func editedName(nonce string, seq int64) string { return nonce + "-" + rows.SeqPos(seq) }

// seqOfEdited returns the sequence number in the blob name of an edited body. It returns false for the blob of an
// accepted body.
func seqOfEdited(blob string) (int64, bool) {
	_, place, edited := strings.Cut(blob[strings.LastIndex(blob, "/")+1:], "-")
	seq, err := rows.ParseSeq(place)
	return seq, edited && err == nil
}

// storeBody returns the columns for a body in a message's row. If the body is large, storeBody first puts it into a
// blob, because a row must never name a blob that does not exist.
func storeBody(ctx context.Context, blobs bodyStore, body []byte, blob string, in bodyColumns) (map[string]any,
	error) {
	packed, err := compressBytes(body)
	if err != nil {
		return nil, err
	}
	if len(packed) <= inlineLimit {
		return rows.Values(in.inline.Is(packed)), nil
	}
	if err := blobs.Put(ctx, blob, packed); err != nil {
		return nil, err
	}
	return rows.Values(in.blob.Is(blob)), nil
}

// bodyColumns are the two columns for a body. A row has one of them: the body itself, or the name of the body's blob.
type bodyColumns struct {
	inline rows.Bytes
	blob   rows.Text
}

var (
	acceptedBody = bodyColumns{rows.Body, rows.Blob}
	editedBody   = bodyColumns{rows.EditedBody, rows.EditedBlob}
)

// loadBody reads a body from its row, or from the blob that the row names. The body of an erased message is empty. If
// the body is damaged, loadBody returns storage.Unreadable.
func loadBody(ctx context.Context, blobs bodyStore, v map[string]any, in bodyColumns) ([]byte, error) {
	if !rows.ErasedAt.Of(v).IsZero() {
		return []byte{}, nil
	}
	packed := in.inline.Of(v)
	if blob := in.blob.Of(v); blob != "" {
		var err error
		if packed, err = blobs.Get(ctx, blob); err != nil {
			return nil, err
		}
	}
	body, err := decompressBytes(packed)
	if err != nil {
		return nil, &storage.Error{Op: "body", Kind: storage.Unreadable, Index: -1, Err: err}
	}
	return body, nil
}

// RemoveBody removes the blob of a body. It does nothing if the name is empty, or if the blob does not exist.
func (s *Store) RemoveBody(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	if err := s.Bodies.Delete(ctx, name); err != nil && !storage.Is(err, storage.NotFound) {
		return err
	}
	return nil
}
