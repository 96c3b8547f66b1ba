package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"syscall"

	berrors "go.etcd.io/bbolt/errors"

	"weir/internal/storage"
)

// codeFull is the code of an error whose cause is a full disk.
const codeFull = "the disk is full"

var errDamaged = errors.New("the stored bytes are damaged")

func newError(op string, kind storage.Kind, err error) *storage.Error {
	return &storage.Error{Op: op, Kind: kind, Index: -1, Err: err}
}

// readError returns the error of a read as an error of the port.
func readError(op string, err error) error {
	var known *storage.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.Is(err, errDamaged):
		return newError(op, storage.Unreadable, err)
	}

	return newError(op, storage.Unavailable, err)
}

// notDone returns the error of a write of which nothing was done.
func notDone(op string, err error) error {
	e := newError(op, storage.Unavailable, err)
	if isFull(err) {
		e.Code = codeFull
	}

	return e
}

// endedError returns the error of a call whose context has ended before anything was done.
func endedError(ctx context.Context, op string) error {
	return newError(op, storage.Unavailable, context.Cause(ctx))
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || isOverQuota(err)
}

// explainOpen adds to an error of Open how to cure it.
func explainOpen(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission), isReadOnly(err):
		return fmt.Errorf("this process cannot write there (%w): give it the right to, or take another folder", err)
	case isFull(err):
		return fmt.Errorf("%s: %w", codeFull, err)
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EEXIST):
		return fmt.Errorf("it must be a folder, and not a file (%w): take another name", err)
	case isDamaged(err):
		return fmt.Errorf("%s is no store of Weir, or it is damaged (%w): restore a back-up",
			dataName, err)
	}

	return err
}

// isDamaged reports whether an error means that a file is no store, or a damaged one.
func isDamaged(err error) bool {
	return errors.Is(err, berrors.ErrInvalid) || errors.Is(err, berrors.ErrChecksum) ||
		errors.Is(err, berrors.ErrVersionMismatch) || errors.Is(err, errDamaged)
}

// explainPanic returns the error for a recovered panic; without a panic it returns err. bbolt
// panics if it meets a page that cannot be true, and the machine does if the disk cannot read a
// page of the mapped file. For the latter the caller must have called debug.SetPanicOnFault.
func explainPanic(panicked any, err error) error {
	if panicked == nil {
		return err
	}

	if _, isFault := panicked.(interface{ Addr() uintptr }); isFault {
		return fmt.Errorf("%w: a page is missing or cannot be read", errDamaged)
	}

	return fmt.Errorf("%w: %v", errDamaged, panicked)
}

// guardFaults calls f, and returns a panic of f as an error.
func guardFaults(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { err = explainPanic(recover(), err) }()

	return f()
}
