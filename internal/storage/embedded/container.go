package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	bolt "go.etcd.io/bbolt"

	"weir/internal/storage"
)

const (
	// chunkSize is the size of a piece of content. Two pieces with their keys fill 32 pages.
	chunkSize = 65_480
	// uploadBytes is the content of one commit of a large file.
	uploadBytes = 64 * chunkSize
	// maxListed is the largest number of names in one page of a listing.
	maxListed = 1000
)

// container has blobs or files. Its bucket has an entry for each name, and the content in chunks
// under the number of the entry's version. A large file is written by several commits: first its
// chunks, with an entry among the uploads, then its entry. Open removes the chunks of uploads that
// did not end.
type container struct {
	store *Store
	name  string
}

// entry describes one version of a blob or file.
type entry struct {
	Version         uint64            `json:"version"`
	Size            int64             `json:"size"`
	ModifiedAt      time.Time         `json:"modifiedAt"`
	IsMarked        bool              `json:"isMarked,omitempty"`
	ContentType     string            `json:"contentType,omitempty"`
	ContentEncoding string            `json:"contentEncoding,omitempty"`
	Metadata        map[string]string `json:"metadata,omitempty"`
}

func (e entry) etag() storage.ETag {
	return storage.ETag(`"` + strconv.FormatUint(e.Version, 10) + `"`)
}

func chunkKey(version uint64, n int64) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, version), uint32(n))
}

func versionKey(version uint64) []byte { return binary.BigEndian.AppendUint64(nil, version) }

// parts are the buckets of a container in a transaction.
type parts struct{ all, entries, chunks, uploads *bolt.Bucket }

func (c container) parts(tx *bolt.Tx) parts {
	all := tx.Bucket([]byte(c.name))

	return parts{all, all.Bucket(entriesBucket), all.Bucket(chunksBucket),
		all.Bucket(uploadsBucket)}
}

// prepareContainer makes the buckets of a container, and removes unfinished uploads.
func prepareContainer(tx *bolt.Tx, name string) error {
	all, err := tx.CreateBucketIfNotExists([]byte(name))
	if err != nil {
		return err
	}

	for _, inner := range [][]byte{entriesBucket, chunksBucket, uploadsBucket} {
		if _, err := all.CreateBucketIfNotExists(inner); err != nil {
			return err
		}
	}

	p := container{name: name}.parts(tx)
	var unfinished [][]byte
	err = p.uploads.ForEach(func(key, _ []byte) error {
		unfinished = append(unfinished, bytes.Clone(key))
		return nil
	})

	for _, key := range unfinished {
		if err == nil {
			err = errors.Join(p.removeChunks(binary.BigEndian.Uint64(key)), p.uploads.Delete(key))
		}
	}

	return err
}

// find returns the entry of a name; false = there is none.
func (p parts) find(name string) (e entry, isThere bool, err error) {
	if name == "" {
		return e, false, nil
	}

	sealed := p.entries.Get([]byte(name))
	if sealed == nil {
		return e, false, nil
	}

	return e, true, readEntry([]byte(name), sealed, &e)
}

func readEntry(name, sealed []byte, e *entry) error {
	text, err := openBytes(name, sealed)
	if err == nil {
		err = json.Unmarshal(text, e)
	}

	if err != nil {
		return fmt.Errorf("entry %s: %w", name, err)
	}

	return nil
}

func (p parts) putEntry(name string, e entry) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}

	return p.entries.Put([]byte(name), sealBytes([]byte(name), text))
}

// replace makes e the entry of a name, and removes the content of the entry before.
func (p parts) replace(name string, e entry) error {
	before, isThere, err := p.find(name)
	if err != nil {
		return err
	}

	if isThere {
		if err := p.removeChunks(before.Version); err != nil {
			return err
		}
	}

	return p.putEntry(name, e)
}

func (p parts) removeChunks(version uint64) error {
	prefix := versionKey(version)
	cursor := p.chunks.Cursor()
	for key, _ := cursor.Seek(prefix); bytes.HasPrefix(key, prefix); key, _ = cursor.Seek(prefix) {
		if err := cursor.Delete(); err != nil {
			return err
		}
	}

	return nil
}

// putChunks stores pieces of a version, from the piece n on.
func (p parts) putChunks(version uint64, n int64, pieces [][]byte) error {
	p.chunks.FillPercent = 1
	for i, piece := range pieces {
		key := chunkKey(version, n+int64(i))
		if err := p.chunks.Put(key, sealBytes(key, piece)); err != nil {
			return err
		}
	}

	return nil
}

// readBytes returns length bytes of a version from offset on.
func (p parts) readBytes(e entry, offset, length int64) ([]byte, error) {
	out := make([]byte, 0, length)
	for n := offset / chunkSize; int64(len(out)) < length; n++ {
		key := chunkKey(e.Version, n)
		piece, err := openBytes(key, p.chunks.Get(key))
		if err != nil {
			return nil, err
		}

		piece = piece[min(offset-n*chunkSize, int64(len(piece))):]
		piece = piece[:min(length-int64(len(out)), int64(len(piece)))]
		if len(piece) == 0 {
			return nil, errDamaged
		}

		out = append(out, piece...)
		offset += int64(len(piece))
	}

	return out, nil
}

func splitPieces(data []byte) (pieces [][]byte) {
	for len(data) > 0 {
		n := min(len(data), chunkSize)
		pieces = append(pieces, data[:n:n])
		data = data[n:]
	}

	return pieces
}

// put stores a whole version in one commit. The caller does not change data any more.
func (c container) put(ctx context.Context, op, name string, e entry, data []byte) error {
	e.Size, e.ModifiedAt = int64(len(data)), c.wholeSecondNow()

	return c.store.committer.do(ctx, &change{op: op, weight: len(data), check: noCheck,
		write: func(tx *bolt.Tx) error {
			p := c.parts(tx)
			version, err := p.all.NextSequence()
			if err != nil {
				return err
			}

			if err := p.putChunks(version, 0, splitPieces(data)); err != nil {
				return err
			}

			e.Version = version

			return p.replace(name, e)
		}})
}

// upload stores a version in several commits. Readers see it after the last one.
func (c container) upload(ctx context.Context, op, name string, e entry, body io.Reader) error {
	buffer := make([]byte, uploadBytes)
	n, err := io.ReadFull(body, buffer)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return c.put(ctx, op, name, e, buffer[:n])
	case err != nil:
		return err
	}

	version, err := c.beginUpload(ctx, op)
	if err != nil {
		return err
	}

	e.Version = version
	if err := c.sendPieces(ctx, op, &e, buffer, body); err != nil {
		return errors.Join(err,
			c.endUpload(context.WithoutCancel(ctx), op, version, dropVersion(version)))
	}

	e.ModifiedAt = c.wholeSecondNow()

	return c.endUpload(ctx, op, version, func(p parts) error { return p.replace(name, e) })
}

func dropVersion(version uint64) func(parts) error {
	return func(p parts) error { return p.removeChunks(version) }
}

func (c container) beginUpload(ctx context.Context, op string) (version uint64, err error) {
	err = c.store.committer.do(ctx,
		&change{op: op, check: noCheck, write: func(tx *bolt.Tx) (err error) {
			p := c.parts(tx)
			if version, err = p.all.NextSequence(); err != nil {
				return err
			}
			return p.uploads.Put(versionKey(version), nil)
		}})

	return version, err
}

// sendPieces stores the content of an upload, whose first bytes fill the buffer.
func (c container) sendPieces(ctx context.Context, op string, e *entry, buffer []byte,
	body io.Reader) error {
	for n := len(buffer); n > 0; {
		piece, first := bytes.Clone(buffer[:n]), e.Size/chunkSize
		err := c.store.committer.do(ctx, &change{op: op, weight: n, check: noCheck,
			write: func(tx *bolt.Tx) error {
				return c.parts(tx).putChunks(e.Version, first, splitPieces(piece))
			}})
		if err != nil {
			return err
		}

		e.Size += int64(n)

		n, err = io.ReadFull(body, buffer)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
	}

	return nil
}

func (c container) endUpload(ctx context.Context, op string, version uint64,
	last func(parts) error) error {
	return c.store.committer.do(ctx,
		&change{op: op, check: noCheck, write: func(tx *bolt.Tx) error {
			p := c.parts(tx)
			if err := p.uploads.Delete(versionKey(version)); err != nil {
				return err
			}
			return last(p)
		}})
}

// remove removes an entry with its content. If version is not empty, the entry must have it.
func (c container) remove(ctx context.Context, op, name string, version storage.ETag) error {
	var found entry

	return c.store.committer.do(ctx, &change{op: op, check: func(tx *bolt.Tx) (err error) {
		found, err = c.parts(tx).findVersion(op, name, version)
		return err
	}, write: func(tx *bolt.Tx) error {
		p := c.parts(tx)
		if err := p.removeChunks(found.Version); err != nil {
			return err
		}
		return p.entries.Delete([]byte(name))
	}})
}

// findVersion returns the entry of a name, or NotFound, or Precondition if it has another version.
func (p parts) findVersion(op, name string, version storage.ETag) (entry, error) {
	e, isThere, err := p.find(name)
	switch {
	case err != nil:
		return e, readError(op, err)
	case !isThere:
		return e, newError(op, storage.NotFound, nil)
	case version != "" && version != e.etag():
		return e, newError(op, storage.Precondition, nil)
	}

	return e, nil
}

// list calls visit with the entries of one page in order, and returns the marker of the next page:
// the last name of this one.
func (c container) list(ctx context.Context, op, prefix, marker string,
	visit func(string, entry)) (next string, err error) {
	err = c.store.read(ctx, op, func(tx *bolt.Tx) error {
		cursor, last, n := c.parts(tx).entries.Cursor(), "", 0
		for key, sealed := cursor.Seek([]byte(max(prefix, marker))); bytes.HasPrefix(key, []byte(prefix)) &&
			key != nil; key, sealed = cursor.Next() {
			name := string(key)
			if name == marker {
				continue
			}

			if n == maxListed {
				next = last
				return nil
			}

			var e entry
			if err := readEntry(key, sealed, &e); err != nil {
				return err
			}

			visit(name, e)
			n, last = n+1, name
		}

		return nil
	})

	return next, err
}

// wholeSecondNow returns the time in whole seconds, as Azure stores it.
func (c container) wholeSecondNow() time.Time { return c.store.now().UTC().Truncate(time.Second) }
