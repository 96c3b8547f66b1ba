package process

import (
	"context"
	"errors"
)

// stay is the one invocation that stays with the lanes which this process drains. The
// tickets of the others among these lanes are answered at once: their lanes are handed to
// it, and at its end it rings for each as that ticket's own invocation would have done.
type stay struct {
	limited context.Context // joins end with it
	whole   context.Context // rings do not
	lanes   map[int]bool    // that it waits for
	open    int             // lanes that are waited for, or rung for
	errs    []error
	over    chan struct{} // closed when open has come to 0
}

// stayWith hands drained lanes to the invocation that stays, and returns at once; without
// one the caller's invocation is it, and comes back when no lane that was handed to it is
// drained any more, or after a minute.
func (f *Function) stayWith(ctx context.Context, lanes ...int) error {
	f.mu.Lock()
	if f.staying != nil && f.staying.limited.Err() == nil {
		f.follow(f.staying, lanes)
		f.mu.Unlock()
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, stayLimit)
	defer cancel()
	s := &stay{limited: limited, whole: ctx, lanes: map[int]bool{}, over: make(chan struct{})}
	f.staying = s
	f.follow(s, lanes)
	f.mu.Unlock()
	<-s.over
	return errors.Join(s.errs...)
}

// follow has the invocation that stays wait for lanes, but for those for which it does. The
// caller holds mu.
func (f *Function) follow(s *stay, lanes []int) {
	for _, lane := range lanes {
		if !s.lanes[lane] {
			s.lanes[lane] = true
			s.open++
			go f.await(s, lane)
		}
	}
}

// await waits for the end of a lane's drain, and rings where work is left.
func (f *Function) await(s *stay, lane int) {
	report := f.Drainer.Join(s.limited, lane)
	f.mu.Lock()
	delete(s.lanes, lane) // a ticket that comes from now on has it looked at anew
	f.mu.Unlock()
	err := f.ring(s.whole, lane, report)
	f.mu.Lock()
	defer f.mu.Unlock()
	s.errs = append(s.errs, err)
	if s.open--; s.open > 0 {
		return
	}
	if f.staying == s {
		f.staying = nil
	}
	close(s.over)
}
