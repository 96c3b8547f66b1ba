package lane

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
)

// inlineLimit is the largest compressed body, in bytes, that is stored in the message's row. A
// column can hold 64 KiB; the difference is a reserve.
const inlineLimit = 60 << 10

// bodyStore is the part of blob storage that Store needs.
type bodyStore interface {
	storage.Blobs
	storage.BlobMarks
}

// storedLimit is the largest body, in bytes, that is stored without compression. A small body is
// stored in the deflate format, too, so that all bodies are read in the same way. Compression of a
// small body would not lower the cost of storage, which is per transaction, but would cost time.
const storedLimit = 2 << 10

// writers are reused, because a new writer allocates more than a megabyte.
var writers = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic(err) // only for an invalid level
	}
	return w
}}

func compressBytes(data []byte) ([]byte, error) {
	if len(data) <= storedLimit {
		return wrapBytes(data), nil
	}

	var b bytes.Buffer
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

// wrapBytes returns data in the deflate format without compression: a block with the data, and an
// empty last block. A flate.Writer writes the same bytes, but most bodies are small, and a writer
// has a megabyte of memory.
func wrapBytes(data []byte) []byte {
	packed := make([]byte, 0, len(data)+2*blockHeader)
	if len(data) > 0 {
		packed = append(appendBlockHeader(packed, 0, len(data)), data...)
	}
	return appendBlockHeader(packed, 1, 0)
}

// unwrapBytes returns a copy of the data that wrapBytes has wrapped. It returns false for other
// bytes.
func unwrapBytes(packed []byte) ([]byte, bool) {
	n := len(packed) - 2*blockHeader
	if n <= 0 || n > math.MaxUint16 {
		return nil, false
	}

	begin, end := appendBlockHeader(nil, 0, n), appendBlockHeader(nil, 1, 0)
	if !bytes.HasPrefix(packed, begin) || !bytes.HasSuffix(packed, end) {
		return nil, false
	}

	return bytes.Clone(packed[blockHeader : blockHeader+n]), true
}

// blockHeader is the size in bytes of the header of a block that is not compressed; see RFC 1951.
const blockHeader = 5

// appendBlockHeader appends the header of a block with n bytes: the kind of the block, n, and n
// inverted. The kind is 1 for the last block, and 0 for others.
func appendBlockHeader(b []byte, kind byte, n int) []byte {
	b = binary.LittleEndian.AppendUint16(append(b, kind), uint16(n))
	return binary.LittleEndian.AppendUint16(b, ^uint16(n))
}

// flateReaders are reused, because a new reader allocates 40 KB.
var flateReaders = sync.Pool{New: func() any { return flate.NewReader(nil) }}

func decompressBytes(data []byte) ([]byte, error) {
	if wrapped, isWrapped := unwrapBytes(data); isWrapped {
		return wrapped, nil
	}

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

// blobName returns the name of a body's blob. Retention searches for blobs to which no row refers.
// The day in the name lets this search list one day at a time. The partition in the name tells
// which rows can refer to the blob.
func blobName(at time.Time, partition, nonce string) string {
	return at.UTC().Format("2006-01-02") + "/" + partition + "/" + nonce
}

// editedName returns the last part of the blob name of an edited body. Retention finds the
// message's row by the sequence number in the name. The day in the name does not help to find the
// row, because it is the day of the edit.
func editedName(nonce string, seq int64) string { return nonce + "-" + rows.SeqPos(seq) }

// seqOfEdited returns the sequence number in the blob name of an edited body. It returns false for
// the blob of an accepted body.
func seqOfEdited(blob string) (int64, bool) {
	_, place, edited := strings.Cut(blob[strings.LastIndex(blob, "/")+1:], "-")
	seq, err := rows.ParseSeq(place)
	return seq, edited && err == nil
}

// storeBody returns the columns for a body in a message's row. If the body is large, storeBody
// first puts it into a blob, because a row must never name a blob that does not exist.
func storeBody(ctx context.Context, blobs bodyStore, body []byte, blob string,
	in bodyColumns) (map[string]any, error) {
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

// bodyColumns are the two columns for a body. A row has one of them: the body itself, or the name
// of the body's blob.
type bodyColumns struct {
	inline rows.Bytes
	blob   rows.Text
}

var (
	acceptedBody = bodyColumns{rows.Body, rows.Blob}
	editedBody   = bodyColumns{rows.EditedBody, rows.EditedBlob}
)

// loadBody reads a body from its row, or from the blob that the row names. The body of an erased
// message is empty. If the body is damaged, loadBody returns storage.Unreadable.
func loadBody(ctx context.Context, blobs bodyStore, v map[string]any,
	in bodyColumns) ([]byte, error) {
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

// RemoveBody removes the blob of a body. It does nothing if the name is empty, or if the blob does
// not exist.
func (s *Store) RemoveBody(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}

	if err := s.Bodies.Delete(ctx, name); err != nil && !storage.Is(err, storage.NotFound) {
		return err
	}
	return nil
}

// bodyGap limits the gaps in a query: two entries that follow each other in one query have sequence
// numbers at most bodyGap apart. The query also reads the rows between the two entries, and bodies
// are large.
const bodyGap = 4

// LoadInline loads the bodies of the entries, except bodies in blobs. If a body was edited,
// LoadInline loads the edited body. The entries have no bodies yet, and are in descending order of
// their sequence numbers. looks is the number of queries.
func (s *Store) LoadInline(ctx context.Context, lane int, entries []*Entry) (looks int, err error) {
	var groups [][]*Entry
	for _, e := range entries {
		if n := len(groups); n > 0 && groups[n-1][len(groups[n-1])-1].Seq()-e.Seq() <= bodyGap {
			groups[n-1] = append(groups[n-1], e)
			continue
		}
		groups = append(groups, []*Entry{e})
	}

	return len(groups), ForEach(len(groups),
		func(i int) error { return s.loadInline(ctx, lane, groups[i]) })
}

func (s *Store) loadInline(ctx context.Context, lane int, group []*Entry) error {
	wanted := make(map[string]*Entry, len(group))
	for _, e := range group {
		wanted[rows.MessageKey(e.Seq())] = e
	}

	q := rows.Messages(s.Partition(lane), group[len(group)-1].Seq(), group[0].Seq()+1,
		rows.Names(acceptedBody.inline, editedBody.inline))
	found, _, err := rows.ReadPages(ctx, s.Table, q, maxPage)
	if err != nil {
		return err
	}

	for _, r := range found {
		e := wanted[r.Key]
		if e == nil {
			continue
		}

		if packed := e.bodyIn().inline.Of(r.Values); packed != nil {
			if e.Message.Body, err = decompressBytes(packed); err != nil {
				return err
			}
		}
	}

	return nil
}
