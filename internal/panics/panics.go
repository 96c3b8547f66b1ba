// Package panics keeps a panic of one piece of work from ending the process. The process also
// answers requests and delivers messages of lanes that have nothing to do with that work, and the
// next process would find the same work again.
//
// Each goroutine of the program begins with one of these functions; internal/weir has a test for
// this. Handlers of HTTP requests are guarded by httpio.Middleware.
package panics

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"weir/internal/clock"
)

// Error is a panic that was turned into an error. Its text has the stack, so it is for the log
// only.
type Error struct {
	Value any
	Stack []byte
}

func (e *Error) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// Unwrap returns the value of the panic if it is an error, and nil otherwise.
func (e *Error) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Catch calls do and returns its error. If do panics, Catch returns an Error.
func Catch(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &Error{Value: p, Stack: debug.Stack()}
		}
	}()
	return do()
}

// Guard returns a function that calls do by Catch, for errgroup.Group.
func Guard(do func() error) func() error {
	return func() error { return Catch(do) }
}

// Log is deferred by a goroutine whose work is lost if it panics, and is asked for again later. It
// logs the panic with the worker's name.
func Log(log *slog.Logger, worker string) {
	if p := recover(); p != nil { //revive:disable-line:defer the callers defer Log
		logPanic(log, worker, &Error{Value: p, Stack: debug.Stack()})
	}
}

const (
	// After its first panic, Repeat waits for minPause. Each further panic doubles the pause, up to
	// maxPause. If the work has run for maxPause or longer, the next pause is minPause again.
	minPause = time.Second
	maxPause = time.Minute
)

// Repeat calls the work of a background worker, and returns when the work returns. If the work
// panics, Repeat logs the panic with the worker's name, and calls the work again after a pause. It
// also returns if ctx ends during a pause.
func Repeat(ctx context.Context, log *slog.Logger, worker string, work func()) {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		began := time.Now()
		err := Catch(func() error { work(); return nil })
		if err == nil {
			return
		}

		logPanic(log, worker, err)
		if time.Since(began) >= maxPause {
			pause = minPause
		}

		if !clock.Sleep(ctx, pause) {
			return
		}
	}
}

func logPanic(log *slog.Logger, worker string, err error) {
	log.Error("panic: work ended", "subject", worker, "err", err)
}
