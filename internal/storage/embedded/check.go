package embedded

import (
	"context"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// Report is the result of Check.
type Report struct {
	Rows, Blobs, Messages int      // numbers of whole ones
	Problems              []string // rows, blobs and messages that are damaged
}

// Check reads everything in the store, and compares the checksums. While it does, others can read
// and write.
func (s *Store) Check(ctx context.Context) (r Report, err error) {
	err = s.readLong(ctx, func(ctx context.Context, tx *bolt.Tx) error {
		c := &checker{ctx: ctx}
		err := c.checkAll(tx)
		r = c.report
		return err
	})

	return r, readError("check", err)
}

// CheckFile opens the store of a folder, compares the structure of its file, and then does what
// Check does. No process can have the folder open.
func CheckFile(ctx context.Context, dir string, o Options) (r Report, err error) {
	s, err := Open(dir, o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	err = checkStructure(s.db)
	if err != nil {
		r.Problems = append(r.Problems, err.Error())
		return r, nil
	}

	return s.Check(ctx)
}

// checkStructure returns an error if pages are missing, doubly used, or in a wrong order. It holds
// back all commits meanwhile.
func checkStructure(db *bolt.DB) error {
	return guardFaults(func() (err error) {
		tx, err := db.Begin(true)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, tx.Rollback()) }()

		if err := walkPages(tx); err != nil {
			return err
		}

		for problem := range tx.Check() {
			if err == nil {
				err = fmt.Errorf("%w: %w", errDamaged, problem)
			}
		}

		return err
	})
}

type checker struct {
	ctx    context.Context
	report Report
}

func (c *checker) addProblem(err error) {
	c.report.Problems = append(c.report.Problems, err.Error())
}

func (c *checker) checkAll(tx *bolt.Tx) error {
	if err := c.checkRows(tx); err != nil {
		return err
	}

	for _, name := range queueBuckets {
		if err := c.checkMessages(tx.Bucket([]byte(name))); err != nil {
			return err
		}
	}

	for _, name := range containerBuckets {
		if err := c.checkBlobs(name, container{name: name}.parts(tx)); err != nil {
			return err
		}
	}

	return nil
}

func (c *checker) checkRows(tx *bolt.Tx) error {
	all := tx.Bucket([]byte(tableBucket))

	return all.ForEachBucket(func(name []byte) error {
		return all.Bucket(name).ForEach(func(key, value []byte) error {
			if _, err := decodeRow(string(name), string(key), value, nil); err != nil {
				c.addProblem(err)
			} else {
				c.report.Rows++
			}
			return c.ctx.Err()
		})
	})
}

func (c *checker) checkMessages(b *bolt.Bucket) error {
	return b.ForEach(func(key, value []byte) error {
		if _, err := readMessage(key, value); err != nil {
			c.addProblem(err)
		} else {
			c.report.Messages++
		}
		return c.ctx.Err()
	})
}

func (c *checker) checkBlobs(container string, p parts) error {
	return p.entries.ForEach(func(name, sealed []byte) error {
		var e entry
		err := readEntry(name, sealed, &e)
		for at := int64(0); err == nil && at < e.Size; at += chunkSize {
			_, err = p.readBytes(e, at, min(chunkSize, e.Size-at))
		}

		if err != nil {
			c.addProblem(fmt.Errorf("%s/%s: %w", container, name, err))
		} else {
			c.report.Blobs++
		}

		return c.ctx.Err()
	})
}
