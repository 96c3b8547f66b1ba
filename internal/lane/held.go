package lane

import (
	"context"
	"strings"
	"time"

	"weir/internal/storage"
)

// Block is a key that waits, with the messages held behind its failed one.
type Block struct {
	ID      string    // see Entry.Block
	KeyHash string    // of the ordering key
	Next    time.Time // when the first of them is tried again
	Held    int64     // how many
}

// Blocks reads all blocks of a lane.
func (s *Store) Blocks(ctx context.Context, lane int) ([]Block, error) {
	var blocks []Block
	q := storage.Query{Partition: s.partition(lane), From: prefixBlock, To: after(prefixBlock)}
	for {
		page, err := s.Table.Range(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Rows {
			v := values{r.Values}
			blocks = append(blocks, Block{ID: strings.TrimPrefix(r.Key, prefixBlock), KeyHash: v.string("Key"), Next: v.time("Next"), Held: v.int("Held")})
			q.After = r.Key
		}
		if !page.More {
			return blocks, nil
		}
		q.From = ""
	}
}

// FirstHeld reads the message of a block that is next in order.
func (s *Store) FirstHeld(ctx context.Context, lane int, block string) (*Entry, error) {
	prefix := heldKey(block, "")
	page, err := s.Table.Range(ctx, storage.Query{Partition: s.partition(lane), From: prefix, To: after(prefix), Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(page.Rows) == 0 {
		return nil, &storage.Error{Op: "lane first held", Kind: storage.NotFound, Index: -1}
	}
	return s.ReadMessage(ctx, lane, values{page.Rows[0].Values}.int("Seq"))
}
