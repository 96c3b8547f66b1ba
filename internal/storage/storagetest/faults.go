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
	Actor     string // as given to As: whose call it is
	Port      string // "table", "queue", "blobs", "leases"
	Op        string // the method's name
	Partition string
	Key       string // row key, first key of a range, blob or lease name, text put, message ID
	Ops       []storage.Op
}

// FaultKind says what goes wrong with a call.
type FaultKind int

// The faults. Reads change nothing: those that answer Ambiguous for a write answer
// Unavailable for a read, and nothing of a read is late. To take messages is a write.
const (
	None       FaultKind = iota
	FailBefore           // nothing is done: Unavailable
	FailAfter            // it is done: Ambiguous
	Late                 // Ambiguous at once; it is done after Delay
	LateHeld             // Ambiguous at once; it is done at Release
	Hang                 // nothing is done; Ambiguous when the context ends
	HangAfter            // it is done; Ambiguous when the context ends
)

// Fault is what goes wrong with one call.
type Fault struct {
	Kind  FaultKind
	Delay time.Duration // for Late
	Err   error         // returned instead of the kind's own error
}

// Faults breaks the ports it wraps, as its hook says. It may be used concurrently.
type Faults struct {
	*shared
	actor string
}

type shared struct {
	asking  sync.Mutex // held while a hook runs: hooks need no lock of their own
	mu      sync.Mutex
	hook    func(Call) Fault
	release chan struct{}
	late    sync.WaitGroup
}

// NewFaults breaks nothing until told to.
func NewFaults() *Faults { return &Faults{shared: &shared{release: make(chan struct{})}} }

// As gives the same faults for another actor: what it wraps says so in each Call, so that
// one hook can tell the processes of a simulation apart.
func (f *Faults) As(actor string) *Faults { return &Faults{shared: f.shared, actor: actor} }

// Set installs the hook that is asked before each call, in place of any other; nil breaks
// nothing. The hook is asked by one call at a time, and may itself call Set and Release.
func (f *Faults) Set(hook func(Call) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// Once breaks the first call that matches. All others go by the hook there was, which may
// be another Once.
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

// Release lets everything arrive that LateHeld holds. Wait tells when it has.
func (f *Faults) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.release)
	f.release = make(chan struct{})
}

// Wait waits until nothing is late any more.
func (f *Faults) Wait() { f.late.Wait() }

func (f *Faults) ask(c Call) (Fault, <-chan struct{}) {
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

// write makes a call that changes something, with its fault. What do answers is lost on
// the way whenever the fault is not None.
func (f *Faults) write(ctx context.Context, c Call, do func(context.Context) error) error {
	fault, release := f.ask(c)
	switch fault.Kind {
	case None:
		return do(ctx)
	case FailBefore:
		return failure(c, fault, storage.Unavailable)
	case FailAfter:
		_ = do(ctx)
	case Late, LateHeld:
		f.later(context.WithoutCancel(ctx), fault, release, do)
	case Hang:
		<-ctx.Done()
	case HangAfter:
		_ = do(ctx)
		<-ctx.Done()
	}
	return failure(c, fault, storage.Ambiguous)
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
func (f *Faults) later(ctx context.Context, fault Fault, release <-chan struct{}, do func(context.Context) error) {
	f.late.Go(func() {
		if fault.Kind == Late {
			<-time.After(fault.Delay)
		} else {
			<-release
		}
		_ = do(ctx)
	})
}

func failure(c Call, fault Fault, kind storage.Kind) error {
	if fault.Err != nil {
		return fault.Err
	}
	return &storage.Error{Op: c.Port + " " + c.Op, Kind: kind, Index: -1, Err: errInjected}
}
