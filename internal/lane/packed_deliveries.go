package lane

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Most messages are delivered at their first attempt, and if the CMS is fast, a commit has many of them. To write
// each message's row would cost more than all other writes to storage. So such deliveries of one commit are in one row,
// a d_ row. Its key has the highest sequence number of the delivered messages.
//
// Only messages below the cursor of the same commit are packed, so no holder ever reads them again. Packed rows cover
// the log in ranges that do not overlap. So only one d_ row can have the delivery of a message: the row with the
// lowest sequence number that is not below the message's. A reader has to look for it if the message's own row has
// the stage "queued" and is not marked as held.

// minPacked is the smallest number of messages for one common row. For fewer messages, writing their own rows costs
// about the same, and these rows are quicker to read.
const minPacked = 8

// packedDelivery is one message in a d_ row.
type packedDelivery struct {
	Seq        int64        `json:"s"`
	FinishedAt time.Time    `json:"f"`
	Attempt    weir.Attempt `json:"a"`
}

// packDeliveries returns the operation that writes the d_ row of a commit, and the entries whose own rows must be
// written. cursor is the cursor after the commit. There is no d_ row if too few entries are below the cursor, or if
// it would be too large.
func packDeliveries(entries []*Entry, cursor int64) (ops []storage.Op, single []*Entry, err error) {
	var packed []packedDelivery
	low, high := int64(0), int64(0)
	for _, e := range entries {
		if e.Seq() >= cursor {
			single = append(single, e)
			continue
		}
		if len(packed) == 0 {
			low, high = e.Seq(), e.Seq()
		}
		low, high = min(low, e.Seq()), max(high, e.Seq())
		packed = append(packed, packedDelivery{e.Seq(), e.status.FinishedAt, e.Attempts[0]})
	}
	if len(packed) < minPacked {
		return nil, entries, nil
	}
	data, err := packDeliveryList(packed)
	if err != nil || len(data) > inlineLimit {
		return nil, entries, err
	}
	return []storage.Op{{Kind: storage.Upsert, Key: rows.PackedKey(high),
		Values: rows.Values(rows.FirstSeq.Is(low), rows.PackedMessages.Is(data))}}, single, nil
}

func packDeliveryList(list []packedDelivery) ([]byte, error) {
	data, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	return compressBytes(data)
}

// packedRow is one d_ row.
type packedRow struct {
	etag            storage.ETag
	lowSeq, highSeq int64
	bySeq           map[int64]packedDelivery
}

func packedRowFrom(r storage.Row) (packedRow, error) {
	v := r.Values
	high, err := rows.ParseSeq(r.Key[len(rows.PackedPrefix):])
	if err != nil {
		return packedRow{}, fmt.Errorf("lane: row %q: %w", r.Key, err)
	}
	data, err := decompressBytes(rows.PackedMessages.Of(v))
	if err != nil {
		return packedRow{}, fmt.Errorf("lane: row %q: %w", r.Key, err)
	}
	var list []packedDelivery
	if err := json.Unmarshal(data, &list); err != nil {
		return packedRow{}, fmt.Errorf("lane: row %q: %w", r.Key, err)
	}
	f := packedRow{etag: r.ETag, lowSeq: rows.FirstSeq.Of(v), highSeq: high,
		bySeq: make(map[int64]packedDelivery, len(list))}
	for _, one := range list {
		f.bySeq[one.Seq] = one
	}
	return f, nil
}

// readPackedRows reads the d_ rows that may name messages from low to high.
func (p partition) readPackedRows(ctx context.Context, low, high int64) ([]packedRow, error) {
	q := storage.Query{Partition: p.name, From: rows.PackedKey(low), To: rows.PrefixEnd(rows.PackedPrefix)}
	if span := high - low; span == 0 {
		q.Limit = 1
	} else if span < 1000 {
		q.Limit = int(span)/minPacked + 2
	}
	var found []packedRow
	for r, err := range rows.Scan(ctx, p.table, q) {
		if err != nil {
			return nil, err
		}
		f, err := packedRowFrom(r)
		if err != nil || f.lowSeq > high {
			return found, err
		}
		found = append(found, f)
		if f.highSeq >= high {
			return found, nil
		}
	}
	return found, nil
}

// fillFromPacked completes an entry whose delivery only a d_ row has.
func (p partition) fillFromPacked(ctx context.Context, e *Entry) error {
	if e.Stage != weir.Queued || e.IsHeld {
		return nil
	}
	found, err := p.readPackedRows(ctx, e.Seq(), e.Seq())
	if err != nil || len(found) == 0 {
		return err
	}
	if one, ok := found[0].bySeq[e.Seq()]; ok {
		e.setDelivered(one, found[0].etag)
	}
	return nil
}

func (e *Entry) setDelivered(one packedDelivery, version storage.ETag) {
	e.Stage, e.AttemptCount, e.Attempts = weir.Delivered, 1, []weir.Attempt{one.Attempt}
	st := &e.status
	st.Stage, st.AttemptCount, st.Attempts = e.Stage, e.AttemptCount, e.Attempts
	st.CMSStatus, st.FinishedAt, st.Version = one.Attempt.Status, one.FinishedAt, string(version)
}
