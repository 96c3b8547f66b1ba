package storagetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"weir/internal/storage"
)

// Call is one call of a port, as a fault hook sees it.
type Call struct {
	Port      string // "table", "queue", "blobs", "leases"
	Op        string // the method's name
	Partition string
	Key       string // row key, blob or lease name
	Ops       []storage.Op
}

// FaultKind says what goes wrong with a call.
type FaultKind int

// The faults. For reads, which change nothing, those that answer Ambiguous for a write
// answer Unavailable.
const (
	None       FaultKind = iota
	FailBefore           // nothing is done: Unavailable
	FailAfter            // it is done: Ambiguous
	Late                 // Ambiguous at once; it is done after Delay
	LateHeld             // Ambiguous at once; it is done at Release
	Hang                 // nothing is done; returns when the context ends
	HangAfter            // it is done; returns when the context ends
)

// Fault is what goes wrong with one call.
type Fault struct {
	Kind  FaultKind
	Delay time.Duration // for Late
	Err   error         // instead of the usual error of FailBefore and FailAfter
}

// Faults breaks the ports it wraps, as its hook says. It may be used concurrently.
type Faults struct {
	mu      sync.Mutex
	hook    func(Call) Fault
	release chan struct{}
	late    sync.WaitGroup
}

// NewFaults breaks nothing until told to.
func NewFaults() *Faults { return &Faults{release: make(chan struct{})} }

// Set installs the hook that is asked before each call; nil breaks nothing. The hook is
// called by one call at a time.
func (f *Faults) Set(hook func(Call) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// Once breaks the first call that matches, and no other.
func (f *Faults) Once(match func(Call) bool, fault Fault) {
	done := false
	f.Set(func(c Call) Fault {
		if done || !match(c) {
			return Fault{}
		}
		done = true
		return fault
	})
}

// Release lets everything arrive that LateHeld holds.
func (f *Faults) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.release)
	f.release = make(chan struct{})
}

// Wait waits until nothing is late any more.
func (f *Faults) Wait() { f.late.Wait() }

func (f *Faults) ask(c Call) (Fault, chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hook == nil {
		return Fault{}, nil
	}
	return f.hook(c), f.release
}

var errInjected = errors.New("injected fault")

// write makes a call that changes something, with its fault.
func (f *Faults) write(ctx context.Context, c Call, do func(context.Context) error) error {
	fault, release := f.ask(c)
	switch fault.Kind {
	case FailBefore:
		return failure(c, fault, storage.Unavailable)
	case FailAfter:
		return errors.Join(failure(c, fault, storage.Ambiguous), ignore(do(ctx)))
	case Late, LateHeld:
		f.later(context.WithoutCancel(ctx), fault, release, do)
		return failure(c, fault, storage.Ambiguous)
	case Hang:
		<-ctx.Done()
		return failure(c, fault, storage.Ambiguous)
	case HangAfter:
		ignore(do(ctx))
		<-ctx.Done()
		return failure(c, fault, storage.Ambiguous)
	}
	return do(ctx)
}

// read makes a call that changes nothing, with its fault.
func (f *Faults) read(ctx context.Context, c Call, do func() error) error {
	fault, _ := f.ask(c)
	switch fault.Kind {
	case None:
		return do()
	case Hang, HangAfter:
		<-ctx.Done()
	}
	return failure(c, fault, storage.Unavailable)
}

// later does what was asked when its time comes, whatever the caller has done meanwhile.
func (f *Faults) later(ctx context.Context, fault Fault, release chan struct{}, do func(context.Context) error) {
	f.late.Go(func() {
		if fault.Kind == LateHeld {
			<-release
		} else {
			timer := time.NewTimer(fault.Delay)
			<-timer.C
		}
		ignore(do(ctx))
	})
}

// ignore drops what a call answered: its answer is lost on the way.
func ignore(error) error { return nil }

func failure(c Call, fault Fault, kind storage.Kind) error {
	if fault.Err != nil {
		return fault.Err
	}
	return &storage.Error{Op: c.Port + " " + c.Op, Kind: kind, Index: -1, Err: errInjected}
}
