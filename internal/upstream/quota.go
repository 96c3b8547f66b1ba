package upstream

import (
	"context"
	"sync"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
)

// partition has a row for each upstream with a daily quota. The row's key is quotaPrefix and the name. The row
// has the day of the last reservation, and the number of reserved messages of that day.
const (
	partition   = "upstreams"
	quotaPrefix = "quota_"

	dayColumn      = "Day" // 2026-01-31, in UTC
	reservedColumn = "Reserved"
)

const (
	// A process reserves a twentieth (1/restParts) of the rest at a time, and at most maxReserved messages. It reserves
	// more only if it needs more at once, as for a batch. So a process that dies, or that gets no more messages,
	// withholds at most a twentieth of the rest from the other processes. The last messages are reserved singly.
	restParts, maxReserved = 20, 100
	// fullFor is the time for which a process does not read a quota's row again after it has found too few messages
	// left there.
	fullFor = time.Second
	// reserveTries limits the tries to reserve messages once, or to return them once. A further try is needed each time
	// that another process has just written the row.
	reserveTries = 10
)

// quota is the daily quota of one upstream. It is safe for concurrent use.
type quota struct {
	row   string
	limit int64
	table storage.Table
	now   func() time.Time

	turn chan struct{} // has one element while a call reads or writes the row

	mu        sync.Mutex
	day       string    // day to which "reserved" belongs, such as 2026-01-31; "" = nothing was reserved yet
	reserved  int64     // number of messages that this process has reserved and not taken
	left      int64     // messages left at the last read of the row, "reserved" included; valid until fullUntil
	fullUntil time.Time // end of fullFor; zero = the last read of the row found enough messages, or no read was made
}

func newQuota(name string, limit int64, table storage.Table, now func() time.Time) *quota {
	return &quota{row: quotaPrefix + name, limit: limit, table: table, now: now, turn: make(chan struct{}, 1)}
}

// takeMessages takes messages of the daily quota, and returns the day of that quota. The parameter "count" is the
// number of messages. If fewer are left, it takes none, and returns an empty day and the number of messages that are
// left. The error is Unavailable.
func (q *quota) takeMessages(ctx context.Context, count int64) (day string, left int64, err error) {
	if day, left, isFull := q.takeReserved(count); day != "" || isFull {
		return day, left, nil
	}
	select {
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	case <-ctx.Done():
		return "", 0, unavailableError(ctx.Err())
	}
	for tries := 0; ; tries++ {
		if day, left, isFull := q.takeReserved(count); day != "" || isFull {
			return day, left, nil // this call or another one has reserved messages, or found too few left
		}
		if tries == reserveTries {
			return "", 0, unavailableError(err)
		}
		if err = q.reserveMessages(ctx, count); err != nil && !isOvertaken(err) {
			return "", 0, unavailableError(err) // if a write succeeded without an answer, its messages are lost
		}
	}
}

// takeReserved takes messages that this process has reserved. If it took none, day is empty. isFull reports whether the
// last read of the row was less than fullFor ago and found too few messages. left is the number of messages that it
// found.
func (q *quota) takeReserved(count int64) (day string, left int64, isFull bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now().UTC()
	if today := now.Format(time.DateOnly); q.day < today {
		q.day, q.reserved, q.left, q.fullUntil = today, 0, 0, time.Time{} // the old values are of an earlier day
	}
	if q.reserved >= count {
		q.reserved -= count
		return q.day, 0, false
	}
	return "", q.left, now.Before(q.fullUntil) && q.left < count
}

// isOvertaken reports whether err means that another process has written the row since this process read it.
func isOvertaken(err error) bool {
	return storage.Is(err, storage.Precondition) || storage.Is(err, storage.Conflict)
}

// reserveMessages reserves messages, so that this process has at least "count" of them. If too few messages are left,
// it reserves none, and sets fullUntil. The caller must have put the element into q.turn.
func (q *quota) reserveMessages(ctx context.Context, count int64) error {
	row, err := q.readRow(ctx)
	if err != nil {
		return err
	}
	day, more := q.planReservation(row, count)
	if more == 0 {
		return nil
	}
	if err := q.writeRow(ctx, row, day, row.reservedOn(day)+more); err != nil {
		return err
	}
	q.giveBack(day, more)
	return nil
}

// planReservation returns the day and the number of messages to reserve. The parameter row is the row as it was read.
// The number 0 means that too few messages are left, or that this process has reserved enough in the meantime.
func (q *quota) planReservation(row quotaRow, count int64) (day string, more int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// If the row's day is after tomorrow, the clock of the process that wrote the row is wrong. If this process used
	// such a day, the upstream could get 429 until that day has passed.
	tomorrow := q.now().UTC().AddDate(0, 0, 1).Format(time.DateOnly)
	if row.day > q.day && row.day <= tomorrow {
		q.day, q.reserved = row.day, 0 // the clock of another process is ahead, and its day has begun
	}
	rest := max(0, q.limit-row.reservedOn(q.day))
	if q.left = rest + q.reserved; q.left < count {
		q.fullUntil = q.now().Add(fullFor)
		return q.day, 0
	}
	return q.day, min(rest, max(count-q.reserved, min(rest/restParts, maxReserved)))
}

// giveBack adds messages of a day to those that this process has reserved. If q.day is another day, it does nothing.
func (q *quota) giveBack(day string, count int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.day == day {
		q.reserved += count
		q.left, q.fullUntil = 0, time.Time{}
	}
}

// takeAll takes all messages that this process has reserved, and returns their day and number.
func (q *quota) takeAll() (day string, count int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	day, count = q.day, q.reserved
	q.reserved = 0
	return day, count
}

// returnReserved writes the reserved messages of this process back to the row, unless the row has another day. After
// an error the messages are lost: if the write succeeded without an answer, a second write would let the upstream
// exceed its quota.
func (q *quota) returnReserved(ctx context.Context) error {
	day, count := q.takeAll()
	if count == 0 {
		return nil
	}
	select {
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var err error
	for range reserveTries {
		var row quotaRow
		if row, err = q.readRow(ctx); err != nil || row.day != day {
			return err
		}
		if err = q.writeRow(ctx, row, day, max(0, row.reserved-count)); !isOvertaken(err) {
			return err
		}
	}
	return err
}

// quotaRow is the row of a quota. The zero value stands for a row that does not exist.
type quotaRow struct {
	etag     storage.ETag
	day      string
	reserved int64 // number of messages that all processes have reserved of this day
}

// reservedOn returns the number of messages that all processes have reserved of a day.
func (r quotaRow) reservedOn(day string) int64 {
	if r.day != day {
		return 0
	}
	return r.reserved
}

func (q *quota) readRow(ctx context.Context) (quotaRow, error) {
	found, err := q.table.Get(ctx, partition, q.row)
	if storage.Is(err, storage.NotFound) {
		return quotaRow{}, nil
	}
	if err != nil {
		return quotaRow{}, err
	}
	r := quotaRow{etag: found.ETag}
	r.day, _ = found.Values[dayColumn].(string)
	r.reserved, _ = found.Values[reservedColumn].(int64)
	return r, nil
}

// writeRow writes the row for a day. It fails if another process has written the row since this process read
// it.
func (q *quota) writeRow(ctx context.Context, read quotaRow, day string, reserved int64) error {
	op := storage.Op{Kind: storage.Replace, Key: q.row, IfMatch: read.etag,
		Values: map[string]any{dayColumn: day, reservedColumn: reserved}}
	if read.etag == "" {
		op.Kind, op.IfMatch = storage.Insert, ""
	}
	_, err := q.table.Transact(ctx, partition, []storage.Op{op})
	return err
}

func unavailableError(err error) error {
	return &weir.Error{Kind: weir.Unavailable, Op: "upstream",
		Message:    "the upstream's daily quota cannot be read at the moment; the message was not filed, send it again",
		RetryAfter: time.Second, Err: err}
}
