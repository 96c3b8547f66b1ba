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
	// A search reads no further chunks after maxSearchQueries queries or maxSearchRows rows, and returns the messages
	// that it found until then. These limits do not include the first chunk of each lane in the first epoch that the
	// search reads.
	maxSearchQueries = 20
	maxSearchRows    = 20_000
	// In an epoch, a search reads bodies of about maxSearchBytes bytes at most. Each lane has an equal share, but at
	// least minLaneBytes. A body that is larger than maxSearchBytes is not searched.
	maxSearchBytes = 8 << 20
	minLaneBytes   = 64 << 10
	// A search has bodies of about maxBatchBytes bytes at most in memory at the same time. Lanes have equal shares of
	// at least minLaneBytes here, too.
	maxBatchBytes = 2 << 20
)

// SearchResult is one page of Search or of Scheduled.
type SearchResult struct {
	Messages      []weir.Status // without attempts
	Examined      int           // number of rows that were read; a message may have several
	BodiesSkipped int           // number of messages whose body was too large to be searched for the text
	Complete      bool          // no further message matches
	Continue      string        // token of the next page; empty = none
}

// Search returns up to limit matching messages, the newest first. The token is SearchResult.Continue of the previous
// page with the same filter; an empty token returns the first page. For another order, the caller sorts the page with
// Order.Sort.
func (o *Overview) Search(ctx context.Context, f Filter, limit int, token string) (SearchResult, error) {
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

// searchEpochs searches one epoch after the other, the latest first. It returns the token of the next page, or "" if
// the search is complete.
func (s *search) searchEpochs(ctx context.Context, o *Overview, token string) (string, error) {
	f := s.filter
	at := searchPosition{}
	if token != "" {
		var err error
		if at, err = parseToken(f, token); err != nil {
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
			return searchPosition{epoch: e.Number}.encodeToken(f), nil
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
			return s.position(e.Number).encodeToken(f), nil
		}
	}
	return "", nil
}

// searchedEpochs returns the epochs to search, the latest first.
func (o *Overview) searchedEpochs(f Filter) []epochs.Epoch {
	searched := []epochs.Epoch{{Number: o.Store.Epoch, Lanes: o.Store.Lanes}}
	if f.matchesOnlyUnfinished() {
		return searched
	}
	earlier := slices.Clone(o.Store.EarlierEpochs)
	slices.Reverse(earlier)
	return append(searched, earlier...)
}

// search is one call of Search.
type search struct {
	filter   Filter
	limit    int
	matcher  textMatcher
	redactor Redactor      // nil = no message has redacted values
	cursors  []*laneCursor // cursors of the epoch that is searched now
	// submission is the position of the one message that can match, if the filter names a submission.
	submission weir.ID
	result     SearchResult

	mu        sync.Mutex // guards totalCost and result.BodiesSkipped while the cursors read
	totalCost cost
	firstCost cost // totalCost after the first chunk of each lane was read, in the first epoch
}

// cost counts the queries to storage, and the rows that they returned.
type cost struct{ queries, rows int }

func (s *search) addCost(c cost) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.totalCost.queries += c.queries
	s.totalCost.rows += c.rows
}

// countSkippedBody counts a message whose body was not searched.
func (s *search) countSkippedBody() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result.BodiesSkipped++
}

// isOverBudget reports whether this call of Search may read no further chunk.
func (s *search) isOverBudget() bool {
	full := slices.ContainsFunc(s.cursors, func(src *laneCursor) bool { return src.shareUsed && len(src.matches) == 0 })
	return full || s.totalCost.queries-s.firstCost.queries >= maxSearchQueries ||
		s.totalCost.rows-s.firstCost.rows >= maxSearchRows
}

// searchEpoch searches one epoch, and reports whether further messages of the epoch may match. The argument "before"
// has one sequence number for each lane: the search continues below it. If "before" is nil, the search starts with the
// newest messages.
func (s *search) searchEpoch(ctx context.Context, store *lane.Store, earlier bool, before []int64) (more bool,
	err error) {
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

// openCursors opens a cursor for each lane of an epoch that can have matching messages.
func (s *search) openCursors(ctx context.Context, store *lane.Store, earlier bool, before []int64) error {
	lanes := s.filter.matchingLanes(epochs.Epoch{Number: store.Epoch, Lanes: store.Lanes})
	if len(before) > 0 && len(before) != len(lanes) {
		return tokenError()
	}
	s.cursors = make([]*laneCursor, len(lanes))
	for i, n := range lanes {
		s.cursors[i] = &laneCursor{search: s, store: store, lane: n, isEarlierEpoch: earlier,
			maxBytes: max(maxSearchBytes/len(lanes), minLaneBytes),
			maxBatch: max(maxBatchBytes/len(lanes), minLaneBytes), firstChunk: s.firstChunk(len(lanes))}
	}
	return lane.ForEach(len(s.cursors), func(i int) error {
		if len(before) > 0 {
			return s.cursors[i].openAt(ctx, before[i])
		}
		return s.cursors[i].openAt(ctx, 0)
	})
}

// firstChunk returns the number of sequence numbers in the first chunk of each lane's log. Without a filter each
// message matches, so all lanes together read about twice the messages of the page. With a filter they read more.
func (s *search) firstChunk(lanes int) int64 {
	if s.filter == (Filter{}) {
		return int64(2*s.limit/lanes + 16)
	}
	return int64(max(1000/lanes, 64))
}

// position returns the position at which the next page continues.
func (s *search) position(epoch int) searchPosition {
	p := searchPosition{epoch: epoch}
	for _, src := range s.cursors {
		p.before = append(p.before, src.nextBefore())
	}
	return p
}

// refillCursors reads the next chunk of some lanes: those that have no match left, but may have further matches.
func (s *search) refillCursors(ctx context.Context) error {
	var empty []*laneCursor
	for _, src := range s.cursors {
		if len(src.matches) == 0 && !src.isDone() && !src.shareUsed {
			empty = append(empty, src)
		}
	}
	return lane.ForEach(len(empty), func(i int) error { return empty[i].readMore(ctx) })
}

// mergeNewest moves the newest matches of all lanes into the result. It stops at a lane that has no match left and is
// not done, because the next message of that lane may be newer. It reports whether the epoch is at its end, or the
// result has limit messages.
func (s *search) mergeNewest() (done bool) {
	for len(s.result.Messages) < s.limit {
		var newest *laneCursor
		for _, src := range s.cursors {
			switch {
			case len(src.matches) == 0 && src.isDone():
			case len(src.matches) == 0:
				return false // the lane's next message may be newer
			case newest == nil || src.matches[0].Message.AcceptedAt.After(newest.matches[0].Message.AcceptedAt):
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
