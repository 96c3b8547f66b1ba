package overview

import (
	"context"
	"slices"
	"sync"

	"weir/internal/lane"
	"weir/internal/weir"
)

const (
	// A search asks storage searchLooks times, or for searchRows rows, beyond its first look
	// at each lane; then it gives what it has.
	searchLooks = 20
	searchRows  = 20_000
	// searchBodies bounds how much of bodies is looked through, in bytes, over all lanes, and
	// leastBodies is a lane's share at least.
	searchBodies = 8 << 20
	leastBodies  = 64 << 10
	// batchBodies bounds how much of them is in memory at a time, over all lanes.
	batchBodies = 2 << 20
)

// Found is one answer to a search.
type Found struct {
	Messages    []weir.Status // the newest first; without attempts
	Looked      int           // messages looked at
	NotSearched int           // of those: their body was not looked through, being large
	Complete    bool          // there are no more
	Continue    string        // goes on from here, where there may be
}

// Search gives the newest messages that the filter takes, up to limit. token is a Found's
// Continue, of the same filter; empty = from the newest on.
func (o *Overview) Search(ctx context.Context, f Filter, limit int, token string) (Found, error) {
	if f.Text != "" {
		done, err := o.texts.take(ctx)
		if err != nil {
			return Found{}, err
		}
		defer done()
	}
	s := &search{filter: f, limit: limit, needle: newNeedle(f.Text)}
	more, err := s.run(ctx, o, token)
	if err != nil {
		return Found{}, readError("search", err)
	}
	s.found.Complete, s.found.Continue, s.found.Looked = more == "", more, s.spent.rows
	return s.found, nil
}

// run searches one epoch after the other, and gives the token to go on with; empty = there
// are no more.
func (s *search) run(ctx context.Context, o *Overview, token string) (string, error) {
	f := s.filter
	at := place{}
	if token != "" {
		var err error
		if at, err = parsePlace(f, token); err != nil {
			return "", err
		}
	}
	for i, e := range o.epochs(f) {
		if token != "" && e.Epoch > at.epoch {
			continue
		}
		if len(s.found.Messages) == s.limit {
			return place{epoch: e.Epoch}.token(f), nil
		}
		var before []int64
		if e.Epoch == at.epoch {
			before = at.before
		}
		more, err := s.epoch(ctx, o.Store.In(e), i > 0, before)
		if err != nil {
			return "", err
		}
		if more {
			return s.place(e.Epoch).token(f), nil
		}
	}
	return "", nil
}

// epochs are those to be searched, the latest first.
func (o *Overview) epochs(f Filter) []lane.Epoch {
	epochs := []lane.Epoch{{Epoch: o.Store.Epoch, Lanes: o.Store.Lanes}}
	if f.waits() {
		return epochs
	}
	earlier := slices.Clone(o.Store.Earlier)
	slices.Reverse(earlier)
	return append(epochs, earlier...)
}

// search is one call of Search.
type search struct {
	filter  Filter
	limit   int
	needle  needle
	sources []*source // of the epoch that is searched now
	found   Found

	mu    sync.Mutex
	spent cost
	first cost // of it, the first look at each lane
}

// cost is what a search has asked of storage.
type cost struct{ looks, rows int }

// spend counts what a source has asked.
func (s *search) spend(c cost) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spent.looks += c.looks
	s.spent.rows += c.rows
}

// unsearched counts a message whose body was not looked through.
func (s *search) unsearched() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found.NotSearched++
}

// enough says whether no more is to be asked in this call.
func (s *search) enough() bool {
	full := slices.ContainsFunc(s.sources, func(src *source) bool { return src.full && len(src.ready) == 0 })
	return full || s.spent.looks-s.first.looks >= searchLooks || s.spent.rows-s.first.rows >= searchRows
}

// epoch searches one epoch, and says whether there may be more in it. before are the places
// to go on from; none = from the newest on.
func (s *search) epoch(ctx context.Context, store *lane.Store, earlier bool, before []int64) (more bool, err error) {
	if err := s.open(ctx, store, earlier, before); err != nil {
		return false, err
	}
	for {
		if err := s.refill(ctx); err != nil {
			return false, err
		}
		if s.first == (cost{}) {
			s.first = s.spent
		}
		if s.hand() || s.enough() {
			return slices.ContainsFunc(s.sources, func(src *source) bool { return len(src.ready) > 0 || !src.done() }), nil
		}
	}
}

// open makes the sources of an epoch.
func (s *search) open(ctx context.Context, store *lane.Store, earlier bool, before []int64) error {
	lanes := s.filter.lanes(lane.Epoch{Epoch: store.Epoch, Lanes: store.Lanes})
	if len(before) > 0 && len(before) != len(lanes) {
		return errToken()
	}
	s.sources = make([]*source, len(lanes))
	for i, n := range lanes {
		s.sources[i] = &source{search: s, store: store, lane: n, earlier: earlier,
			share: max(searchBodies/len(lanes), leastBodies), batch: max(batchBodies/len(lanes), leastBodies), span: s.span(len(lanes))}
	}
	return lane.Each(len(s.sources), func(i int) error {
		if len(before) > 0 {
			return s.sources[i].open(ctx, before[i])
		}
		return s.sources[i].open(ctx, 0)
	})
}

// span is how much of each lane's log is read first: what is asked for, where everything is
// wanted, and else more.
func (s *search) span(lanes int) int64 {
	if s.filter == (Filter{}) {
		return int64(2*s.limit/lanes + 16)
	}
	return int64(max(1000/lanes, 64))
}

// place is how far the search has come.
func (s *search) place(epoch int) place {
	p := place{epoch: epoch}
	for _, src := range s.sources {
		p.before = append(p.before, src.before())
	}
	return p
}

// refill reads on wherever nothing is at hand.
func (s *search) refill(ctx context.Context) error {
	var empty []*source
	for _, src := range s.sources {
		if len(src.ready) == 0 && !src.done() && !src.full {
			empty = append(empty, src)
		}
	}
	return lane.Each(len(empty), func(i int) error { return empty[i].read(ctx) })
}

// hand hands out what is the newest of all lanes, as far as that is known, and says whether
// the epoch or the limit is reached.
func (s *search) hand() (done bool) {
	for len(s.found.Messages) < s.limit {
		var newest *source
		for _, src := range s.sources {
			switch {
			case len(src.ready) == 0 && src.done():
			case len(src.ready) == 0:
				return false // what it has may be newer
			case newest == nil || src.ready[0].Message.AcceptedAt.After(newest.ready[0].Message.AcceptedAt):
				newest = src
			}
		}
		if newest == nil {
			return true
		}
		s.found.Messages = append(s.found.Messages, newest.ready[0].Status())
		newest.ready = newest.ready[1:]
	}
	return true
}
