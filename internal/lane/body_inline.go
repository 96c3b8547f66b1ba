package lane

import (
	"context"

	"weir/internal/lane/rows"
)

// bodyGap limits the gaps in a query: two entries that follow each other in one query have sequence
// numbers at most bodyGap apart. The query also reads the rows between the two entries, and bodies
// are large.
const bodyGap = 4

// LoadInline loads the bodies of the entries, except bodies in blobs. If a body was edited,
// LoadInline loads the edited body. The entries have no bodies yet, and are in descending order of
// their sequence numbers. looks is the number of queries.
func (s *Store) LoadInline(ctx context.Context, lane int, entries []*Entry) (looks int, err error) {
	var groups [][]*Entry
	for _, e := range entries {
		if n := len(groups); n > 0 && groups[n-1][len(groups[n-1])-1].Seq()-e.Seq() <= bodyGap {
			groups[n-1] = append(groups[n-1], e)
			continue
		}
		groups = append(groups, []*Entry{e})
	}

	return len(groups), ForEach(len(groups),
		func(i int) error { return s.loadInline(ctx, lane, groups[i]) })
}

func (s *Store) loadInline(ctx context.Context, lane int, group []*Entry) error {
	wanted := make(map[string]*Entry, len(group))
	for _, e := range group {
		wanted[rows.MessageKey(e.Seq())] = e
	}

	q := rows.Messages(s.Partition(lane), group[len(group)-1].Seq(), group[0].Seq()+1,
		rows.Names(acceptedBody.inline, editedBody.inline))
	found, _, err := rows.ReadPages(ctx, s.Table, q, maxPage)
	if err != nil {
		return err
	}

	for _, r := range found {
		e := wanted[r.Key]
		if e == nil {
			continue
		}

		if packed := e.bodyIn().inline.Of(r.Values); packed != nil {
			if e.Message.Body, err = decompressBytes(packed); err != nil {
				return err
			}
		}
	}

	return nil
}
