package upstream

import (
	"context"
	"sync"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
)

// The table partition has a row for each upstream with a daily quota. The row's key is quotaPrefix
// and the upstream's name.
const (
	partition   = "upstreams"
	quotaPrefix = "quota_"

	dayColumn = "Day" // day of the last reservation in UTC, such as 2026-01-31
	// number of messages that all processes have reserved from that day's quota
	reservedColumn = "Reserved"
)

const (
	// A process reserves 1/restParts of the messages that are left, but at most maxReserved. So a
	// process that dies or is idle withholds few messages from the other processes. If fewer than
	// 2*restParts messages are left, a process reserves one at a time. For a batch, a process
	// reserves at least as many messages as the batch needs.
	restParts, maxReserved = 20, 100
	// A read of the row can show that fewer messages are left than a call needs. For the time
	// fullFor, the process then refuses such calls without another read.
	fullFor = time.Second
	// reserveTries limits the tries of one reservation, or of one return of messages. A try fails
	// if another process writes the row between this process's read and write.
	reserveTries = 10
)

// quota is the daily quota of one upstream. It is safe for concurrent use.
type quota struct {
	row   string
	limit int64
	table storage.Table
	now   func() time.Time

	busy chan struct{} // has one element while a call reads or writes the row

	mu sync.Mutex
	// day to which reserved belongs, such as 2026-01-31; "" = takeReserved was not called yet
	day      string
	reserved int64 // number of messages that this process has reserved and not taken
	// messages left at the last read of the row, including reserved; valid until fullUntil
	left int64
	// until then, a call for more messages than the number in left is refused without a read
	fullUntil time.Time
	// remembered has the submissions that have a charge of the day, and whose answer was lost.
	remembered map[submissionID]bool
}

func newQuota(name string, limit int64, table storage.Table, now func() time.Time) *quota {
	return &quota{row: quotaPrefix + name, limit: limit, table: table, now: now,
		busy: make(chan struct{}, 1), remembered: map[submissionID]bool{}}
}

// takeMessages takes count messages of the daily quota, and returns their day. If fewer than count
// messages are left, it takes none, and returns an empty day and the number left. Its errors are
// Unavailable.
func (q *quota) takeMessages(ctx context.Context, count int64) (day string, left int64, err error) {
	if day, left, isFull := q.takeReserved(count); day != "" || isFull {
		return day, left, nil
	}

	select {
	case q.busy <- struct{}{}:
		defer func() { <-q.busy }()
	case <-ctx.Done():
		return "", 0, unavailableError(ctx.Err())
	}

	for tries := 0; ; tries++ {
		if day, left, isFull := q.takeReserved(count); day != "" || isFull {
			return day, left, nil // a reservation succeeded, or found too few messages left
		}

		if tries == reserveTries {
			return "", 0, unavailableError(err)
		}

		if err = q.reserveMessages(ctx, count); err != nil && !isOvertaken(err) {
			// if the write took effect, the messages that it reserved are lost
			return "", 0, unavailableError(err)
		}
	}
}

// takeReserved takes count messages that this process has reserved, and returns their day. If too
// few are reserved, it takes none, and returns an empty day. isFull then reports whether a read of
// the row, less than fullFor ago, found fewer than count messages left. left is the number that
// this read found.
func (q *quota) takeReserved(count int64) (day string, left int64, isFull bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.beginDay()

	if q.reserved >= count {
		q.reserved -= count
		return q.day, 0, false
	}

	return "", q.left, now.Before(q.fullUntil) && q.left < count
}

// beginDay returns the present time. If a new day has begun, it first drops the values of the
// earlier day. The caller must hold q.mu.
func (q *quota) beginDay() time.Time {
	now := q.now().UTC()
	if today := now.Format(time.DateOnly); q.day < today {
		q.setDay(today)
		q.left, q.fullUntil = 0, time.Time{}
	}
	return now
}

// setDay sets the day. What was reserved and remembered belongs to the earlier day.
func (q *quota) setDay(day string) {
	q.day, q.reserved = day, 0
	clear(q.remembered)
}

// isOvertaken reports whether err means that another process has written the row since this process
// read it.
func isOvertaken(err error) bool {
	return storage.Is(err, storage.Precondition) || storage.Is(err, storage.Conflict)
}

// reserveMessages reserves messages, so that this process has at least count of them. If too few
// messages are left, it reserves none. The caller must hold q.busy.
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

// planReservation returns the day and the number of messages to reserve. If too few messages are
// left, it sets q.fullUntil, and more is 0. If this process has enough messages by now, more can be
// 0, too.
func (q *quota) planReservation(row quotaRow, count int64) (day string, more int64) {
	q.mu.Lock()
	defer q.mu.Unlock()

	// Ignore a day later than tomorrow: the clock of the process that wrote it is wrong. If the
	// quota of that day were used up, all processes would refuse the upstream's messages until that
	// day has passed.
	tomorrow := q.now().UTC().AddDate(0, 0, 1).Format(time.DateOnly)
	if row.day > q.day && row.day <= tomorrow {
		q.setDay(row.day) // another process's clock is fast, and has reached the next day
	}

	rest := max(0, q.limit-row.reservedOn(q.day))
	if q.left = rest + q.reserved; q.left < count {
		q.fullUntil = q.now().Add(fullFor)
		return q.day, 0
	}

	return q.day, min(rest, max(count-q.reserved, min(rest/restParts, maxReserved)))
}

// giveBack adds count messages to the reservation of this process. If q.day is no longer the given
// day, giveBack does nothing.
func (q *quota) giveBack(day string, count int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.day == day {
		q.addReserved(count)
	}
}

func (q *quota) addReserved(count int64) {
	q.reserved += count
	q.left, q.fullUntil = 0, time.Time{}
}

func (q *quota) takeAll() (day string, count int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	day, count = q.day, q.reserved
	q.reserved = 0
	return day, count
}

// returnReserved subtracts this process's reservation from the row, unless the row has another day.
// After an error the reservation is lost, because the write can have taken effect. A second write
// would then let the upstream exceed its quota.
func (q *quota) returnReserved(ctx context.Context) error {
	day, count := q.takeAll()
	if count == 0 {
		return nil
	}

	select {
	case q.busy <- struct{}{}:
		defer func() { <-q.busy }()
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

// quotaRow is the row of a quota. The zero value means that the row does not exist.
type quotaRow struct {
	etag     storage.ETag
	day      string
	reserved int64 // number of messages that all processes have reserved from the quota of day
}

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

// writeRow replaces the row that was read. It fails if another process has written the row after
// that read.
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
