package limiter

import (
	"fmt"
	"time"

	"weir/internal/storage"
)

// partition is the partition of the rows of all CMSs. A row's key is the name of its CMS.
const partition = "rates"

// clockRows is the number of rows with which processes sample the clock of storage. Each process
// uses one of them.
const clockRows = 64

// clockKey returns the key of one of these rows. The parameter is a random number from 0 to 1.
func clockKey(random float64) string {
	return fmt.Sprintf("~clock-%02d", min(int(random*clockRows), clockRows-1))
}

// Columns of the row of a CMS. A column is never renamed.
const (
	columnFirst   = "FirstFree"     // time of the first slot that is not reserved
	columnSpacing = "SpacingMicros" // time between two slots in force, in microseconds
	columnShare   = "Share"         // part of the configured rate in force, see pace
	columnReason  = "SlowReason"
	columnSince   = "SlowSince"
	columnChanged = "ShareChanged"
	columnPaused  = "PausedUntil"
)

// state is the content of the row. Times are those of storage.
type state struct {
	firstFree time.Time
	spacing   time.Duration
	pace

	etag      storage.ETag
	writtenAt time.Time
}

func decodeState(row storage.Row) state {
	v := row.Values
	s := state{etag: row.ETag, writtenAt: row.WrittenAt}
	s.firstFree, _ = v[columnFirst].(time.Time)
	micros, _ := v[columnSpacing].(int64)
	s.spacing = time.Duration(micros) * time.Microsecond
	s.share, _ = v[columnShare].(float64)
	s.reason, _ = v[columnReason].(string)
	s.slowSince, _ = v[columnSince].(time.Time)
	s.changedAt, _ = v[columnChanged].(time.Time)
	s.pausedUntil, _ = v[columnPaused].(time.Time)
	s.repair()

	return s
}

func (s *state) encode() map[string]any {
	v := map[string]any{columnShare: s.share, columnSpacing: s.spacing.Microseconds()}
	for column, at := range map[string]time.Time{columnFirst: s.firstFree,
		columnSince: s.slowSince, columnChanged: s.changedAt, columnPaused: s.pausedUntil} {
		if !at.IsZero() {
			v[column] = at
		}
	}

	if s.reason != "" {
		v[columnReason] = s.reason
	}

	return v
}

// shiftBack moves the times of the row back by d.
func (s *state) shiftBack(d time.Duration) {
	for _, at := range []*time.Time{&s.firstFree, &s.slowSince, &s.changedAt, &s.pausedUntil} {
		if !at.IsZero() {
			*at = at.Add(-d)
		}
	}
}
