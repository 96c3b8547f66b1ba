package lane

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
)

// Block is a key that waits, with the messages held behind its failed one.
type Block struct {
	ID      string    // see Entry.Block
	KeyHash string    // of the ordering key
	Next    time.Time // when the first of them is tried again
	Held    int64     // how many
	From    int64     // in memory only: the first of them goes after what the log has of the key before this
	Wait    int64     // in memory only: nothing of the line goes before the log was read up to here
	Ahead   int64     // from this number on the log of the key waits for the first try of what was released; 0 = it does not
	Shelved bool      // where Ahead is set: it is the number of the message itself, which was put aside from the log
	Placed  time.Time // where Ahead is set, and Shelved is not: the time in the message's place, which orders those before one number
	Mixed   bool      // in memory only: what was scheduled may stand in the line, and earlier ones may come
	First   *Entry    // in memory only: the first of them, where the holder has it in memory
	Rest    []*Entry  // in memory only: those behind First that were released, where these are all the others
}

// Whole reports whether the whole line is in the holder's memory.
func (b *Block) Whole() bool { return b.First != nil && b.Held == int64(1+len(b.Rest)) }

// Last returns the last message of a line that is in memory as a whole.
func (b *Block) Last() *Entry {
	if n := len(b.Rest); n > 0 {
		return b.Rest[n-1]
	}
	return b.First
}

// Advance takes in that messages leave the line: First becomes the next one if that is known,
// else nil. Held still counts those that leave.
func (b *Block) Advance(gone []Held) {
	if len(b.Rest) > 0 && b.Whole() && len(gone) == 1 && gone[0].Place == b.First.place() {
		b.First, b.Rest = b.Rest[0], b.Rest[1:]
		b.From = b.First.After()
		return
	}
	b.First, b.Rest, b.From = nil, nil, 0
}

// Follow puts a released message behind the line, which is in memory as a whole.
func (b *Block) Follow(e *Entry) { b.Rest = append(slices.Clip(b.Rest), e) }

// Rank orders a key's blocks that go ahead, and the log, where a message has twice its number:
// what was released goes before the message that Ahead names, and that one, where it was put
// aside itself, before those behind it.
func (b *Block) Rank() int64 {
	if b.Shelved {
		return 2*b.Ahead + 1
	}
	return 2 * b.Ahead
}

// Before reports whether the block goes before another of its key, where both go ahead of
// something. When they may go does not matter for that: a holder may put one off, and not the other.
func (b *Block) Before(other *Block) bool {
	return cmp.Or(cmp.Compare(b.Rank(), other.Rank()), b.Placed.Compare(other.Placed), b.Next.Compare(other.Next)) < 0
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
			blocks = append(blocks, Block{ID: strings.TrimPrefix(r.Key, prefixBlock), KeyHash: v.string("Key"), Next: v.time("Next"), Held: v.int("Held"), Ahead: v.int("Ahead"), Shelved: v.bool("Shelved"), Placed: v.time("Placed"), Mixed: true})
			q.After = r.Key
		}
		if !page.More {
			return blocks, nil
		}
		q.From = ""
	}
}

// Held is a message in a block's line.
type Held struct {
	Seq      int64
	Place    string
	Contract string // where it supersedes; else empty
	Version  string
	Tried    bool // it was tried, and waits for its next attempt
	Again    bool // it was replayed
	Callback string
}

func heldFrom(e *Entry) Held {
	h := Held{Seq: e.Seq(), Place: e.place(), Tried: e.Stage == weir.Retrying, Again: e.Replayed()}
	if e.Message.Supersede {
		h.Contract, h.Version, h.Callback = e.Message.Contract, e.Message.Version, e.Message.Callback
	}
	return h
}

func (h Held) values() map[string]any {
	v := map[string]any{"Seq": h.Seq}
	if h.Contract != "" {
		v["Contract"], v["Version"] = h.Contract, h.Version
	}
	if h.Tried {
		v["Tried"] = true
	}
	if h.Again {
		v["Again"] = true
	}
	if h.Callback != "" {
		v["Callback"] = h.Callback
	}
	return v
}

// Line is the entry's line, where it is held.
func (e *Entry) Line() Held { return heldFrom(e) }

// Held reads the first messages of a block's line, up to limit.
func (s *Store) Held(ctx context.Context, lane int, block string, limit int) ([]Held, error) {
	prefix := heldKey(block, "")
	rows, err := s.first(ctx, storage.Query{Partition: s.partition(lane), From: prefix, To: after(prefix)}, limit)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, &storage.Error{Op: "lane held", Kind: storage.NotFound, Index: -1}
	}
	line := make([]Held, len(rows))
	for i, r := range rows {
		line[i] = heldFromRow(r)
	}
	return line, nil
}

func heldFromRow(r storage.Row) Held {
	v := values{r.Values}
	_, place, _ := strings.Cut(strings.TrimPrefix(r.Key, prefixHeld), "_") // behind the block
	return Held{Seq: v.int("Seq"), Place: place, Contract: v.string("Contract"), Version: v.string("Version"), Callback: v.string("Callback"), Tried: v.bool("Tried"), Again: v.bool("Again")}
}
