package storagetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"weir/internal/storage"
)

// Call describes a call of a port's method. A hook gets the Call, and decides whether the call
// fails.
type Call struct {
	Actor     string // the actor that was given to As; empty without As
	Port      string // "table", "queue", "blobs", "files", "leases"
	Op        string // the method's name
	Partition string
	// Key depends on the method: it is a row key, the From of a query, the name of a blob, file or
	// lease, the prefix of a listing, the text of a new queue message, or the ID of a dequeued
	// message. For other methods, Key is empty.
	Key string
	Ops []storage.Op // the operations of Transact
}

// FaultKind is the way in which a call fails.
type FaultKind int

// The faults. The comments beside them describe writes; Queue.Get counts as a write.
//
// A read returns Unavailable with any fault except None. With Hang and HangAfter, the read returns
// when its context ends. With the other faults, the read returns at once.
const (
	None       FaultKind = iota
	FailBefore           // the write is never done; the call returns Unavailable
	FailAfter            // the write is done; the call returns Ambiguous
	Late                 // the call returns Ambiguous at once; the write is done when Delay is over
	// the call returns Ambiguous at once; the write is done when Release is called
	LateHeld
	// the write is never done; the call returns Ambiguous when the context ends
	Hang
	HangAfter // the write is done; the call returns Ambiguous when the context ends
)

// Fault is the failure of one call.
type Fault struct {
	Kind  FaultKind
	Delay time.Duration // for Late
	Err   error         // if set, the call returns Err instead of the error of Kind
}

// Faults wraps ports and injects failures into their calls. A hook decides for each call whether
// and how the call fails. All methods may be called concurrently.
type Faults struct {
	*shared
	actor string
}

type shared struct {
	asking  sync.Mutex // locked during a hook, so that hooks need no lock of their own
	mu      sync.Mutex
	hook    func(Call) Fault
	release chan struct{}
	late    sync.WaitGroup
}

// NewFaults returns Faults without a hook: no call fails.
func NewFaults() *Faults { return &Faults{shared: &shared{release: make(chan struct{})}} }

// As returns Faults that share f's hook. If the returned Faults wrap a port, each Call of the port
// has this actor. So one hook can distinguish the processes of a simulation.
func (f *Faults) As(actor string) *Faults { return &Faults{shared: f.shared, actor: actor} }

// Set replaces the hook. The hook runs before each call, for one call at a time, and returns the
// call's fault. If the hook is nil, no call fails. The hook may call Set and Release.
func (f *Faults) Set(hook func(Call) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// Once fails the first call that matches. For all other calls, the hook that was installed before
// decides.
func (f *Faults) Once(match func(Call) bool, fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	done, before := false, f.hook
	f.hook = func(c Call) Fault {
		switch {
		case !done && match(c):
			done = true
			return fault
		case before != nil:
			return before(c)
		}

		return Fault{}
	}
}

// Release starts all writes that wait because of LateHeld. Wait returns when these writes are done.
func (f *Faults) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.release)
	f.release = make(chan struct{})
}

// Wait returns when all writes with Late or LateHeld are done.
func (f *Faults) Wait() { f.late.Wait() }

func (f *Faults) decideFault(c Call) (Fault, <-chan struct{}) {
	f.asking.Lock()
	defer f.asking.Unlock()
	f.mu.Lock()
	hook, release := f.hook, f.release
	f.mu.Unlock()
	if hook == nil {
		return Fault{}, release
	}

	c.Actor = f.actor

	return hook(c), release
}

var errInjected = errors.New("injected fault")

// doWrite makes a write with its fault. If the fault is not None, doWrite does not return the error
// of do.
func (f *Faults) doWrite(ctx context.Context, c Call, do func(context.Context) error) error {
	fault, release := f.decideFault(c)
	switch fault.Kind {
	case None:
		return do(ctx)
	case FailBefore:
		return faultError(c, fault, storage.Unavailable)
	case FailAfter:
		_ = do(ctx)
	case Late, LateHeld:
		f.runLater(context.WithoutCancel(ctx), fault, release, do)
	case Hang:
		<-ctx.Done()
	case HangAfter:
		_ = do(ctx)
		<-ctx.Done()
	}

	return faultError(c, fault, storage.Ambiguous)
}

func (f *Faults) doRead(ctx context.Context, c Call, do func() error) error {
	fault, _ := f.decideFault(c)
	switch fault.Kind {
	case None:
		return do()
	case Hang, HangAfter:
		<-ctx.Done()
	}

	return faultError(c, fault, storage.Unavailable)
}

// runLater starts a goroutine that makes the write when the fault's delay is over or when Release
// is called.
func (f *Faults) runLater(ctx context.Context, fault Fault, release <-chan struct{},
	do func(context.Context) error) {
	f.late.Go(func() {
		if fault.Kind == Late {
			<-time.After(fault.Delay)
		} else {
			<-release
		}
		_ = do(ctx)
	})
}

func faultError(c Call, fault Fault, kind storage.Kind) error {
	if fault.Err != nil {
		return fault.Err
	}
	return &storage.Error{Op: c.Port + " " + c.Op, Kind: kind, Index: -1, Err: errInjected}
}
