package process

import (
	"context"
	"errors"
)

// stay is the one invocation that stays with the lanes which this process drains. The other
// invocations hand their lanes to it and are answered at once. At its end it rings for each lane
// as the lane's own invocation would have done.
type stay struct {
	limited context.Context // joins end with it
	whole   context.Context // rings do not
	lanes   map[int]bool    // that it waits for
	open    int             // lanes that are waited for, or rung for
	errs    []error
	over    chan struct{} // closed when open has come to 0
}

// stayWith hands drained lanes to the invocation that stays, and returns at once. If no
// invocation stays, the caller's does: stayWith then returns when none of the lanes handed to it
// is drained any more, or after a minute.
func (f *Function) stayWith(ctx context.Context, lanes ...int) error {
	f.mu.Lock()
	if f.staying != nil && f.staying.limited.Err() == nil {
		f.followLanes(f.staying, lanes)
		f.mu.Unlock()
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, stayLimit)
	defer cancel()
	s := &stay{limited: limited, whole: ctx, lanes: map[int]bool{}, over: make(chan struct{})}
	f.staying = s
	f.followLanes(s, lanes)
	f.mu.Unlock()
	<-s.over
	return errors.Join(s.errs...)
}

// followLanes makes the invocation that stays wait for lanes, except for those that it waits for
// already. The caller holds mu.
func (f *Function) followLanes(s *stay, lanes []int) {
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
	delete(s.lanes, lane) // the next ticket of the lane leads to another look
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
