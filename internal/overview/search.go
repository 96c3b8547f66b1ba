package overview

import (
	"context"
	"slices"
	"sync"

	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/weir"
)

const (
	// A call of Search reads no further chunk after maxSearchQueries queries or maxSearchRows rows,
	// and returns the messages found so far. The count begins when the call has read the first
	// chunk of each lane in the first epoch that it searches. So each call makes progress.
	maxSearchQueries = 20
	maxSearchRows    = 20_000
	// For each epoch, a call of Search reads bodies of about maxSearchBytes bytes in total. Each
	// lane has an equal share, but at least minLaneBytes. Bodies larger than maxSearchBytes are not
	// searched.
	maxSearchBytes = 8 << 20
	minLaneBytes   = 64 << 10
	// A call of Search has bodies of about maxBatchBytes bytes in memory at a time. Again, each
	// lane has an equal share, but at least minLaneBytes.
	maxBatchBytes = 2 << 20
)

// SearchResult is one page of Search or of Scheduled.
type SearchResult struct {
	Messages      []weir.Status // without attempts
	Examined      int           // rows that were read; a message can have several
	BodiesSkipped int           // messages whose body was too large to search
	Complete      bool          // no further message matches
	Continue      string        // token of the next page; empty = none
}

// Search returns up to limit matching messages, the newest first. The token is
// SearchResult.Continue of the previous page with the same filter; an empty token returns the first
// page. A page can have fewer than limit messages although further pages follow. If the caller
// wants another order, it sorts each page with Order.Sort.
func (o *Overview) Search(ctx context.Context, f Filter, limit int,
	token string) (SearchResult, error) {
	if f.Text != "" {
		done, err := o.textSearches.acquireSlot(ctx)
		if err != nil {
			return SearchResult{}, err
		}
		defer done()
	}

	s := &search{filter: f, limit: limit, matcher: newTextMatcher(f.Text), redactor: o.Redactor}
	more, err := s.searchEpochs(ctx, o, token)
	if err != nil {
		return SearchResult{}, readError("search", err)
	}

	s.result.Complete, s.result.Continue, s.result.Examined = more == "", more, s.totalCost.rows

	return s.result, nil
}

// searchEpochs searches the epochs one after the other, the latest first. It returns the token of
// the next page, or "" if no further message can match.
func (s *search) searchEpochs(ctx context.Context, o *Overview, token string) (string, error) {
	f := s.filter
	at := searchPosition{}
	if token != "" {
		var err error
		if at, err = parseToken(o.Store, f, token); err != nil {
			return "", err
		}
	}

	if f.namesSubmission() {
		var err error
		if s.submission, err = o.Store.Messages().FindSubmission(ctx, f.Key, f.IdempotencyKey); err != nil {
			return "", err
		}
		s.addCost(cost{queries: 1})
	}

	for i, e := range o.searchedEpochs(f) {
		if token != "" && e.Number > at.epoch {
			continue
		}
		if len(s.result.Messages) == s.limit {
			return searchPosition{open: o.Store.Epoch, epoch: e.Number}.encodeToken(f), nil
		}

		var before []int64
		if e.Number == at.epoch {
			before = at.before
		}

		more, err := s.searchEpoch(ctx, o.Store.ForEpoch(e), i > 0, before)
		if err != nil {
			return "", err
		}
		if more {
			return s.position(o.Store.Epoch, e.Number).encodeToken(f), nil
		}
	}

	return "", nil
}

func (o *Overview) searchedEpochs(f Filter) []epochs.Epoch {
	searched := []epochs.Epoch{o.Store.Present()}
	if f.matchesOnlyUnfinished() {
		return searched
	}

	earlier := slices.Clone(o.Store.EarlierEpochs)
	slices.Reverse(earlier)
	return append(searched, earlier...)
}

// search is the state of one call of Search.
type search struct {
	filter   Filter
	limit    int
	matcher  textMatcher
	redactor Redactor      // nil = no values are redacted
	cursors  []*laneCursor // one for each lane of the epoch that is being searched
	// If the filter has both a key and an idempotency key, submission is the id of the only message
	// that can match, or zero if there is no such message. With any other filter, submission is
	// zero and is not used.
	submission weir.ID
	result     SearchResult

	// guards totalCost and result.BodiesSkipped while cursors read concurrently
	mu        sync.Mutex
	totalCost cost
	// totalCost after the first chunk of each lane in the first epoch that this call searches
	firstCost cost
}

// cost is a number of queries to storage, and the number of rows that the queries returned.
type cost struct{ queries, rows int }

func (s *search) addCost(c cost) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.totalCost.queries += c.queries
	s.totalCost.rows += c.rows
}

func (s *search) countSkippedBody() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result.BodiesSkipped++
}

// isOverBudget reports whether this call of Search must not read further chunks.
func (s *search) isOverBudget() bool {
	full := slices.ContainsFunc(s.cursors,
		func(src *laneCursor) bool { return src.shareUsed && len(src.matches) == 0 })
	return full || s.totalCost.queries-s.firstCost.queries >= maxSearchQueries ||
		s.totalCost.rows-s.firstCost.rows >= maxSearchRows
}

// searchEpoch searches one epoch, and reports whether further messages of the epoch can match. The
// parameter "before" has a sequence number for each searched lane: the search of the lane begins
// below this number. If "before" is nil, the search begins with the newest messages.
func (s *search) searchEpoch(ctx context.Context, store *lane.Store, earlier bool,
	before []int64) (more bool, err error) {
	if err := s.openCursors(ctx, store, earlier, before); err != nil {
		return false, err
	}

	for {
		if err := s.refillCursors(ctx); err != nil {
			return false, err
		}

		if s.firstCost == (cost{}) {
			s.firstCost = s.totalCost
		}

		if s.mergeNewest() || s.isOverBudget() {
			return slices.ContainsFunc(s.cursors,
				func(src *laneCursor) bool { return len(src.matches) > 0 || !src.isDone() }), nil
		}
	}
}

// openCursors opens a cursor for each lane that can have matching messages.
func (s *search) openCursors(ctx context.Context, store *lane.Store, earlier bool,
	before []int64) error {
	lanes := s.filter.matchingLanes(store.Present())
	if len(before) > 0 && len(before) != len(lanes) {
		return tokenError()
	}

	s.cursors = make([]*laneCursor, len(lanes))
	for i, n := range lanes {
		s.cursors[i] = &laneCursor{search: s, store: store, lane: n, isEarlierEpoch: earlier,
			maxBytes:   max(maxSearchBytes/len(lanes), minLaneBytes),
			maxBatch:   max(maxBatchBytes/len(lanes), minLaneBytes),
			firstChunk: s.firstChunk(len(lanes))}
	}

	return lane.ForEach(len(s.cursors), func(i int) error {
		if len(before) > 0 {
			return s.cursors[i].openAt(ctx, before[i])
		}
		return s.cursors[i].openAt(ctx, 0)
	})
}

// firstChunk returns the number of sequence numbers in the first chunk of each lane. Without a
// filter, each message matches, so all lanes together read about 2*limit messages. With a filter,
// the lanes read more, because some messages do not match.
func (s *search) firstChunk(lanes int) int64 {
	if s.filter == (Filter{}) {
		return int64(2*s.limit/lanes + 16)
	}
	return int64(max(1000/lanes, 64))
}

// position returns the position at which the next page begins.
func (s *search) position(open, epoch int) searchPosition {
	p := searchPosition{open: open, epoch: epoch}
	for _, src := range s.cursors {
		p.before = append(p.before, src.nextBefore())
	}
	return p
}

// refillCursors reads the next chunk of each lane whose matches are all in the result. It skips
// lanes that are read to their end, and lanes that have used their share of the bytes for bodies.
func (s *search) refillCursors(ctx context.Context) error {
	var empty []*laneCursor
	for _, src := range s.cursors {
		if len(src.matches) == 0 && !src.isDone() && !src.shareUsed {
			empty = append(empty, src)
		}
	}
	return lane.ForEach(len(empty), func(i int) error { return empty[i].readMore(ctx) })
}

// mergeNewest moves the newest matches of all lanes into the result. It stops and returns false if
// another chunk of a lane must be read before the next match can be chosen. It returns true if the
// result has limit messages, or if all lanes are read to their end.
func (s *search) mergeNewest() (done bool) {
	for len(s.result.Messages) < s.limit {
		var newest *laneCursor
		for _, src := range s.cursors {
			switch {
			case len(src.matches) == 0 && src.isDone():
			case len(src.matches) == 0:
				return false // the lane's next match can be newer than the other lanes' matches
			case newest == nil ||
				src.matches[0].Message.AcceptedAt.After(newest.matches[0].Message.AcceptedAt):
				newest = src
			}
		}

		if newest == nil {
			return true
		}

		s.result.Messages = append(s.result.Messages, newest.matches[0].Status())
		newest.matches = newest.matches[1:]
	}

	return true
}
