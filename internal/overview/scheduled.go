package overview

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/lists"
	"weir/internal/weir"
)

// DueFilter selects scheduled messages. A field with its zero value selects all.
type DueFilter struct {
	Lane     *int
	From, To time.Time // due at or after From, and before To
}

// duePosition is a message's position in the list of scheduled messages, which is sorted by due
// time, lane and sequence number.
type duePosition struct {
	lane.DueTime
	lane int
}

func (p duePosition) compare(other duePosition) int {
	return cmp.Or(p.At.Compare(other.At), cmp.Compare(p.lane, other.lane),
		cmp.Compare(p.Seq, other.Seq))
}

// Scheduled returns up to limit scheduled messages in the order of their due times. The token is
// SearchResult.Continue of the previous page with the same filter; an empty token returns the first
// page. A page leaves out messages that became due, were cancelled or got another due time during
// the call. So a page can have fewer than limit messages although further pages follow. Scheduled
// makes one query for each selected lane, and at most one query for each message.
func (o *Overview) Scheduled(ctx context.Context, f DueFilter, limit int,
	token string) (SearchResult, error) {
	after, err := o.parseDueToken(f, token)
	if err != nil {
		return SearchResult{}, err
	}

	found := make([][]duePosition, o.Store.Lanes)
	err = lane.ForEach(len(found), func(n int) (err error) {
		if f.Lane == nil || *f.Lane == n {
			found[n], err = o.readDuePositions(ctx, n, f, after, limit+1)
		}
		return err
	})
	if err != nil {
		return SearchResult{}, readError("scheduled", err)
	}

	page := slices.Concat(found...)
	slices.SortFunc(page, duePosition.compare)
	result := SearchResult{Examined: len(page), Complete: len(page) <= limit}
	if !result.Complete {
		page = page[:limit]
		last := page[limit-1]
		result.Continue = searchPosition{o.Store.Epoch, o.Store.Epoch,
			[]int64{last.At.UnixMicro(), int64(last.lane), last.Seq}}.encodeToken(f)
	}

	if result.Messages, err = o.readScheduled(ctx, page); err != nil {
		return SearchResult{}, readError("scheduled", err)
	}

	return result, nil
}

// parseDueToken returns the position of the last message of the previous page. It returns nil if
// the token is empty.
func (o *Overview) parseDueToken(f DueFilter, token string) (*duePosition, error) {
	if token == "" {
		return nil, nil
	}

	p, err := parseToken(o.Store, f, token)
	if err != nil {
		return nil, err
	}
	if len(p.before) != 3 {
		return nil, tokenError()
	}

	return &duePosition{lane.DueTime{At: time.UnixMicro(p.before[0]).UTC(), Seq: p.before[2]},
		int(p.before[1])}, nil
}

// readDuePositions reads up to limit positions of one lane that follow the position "after"; nil =
// the first positions.
func (o *Overview) readDuePositions(ctx context.Context, number int, f DueFilter,
	after *duePosition, limit int) ([]duePosition, error) {
	span := lists.DueSpan{From: f.From, To: f.To}
	if after != nil {
		seq := after.Seq
		switch {
		case number < after.lane:
			seq = math.MaxInt64
		case number > after.lane:
			seq = 0
		}

		span.After = &lane.DueTime{At: after.At, Seq: seq}
	}

	dues, err := lists.Reader{Store: o.Store}.ReadDueTimes(ctx, number, span, limit)
	positions := make([]duePosition, len(dues))
	for i, d := range dues {
		positions[i] = duePosition{d, number}
	}

	return positions, err
}

// readScheduled reads the messages at the positions. It leaves out messages that are no longer
// scheduled for the due time of their position.
func (o *Overview) readScheduled(ctx context.Context, page []duePosition) ([]weir.Status, error) {
	seqs := make([][]int64, o.Store.Lanes)
	for _, p := range page {
		seqs[p.lane] = append(seqs[p.lane], p.Seq)
	}

	found := make([]map[int64]weir.Status, len(seqs))
	err := lane.ForEach(len(seqs), func(n int) error {
		slices.Sort(seqs[n])
		slices.Reverse(seqs[n])
		found[n] = map[int64]weir.Status{}
		for group := range slices.Chunk(seqs[n], seqsPerRead) {
			entries, _, err := o.Store.ReadMany(ctx, n, group)
			if err != nil {
				return err
			}

			for _, e := range entries {
				found[n][e.Seq()] = e.Status()
			}
		}

		return nil
	})

	var messages []weir.Status
	for _, p := range page {
		st, isThere := found[p.lane][p.Seq]
		if isThere && st.Stage == weir.Scheduled && st.Message.DueAt.Equal(p.At) {
			messages = append(messages, st)
		}
	}

	return messages, err
}
