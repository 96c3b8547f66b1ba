package lane

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Most messages are delivered at their first attempt, and with a fast CMS one commit has many such
// deliveries. A write to each message's own row would cost more than all other writes to storage.
// So the commit stores these deliveries together in one packed row (d_). The key of the packed row
// has the highest sequence number of its messages.
//
// Only messages below the cursor of the same commit are packed, so no holder reads the messages'
// own rows again. The ranges of sequence numbers in packed rows do not overlap. So only one packed
// row can have a message's delivery: the first packed row whose key is not below the message's
// sequence number. A reader must read that packed row if the message's own row has the stage
// "queued" and is not marked as held.

// minPacked is the smallest number of deliveries in a packed row. Fewer deliveries are written into
// the messages' own rows. These writes cost about the same, and the own rows are quicker to read.
const minPacked = 8

// packedDelivery is the delivery of one message in a packed row.
type packedDelivery struct {
	Seq        int64        `json:"s"`
	FinishedAt time.Time    `json:"f"`
	Attempt    weir.Attempt `json:"a"`
}

// packDeliveries returns the operation that writes the packed row of a commit, and the entries that
// are not packed. cursor is the cursor after the commit. If too few entries are below cursor, or
// the packed row would be too large, no entry is packed.
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

// packedRow is the content of a packed row (d_).
type packedRow struct {
	etag            storage.ETag
	lowSeq, highSeq int64 // highSeq is 0 if the row's key is damaged
	bySeq           map[int64]packedDelivery
	isDamaged       bool // the deliveries of the range cannot be read
}

// packedRowFrom returns the content of a packed row. If the row is damaged, it also returns an
// error.
func packedRowFrom(r storage.Row) (packedRow, error) {
	v := r.Values
	high, err := rows.ParseSeq(strings.TrimPrefix(r.Key, rows.PackedPrefix))
	if err != nil {
		return packedRow{isDamaged: true}, fmt.Errorf("key: %w", err)
	}

	f := packedRow{etag: r.ETag, lowSeq: rows.FirstSeq.Of(v), highSeq: high}
	list, err := unpackDeliveryList(rows.PackedMessages.Of(v))
	if err != nil {
		f.isDamaged = true
		return f, fmt.Errorf("packed deliveries: %w", err)
	}

	f.bySeq = make(map[int64]packedDelivery, len(list))
	for _, one := range list {
		f.bySeq[one.Seq] = one
	}

	return f, nil
}

func unpackDeliveryList(packed []byte) (list []packedDelivery, err error) {
	data, err := decompressBytes(packed)
	if err != nil {
		return nil, err
	}
	return list, json.Unmarshal(data, &list)
}

// hasDelivery reports whether the row has the delivery of a message that is below the cursor and
// neither final nor held by its own row. If the row is damaged, it has those of its range.
func (f *packedRow) hasDelivery(seq int64) bool {
	if f.isDamaged {
		return f.lowSeq <= seq && seq <= f.highSeq
	}
	_, isThere := f.bySeq[seq]
	return isThere
}

// fillEntry copies the entry's delivery, if the row has it and the message's own row does not.
func (f *packedRow) fillEntry(e *Entry) {
	if e.Stage != weir.Queued || e.IsHeld || !f.hasDelivery(e.Seq()) {
		return
	}

	if f.isDamaged {
		e.setDeliveredUnread(f.etag)
		return
	}

	e.setDelivered(f.bySeq[e.Seq()], f.etag)
}

// readPackedRows reads the packed rows that can have deliveries of the messages from low to high,
// both included.
func (p partition) readPackedRows(ctx context.Context, low, high int64) ([]packedRow, error) {
	q := storage.Query{Partition: p.name, From: rows.PackedKey(low),
		To: rows.PrefixEnd(rows.PackedPrefix)}
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
		if err != nil {
			p.damages.Report(DamagedRow{Partition: p.name, Key: r.Key, Err: err})
		}

		switch {
		case f.highSeq == 0:
			continue
		case f.lowSeq > high:
			return found, nil
		}

		found = append(found, f)
		if f.highSeq >= high {
			return found, nil
		}
	}

	return found, nil
}

// fillFromPacked copies the entry's delivery from the packed row, if the message's own row does not
// have the delivery.
func (p partition) fillFromPacked(ctx context.Context, e *Entry) error {
	if e.Stage != weir.Queued || e.IsHeld {
		return nil
	}

	found, err := p.readPackedRows(ctx, e.Seq(), e.Seq())
	if err != nil || len(found) == 0 {
		return err
	}

	found[0].fillEntry(e)

	return nil
}

func (e *Entry) setDelivered(one packedDelivery, version storage.ETag) {
	e.Stage, e.AttemptCount, e.Attempts = weir.Delivered, 1, []weir.Attempt{one.Attempt}
	st := &e.status
	st.Stage, st.AttemptCount, st.Attempts = e.Stage, e.AttemptCount, e.Attempts
	st.CMSStatus, st.FinishedAt, st.Version = one.Attempt.Status, one.FinishedAt, string(version)
}
