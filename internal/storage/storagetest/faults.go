package storagetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"weir/internal/storage"
)

// Call describes a call of a port's method. A fault hook decides by it how the call fails.
type Call struct {
	Actor     string // the caller, as given to As; empty without As
	Port      string // "table", "queue", "blobs", "files", "leases"
	Op        string // the method's name
	Partition string
	// Key depends on the method. It is the row key, the From of a query, the name of a blob, file or lease, the prefix
	// of a listing, the text that is put, or the ID of a queue's message. In the other methods it is empty.
	Key string
	Ops []storage.Op // the operations of Transact
}

// FaultKind is the way in which a call fails.
type FaultKind int

// The faults of a write. Dequeuing messages is a write, too. A read returns Unavailable with any fault. If the
// fault is Hang or HangAfter, the read returns when its context ends, otherwise at once.
const (
	None       FaultKind = iota
	FailBefore           // the write is never done; the call returns Unavailable
	FailAfter            // the write is done; the call returns Ambiguous
	Late                 // the call returns Ambiguous at once; the write is done after Delay
	LateHeld             // the call returns Ambiguous at once; the write is done at Release
	Hang                 // the write is never done; the call returns Ambiguous when the context ends
	HangAfter            // the write is done; the call returns Ambiguous when the context ends
)

// Fault is the failure of one call.
type Fault struct {
	Kind  FaultKind
	Delay time.Duration // for Late
	Err   error         // returned instead of the kind's own error
}

// Faults injects failures into the ports that it wraps; a hook decides for each call. It may be used
// concurrently.
type Faults struct {
	*shared
	actor string
}

type shared struct {
	asking  sync.Mutex // locked while a hook runs, so that hooks need no lock of their own
	mu      sync.Mutex
	hook    func(Call) Fault
	release chan struct{}
	late    sync.WaitGroup
}

// NewFaults returns Faults without a hook: no call fails.
func NewFaults() *Faults { return &Faults{shared: &shared{release: make(chan struct{})}} }

// As returns the same faults for another actor. Ports that it wraps name the actor in each Call, so that
// one hook can distinguish the processes of a simulation.
func (f *Faults) As(actor string) *Faults { return &Faults{shared: f.shared, actor: actor} }

// Set installs the hook that decides before each call, in place of any other; nil = no call fails. One
// call at a time runs the hook, and the hook may call Set and Release.
func (f *Faults) Set(hook func(Call) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// Once fails the first call that matches. The hook that was set before, also by Once, decides about all
// other calls.
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

// Release lets all writes begin that have waited for it because of LateHeld. Wait returns when they are done.
func (f *Faults) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.release)
	f.release = make(chan struct{})
}

// Wait waits until all late writes are done.
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

// doWrite makes a write with its fault. The answer of do is lost unless the fault is None.
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

// doRead makes a read with its fault.
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

// runLater makes the call after the delay or at Release; the caller does not wait for it.
func (f *Faults) runLater(ctx context.Context, fault Fault, release <-chan struct{}, do func(context.Context) error) {
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
