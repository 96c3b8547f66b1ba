package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
)

// compactBytes is the size of the commits of a copy.
const compactBytes = 4 << 20

// Backup writes a copy of the store to w while others write to the store. The copy is the state at
// one moment after the call. It has no bytes of rows and blobs that were removed before.
//
// The copy is first made in the folder, so the disk needs space for it.
func (s *Store) Backup(ctx context.Context, w io.Writer) (err error) {
	path, err := s.copyCompact(ctx)
	if err != nil {
		return fmt.Errorf("back up: %w", explainOpen(err))
	}
	defer func() { err = errors.Join(err, os.Remove(path)) }()

	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	defer f.Close()
	_, err = io.Copy(w, contextReader{ctx, f})

	return err
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}

	return c.r.Read(p)
}

// backupPattern names the copies in the folder. Open removes those that a process left.
const backupPattern = "weir-backup-*.tmp"

// copyCompact makes a file in the folder with a copy of the store, and returns its path.
func (s *Store) copyCompact(ctx context.Context) (path string, err error) {
	if err := s.committer.brokenBy(); err != nil {
		return "", err
	}

	f, err := os.CreateTemp(s.dir, backupPattern)
	if err != nil {
		return "", err
	}

	path = f.Name()
	if err := f.Close(); err != nil {
		return "", err
	}

	err = s.readLong(ctx, func(ctx context.Context, from *bolt.Tx) error {
		return copyState(ctx, path, from)
	})
	if err != nil {
		return "", errors.Join(err, os.Remove(path))
	}

	return path, nil
}

// readLong calls f with a snapshot of the store. The context of f also ends when the store closes.
func (s *Store) readLong(ctx context.Context, f func(context.Context, *bolt.Tx) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(errClosed) })()

	s.longReads.RLock()
	defer s.longReads.RUnlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	return guardFaults(func() error {
		return s.db.View(func(tx *bolt.Tx) error { return f(ctx, tx) })
	})
}

// copyState makes a file with the state of a snapshot.
func copyState(ctx context.Context, path string, from *bolt.Tx) error {
	to, err := bolt.Open(path, 0o600,
		&bolt.Options{NoSync: true, NoGrowSync: true, PageSize: pageSize,
			NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return err
	}

	c := &copier{ctx: ctx, to: to}
	err = from.ForEach(func(name []byte, b *bolt.Bucket) error { return c.copyBucket([][]byte{name}, b) })
	if err == nil {
		err = c.commit()
	} else if c.tx != nil {
		err = errors.Join(err, c.tx.Rollback())
	}

	if err == nil {
		err = to.Sync()
	}

	return errors.Join(err, closeFile(to))
}

// copier copies buckets to another file, by commits of compactBytes.
type copier struct {
	ctx  context.Context
	to   *bolt.DB
	tx   *bolt.Tx // the open transaction, or nil
	size int
}

func (c *copier) commit() error {
	if c.tx == nil {
		return nil
	}

	tx := c.tx
	c.tx, c.size = nil, 0

	return tx.Commit()
}

// bucketAt returns a bucket of the copy, which it creates if it is missing.
func (c *copier) bucketAt(path [][]byte) (b *bolt.Bucket, err error) {
	if c.size >= compactBytes {
		if err := c.commit(); err != nil {
			return nil, err
		}
	}

	if c.tx == nil {
		if c.tx, err = c.to.Begin(true); err != nil {
			return nil, err
		}
	}

	b, err = c.tx.CreateBucketIfNotExists(path[0])
	for _, name := range path[1:] {
		if err == nil {
			b, err = b.CreateBucketIfNotExists(name)
		}
	}

	return b, err
}

func (c *copier) copyBucket(path [][]byte, from *bolt.Bucket) error {
	b, err := c.bucketAt(path)
	if err == nil {
		err = b.SetSequence(from.Sequence())
	}

	if err != nil {
		return err
	}

	return from.ForEach(func(key, value []byte) error {
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
		if value == nil {
			return c.copyBucket(append(path[:len(path):len(path)], key), from.Bucket(key))
		}

		b, err := c.bucketAt(path)
		if err != nil {
			return err
		}

		b.FillPercent = rowFill
		c.size += len(key) + len(value)

		return b.Put(key, value)
	})
}

// removeCopies removes the copies of back-ups that a process did not finish.
func removeCopies(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, backupPattern))
	for _, path := range paths {
		err = errors.Join(err, os.Remove(path))
	}

	return err
}

// Restore makes a folder with the store of a back-up. The folder must not have a store.
func Restore(dir, backup string) error {
	if err := restore(dir, backup); err != nil {
		return fmt.Errorf("restore %s to the folder %s: %w", backup, dir, explainOpen(err))
	}

	return nil
}

func restore(dir, backup string) error {
	path := filepath.Join(dir, dataName)
	switch _, err := os.Stat(path); {
	case err == nil:
		return errors.New("the folder has a store already: take an empty folder")
	case !errors.Is(err, os.ErrNotExist):
		return err
	}

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}

	unfinished := path + ".new"
	if err := copyFile(unfinished, backup); err != nil {
		return errors.Join(err, os.RemoveAll(unfinished))
	}

	if err := checkStore(unfinished); err != nil {
		if isDamaged(err) {
			// Without its cause: Restore would add how to cure a store.
			err = fmt.Errorf("the back-up is no store of Weir, or it is damaged (%s): take another one", err.Error())
		}
		return errors.Join(err, os.Remove(unfinished))
	}

	if err := os.Rename(unfinished, path); err != nil {
		return err
	}

	return syncFolder(dir)
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}

	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}

	return errors.Join(err, out.Close())
}

// checkStore opens a file, and compares its structure.
func checkStore(path string) (err error) {
	db, err := openFile(path, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	err = guardFaults(func() error {
		return db.View(func(tx *bolt.Tx) error {
			if b := tx.Bucket([]byte(aboutBucket)); b == nil || b.Get(aboutKey) == nil {
				return errors.New("the file is a database, but no store of Weir")
			}
			return nil
		})
	})
	if err != nil {
		return err
	}

	return checkStructure(db)
}
