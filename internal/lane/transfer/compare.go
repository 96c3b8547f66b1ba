package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"iter"

	"weir/internal/lane/epochs"
	"weir/internal/lane/rows"
)

// Report has the numbers and hashes of a complete copy. They are those of both stores.
type Report struct {
	Rows, Bodies, Files Sum
}

// Kinds yields the sums with their names.
func (r Report) Kinds() iter.Seq2[string, Sum] {
	return func(yield func(string, Sum) bool) {
		_ = yield("rows", r.Rows) && yield("bodies", r.Bodies) && yield("files", r.Files)
	}
}

// Sum counts things of one kind, and has the hash of all their contents.
type Sum struct {
	Count int64
	Bytes int64
	Hash  string // SHA-256 in hex
}

// comparison reads both stores in order. With mayWrite it removes each difference; otherwise it
// counts the differences.
type comparison struct {
	Mover
	// the lanes of this epoch are closed in the source, and open in the target
	open        epochs.Epoch
	mayWrite    bool
	differences int
	isOpen      map[string]bool // partitions of the epoch

	rows, bodies, files [2]*running
}

// running is a Sum under way. The first of two is that of the source, the second that of the
// target.
type running struct {
	count, bytes int64
	hash         hash.Hash
}

func newRunning() *running { return &running{hash: sha256.New()} }

// add adds one thing of "size" bytes. Its content must name itself, so that things cannot swap their
// contents.
func (r *running) add(content []byte, size int64) {
	r.count++
	r.bytes += size
	r.hash.Write(content)
}

func (c *comparison) run(ctx context.Context) error {
	for _, pair := range []*[2]*running{&c.rows, &c.bodies, &c.files} {
		*pair = [2]*running{newRunning(), newRunning()}
	}

	c.isOpen = map[string]bool{}
	for number := range c.open.Lanes {
		c.isOpen[rows.Partition(c.open.Number, number)] = true
	}

	// Bodies come first: a row never refers to a body that is not there.
	if err := c.compareBodies(ctx); err != nil {
		return fmt.Errorf("bodies: %w", err)
	}

	if err := c.compareArchive(ctx); err != nil {
		return fmt.Errorf("archive: %w", err)
	}

	if err := c.compareRows(ctx); err != nil {
		return fmt.Errorf("rows: %w", err)
	}

	return nil
}

var errSums = errors.New("the hashes of the two stores differ: this is a defect of Weir")

func (c *comparison) report() (r Report, err error) {
	for sum, pair := range map[*Sum][2]*running{&r.Rows: c.rows, &r.Bodies: c.bodies,
		&r.Files: c.files} {
		ours, theirs := pair[0].hash.Sum(nil), pair[1].hash.Sum(nil)
		if pair[0].count != pair[1].count || string(ours) != string(theirs) {
			err = errSums
		}
		*sum = Sum{Count: pair[0].count, Bytes: pair[0].bytes, Hash: hex.EncodeToString(ours)}
	}

	return r, err
}

// mergeByName walks over two sequences that are sorted by name, and calls visit for each name with
// the item of each sequence; nil = the sequence does not have the name.
func mergeByName[T any](from, to iter.Seq2[T, error], name func(T) string,
	visit func(from, to *T) error) error {
	nextFrom, stopFrom := iter.Pull2(from)
	defer stopFrom()
	nextTo, stopTo := iter.Pull2(to)
	defer stopTo()

	a, err1, hasA := nextFrom()
	b, err2, hasB := nextTo()
	for hasA || hasB {
		if err := errors.Join(err1, err2); err != nil {
			return err
		}

		isA := hasA && (!hasB || name(a) <= name(b))
		isB := hasB && (!hasA || name(b) <= name(a))
		var ofFrom, ofTo *T
		if isA {
			one := a
			ofFrom = &one
		}

		if isB {
			one := b
			ofTo = &one
		}

		if err := visit(ofFrom, ofTo); err != nil {
			return err
		}

		if isA {
			a, err1, hasA = nextFrom()
		}

		if isB {
			b, err2, hasB = nextTo()
		}
	}

	return nil
}
