package timelimit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/storage/timelimit"
)

// bound is the longest time for which a call is allowed to hang.
const bound = 8 * time.Second

const leaseID = "00000000-0000-4000-8000-000000000001"

type ports struct {
	table  storage.Table
	queue  timelimit.QueuePort
	blobs  timelimit.BlobPort
	leases storage.Leases
	files  storage.Files
}

func newHangingPorts() ports {
	f, account := storagetest.NewFaults(), memory.New(time.Now)
	f.Set(func(storagetest.Call) storagetest.Fault { return storagetest.Fault{Kind: storagetest.Hang} })
	return ports{
		table:  timelimit.Table(f.Table(account.Table())),
		queue:  timelimit.Queue(f.Queue(account.Queue("q")).(timelimit.QueuePort)),
		blobs:  timelimit.Blobs(f.Blobs(account.Blobs())),
		leases: timelimit.Leases(f.Leases(account.Leases())),
		files:  timelimit.Files(f.Files(account.Files("inbox"))),
	}
}

var calls = map[string]func(ctx context.Context, p ports) error{
	"table get": func(ctx context.Context, p ports) error {
		_,
			err := p.table.Get(ctx, "p", "k")
		return err
	},
	"table query": func(ctx context.Context, p ports) error {
		_, err := p.table.Range(ctx, storage.Query{Partition: "p"})
		return err
	},
	"table transact": func(ctx context.Context, p ports) error {
		_, err := p.table.Transact(ctx, "p", []storage.Op{{Kind: storage.Insert, Key: "k"}})
		return err
	},
	"queue put": func(ctx context.Context, p ports) error { return p.queue.Put(ctx, "t", 0) },
	"queue get": func(ctx context.Context, p ports) error {
		_,
			err := p.queue.Get(ctx, 1, time.Minute)
		return err
	},
	"queue update": func(ctx context.Context, p ports) error {
		_, err := p.queue.Update(ctx, storage.QueueMessage{}, "t", 0)
		return err
	},
	"queue delete": func(ctx context.Context, p ports) error {
		return p.queue.Delete(ctx,
			storage.QueueMessage{})
	},
	"queue length": func(ctx context.Context, p ports) error {
		_,
			err := p.queue.Length(ctx)
		return err
	},
	"blob put": func(ctx context.Context, p ports) error {
		return p.blobs.Put(ctx, "b",
			[]byte("x"))
	},
	"blob get": func(ctx context.Context, p ports) error {
		_,
			err := p.blobs.Get(ctx, "b")
		return err
	},
	"blob delete": func(ctx context.Context, p ports) error { return p.blobs.Delete(ctx, "b") },
	"blob mark":   func(ctx context.Context, p ports) error { return p.blobs.Mark(ctx, "b") },
	"blob list": func(ctx context.Context, p ports) error {
		_,
			err := p.blobs.List(ctx, "", "")
		return err
	},
	"file list": func(ctx context.Context, p ports) error {
		_,
			err := p.files.List(ctx, "", "")
		return err
	},
	"file read": func(ctx context.Context, p ports) error {
		_,
			err := p.files.Read(ctx, "f", "", 0, 1)
		return err
	},
	"file write": func(ctx context.Context, p ports) error {
		return p.files.Write(ctx, "f", "text/xml", nil, strings.NewReader("x"))
	},
	"file delete": func(ctx context.Context, p ports) error { return p.files.Delete(ctx, "f", "") },
	"lease acquire": func(ctx context.Context,
		p ports) error {
		return p.leases.Acquire(ctx, "l", leaseID, 15*time.Second)
	},
	"lease renew": func(ctx context.Context, p ports) error {
		return p.leases.Renew(ctx, "l",
			leaseID)
	},
	"lease release": func(ctx context.Context, p ports) error {
		return p.leases.Release(ctx, "l",
			leaseID)
	},
}

func TestCalls_HangForSecondsOnly(t *testing.T) {
	t.Parallel()
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				err := call(ctx, newHangingPorts())
				if kind := storage.KindOf(err); kind != storage.Ambiguous &&
					kind != storage.Unavailable {
					t.Errorf("err = %v, want ambiguous or unavailable", err)
				}

				if took := time.Since(began); took > bound {
					t.Errorf("the call hung for %s, want at most %s", took, bound)
				}
			})
		})
	}
}

// slowBlob sends one piece of a blob each second. After the last piece, Get hangs.
type slowBlob struct {
	timelimit.BlobPort
	pieces int
	cause  error // the cause with which the context of Get ended
}

func (s *slowBlob) Get(ctx context.Context, _ string) ([]byte, error) {
	for range s.pieces {
		select {
		case <-time.After(time.Second):
			timelimit.Moved(ctx)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}

	<-ctx.Done()
	s.cause = context.Cause(ctx)
	return nil, ctx.Err()
}

func TestBlobs_EndOnlyWhenNothingMoves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pieces = 100
		inner := &slowBlob{pieces: pieces}
		began := time.Now()
		_, err := timelimit.Blobs(inner).Get(t.Context(), "b")
		if took := time.Since(began) - pieces*time.Second; took < 0 || took > bound {
			t.Errorf("ended %s after the last piece, want between 0 s and %s", took, bound)
		}

		if err == nil || !errors.Is(inner.cause, timelimit.ErrHung) {
			t.Errorf("err = %v, cause %v, want the cause %v", err, inner.cause, timelimit.ErrHung)
		}
	})
}

func TestCalls_EndWithTheContextOfTheCaller(t *testing.T) {
	t.Parallel()
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				if err := call(ctx, newHangingPorts()); err == nil ||
					time.Since(began) != time.Second {
					t.Errorf("err = %v after %s, want one after 1s", err, time.Since(began))
				}
			})
		})
	}
}
