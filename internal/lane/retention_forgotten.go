package lane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"weir/internal/lane/epochs"
	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// A body that is too large for its row is stored in a blob before its message is appended, and the
// blob is marked as used after the append. If the append fails, no row refers to the blob: the body
// is forgotten.
//
// The names of blobs begin with the day on which they were stored. One process at a time searches
// the days, each day only once. A day is searched again only if storage refused to remove a body of
// that day. The row meta/forgotten records the progress. So a search continues where the last one
// ended, even if there was no search for some days.

const (
	// searchDelayDays is the number of days from the last searched day to the present day. So a
	// body is at least about a day old when it is checked, even if the clock of its receiver was
	// fast.
	searchDelayDays = 2
	// searchTimeShare is the time after which a search stops; the next search continues.
	searchTimeShare = time.Minute
	// searchClaimTime is the time for which one process has the search for itself. If that process
	// is killed, another process can continue after this time.
	searchClaimTime = 10 * time.Minute
	// maxRepeatDays limits the number of days in repeatDays.
	maxRepeatDays = 30
	dayFormat     = time.DateOnly
)

// bodySearchRecord is the row meta/forgotten.
type bodySearchRecord struct {
	etag       storage.ETag
	lastDay    string   // all days up to this one were searched
	marker     string   // where to continue in the day after lastDay
	repeatDays []string // days to search again, because storage refused to remove a body
	// after this day, the names of edited bodies have the sequence number of their message
	namesSince string
	// until this time one process has the search for itself; zero = no process has it
	claimedUntil time.Time
}

func bodySearchFrom(r storage.Row) bodySearchRecord {
	v := r.Values
	return bodySearchRecord{etag: r.ETag, lastDay: rows.LastDay.Of(v), marker: rows.DayMarker.Of(v),
		repeatDays: strings.Fields(rows.DaysToRepeat.Of(v)),
		namesSince: rows.SinceDay.Of(v), claimedUntil: rows.ClaimedUntil.Of(v)}
}

func (f *bodySearchRecord) searchValues() map[string]any {
	return rows.Sparse(rows.LastDay.Is(f.lastDay), rows.DayMarker.Is(f.marker),
		rows.DaysToRepeat.Is(strings.Join(f.repeatDays,
			" ")), rows.SinceDay.Is(f.namesSince), rows.ClaimedUntil.Is(f.claimedUntil))
}

// bodySearch is one call of RemoveForgottenBodies.
type bodySearch struct {
	*Retention
	bodySearchRecord
	began time.Time
}

// RemoveForgottenBodies removes the bodies to which no row refers. It searches all days before
// yesterday that were not searched yet. It returns the time at which it is to be called again; zero
// = soon.
func (r *Retention) RemoveForgottenBodies(ctx context.Context) (time.Time, error) {
	now := r.Store.Now().UTC()
	last := now.AddDate(0, 0, -searchDelayDays).Format(dayFormat)
	tomorrow := now.Truncate(24 * time.Hour).Add(24 * time.Hour)
	row, err := r.Store.Table.Get(ctx, rows.MetaPartition, rows.ForgottenKey)
	if err != nil && !storage.Is(err, storage.NotFound) {
		return time.Time{}, err
	}

	l := &bodySearch{Retention: r, bodySearchRecord: bodySearchFrom(row), began: time.Now()}
	switch {
	case l.lastDay >= last:
		return tomorrow, nil
	case l.claimedUntil.After(now) && !l.claimedUntil.After(now.Add(2*searchClaimTime)):
		return l.claimedUntil, nil
	}

	if l.namesSince == "" {
		l.namesSince = tomorrow.Format(dayFormat)
	}

	switch whole, err := l.searchDays(ctx, last); {
	case errors.Is(err, errOtherProcess):
		return now.Add(searchClaimTime), nil
	case err != nil || !whole:
		return time.Time{}, err
	}

	return tomorrow, nil
}

// searchDays searches one day after the other, up to the day in the parameter last. It reports
// whether it has finished the last of these days.
func (l *bodySearch) searchDays(ctx context.Context, last string) (bool, error) {
	if err := l.saveClaim(ctx, searchClaimTime); err != nil {
		return false, err
	}

	again, err := l.searchAgain(ctx)
	if err != nil {
		return false, err
	}

	l.repeatDays = again
	if l.lastDay == "" {
		if l.lastDay, err = l.dayBeforeFirst(ctx, last); err != nil {
			return false, err
		}
	}

	for l.lastDay < last && time.Since(l.began) < searchTimeShare {
		day, err := dayAfter(l.lastDay)
		if err != nil {
			return false, err
		}

		whole, refused, err := l.searchDay(ctx, day)
		if err != nil {
			return false, err
		}

		if refused && !slices.Contains(again, day) {
			again = append(again, day)
		}

		l.repeatDays = again[max(0, len(again)-maxRepeatDays):]
		if whole {
			l.lastDay, l.marker = day, ""
		}

		if err := l.saveClaim(ctx, searchClaimTime); err != nil {
			return false, err
		}
	}

	return l.lastDay >= last, l.saveClaim(ctx, 0)
}

// saveClaim stores the progress of the search, and reserves the search for this process. The
// parameter span is the duration of the reservation. If span is 0, saveClaim ends the reservation.
func (l *bodySearch) saveClaim(ctx context.Context, span time.Duration) error {
	l.claimedUntil = time.Time{}
	if span > 0 {
		l.claimedUntil = l.Store.Now().Add(span)
	}

	op := storage.Op{Kind: storage.Replace, Key: rows.ForgottenKey, IfMatch: l.etag,
		Values: l.searchValues()}
	if l.etag == "" {
		op.Kind = storage.Insert
	}

	etags, err := l.Store.Table.Transact(ctx, rows.MetaPartition, []storage.Op{op})
	switch storage.KindOf(err) {
	case storage.Conflict, storage.Precondition:
		return errOtherProcess
	}

	if err == nil {
		l.etag = etags[0]
	}

	return err
}

// searchAgain searches the days in repeatDays again. It returns the days that must be searched once
// more: storage still refuses to remove a body, or the time was too short for the day.
func (l *bodySearch) searchAgain(ctx context.Context) (still []string, err error) {
	if l.marker != "" {
		// an earlier search stopped within a day, and ran searchAgain before that day
		return l.repeatDays, nil
	}

	for _, day := range l.repeatDays {
		whole, refused := false, false
		if time.Since(l.began) < searchTimeShare/2 {
			whole, refused, err = l.searchDay(ctx, day)
		}

		if err != nil {
			return nil, err
		}

		l.marker = ""
		if refused || !whole {
			still = append(still, day)
		}
	}

	return still, nil
}

// dayBeforeFirst returns lastDay for the very first search: the day before the day of the oldest
// body. If no body is from a day before "last", the result is the day before the day "last".
func (l *bodySearch) dayBeforeFirst(ctx context.Context, last string) (string, error) {
	// the names of bodies begin with a year, and the names of other blobs begin with a letter
	const century = "2"
	for marker := ""; ; {
		page, err := l.Store.Bodies.List(ctx, century, marker)
		if err != nil {
			return "", err
		}

		for _, info := range page.Infos {
			day, _, _ := strings.Cut(info.Name, "/")
			if at, err := time.Parse(dayFormat, day); err == nil && day < last {
				return at.AddDate(0, 0, -1).Format(dayFormat), nil
			}
			break
		}

		if marker = page.Next; marker == "" || len(page.Infos) > 0 {
			at, err := time.Parse(dayFormat, last)
			return at.AddDate(0, 0, -1).Format(dayFormat), err
		}
	}
}

func dayAfter(day string) (string, error) {
	at, err := time.Parse(dayFormat, day)
	return at.AddDate(0, 0, 1).Format(dayFormat), err
}

// searchDay lists a day's bodies from l.marker on, and removes the forgotten bodies lane by lane.
// whole reports whether it has reached the end of the day. If not, l.marker has the position at
// which to continue. refused reports whether storage has refused to remove or to mark a body.
func (l *bodySearch) searchDay(ctx context.Context, day string) (whole, refused bool, err error) {
	var names []string // names of unmarked bodies of the lane in the variable "lane"
	lane := ""
	flush := func() error {
		kept, err := l.removeForgotten(ctx, day, lane, names)
		names, refused = nil, refused || kept
		return err
	}

	for {
		page, err := l.Store.Bodies.List(ctx, day+"/", l.marker)
		if err != nil {
			return false, refused, err
		}

		for _, info := range page.Infos {
			parts := strings.Split(info.Name, "/")
			if info.Marked || len(parts) != 3 {
				continue
			}

			if parts[1] != lane {
				if err := flush(); err != nil {
					return false, refused, err
				}
				lane = parts[1]
			}

			names = append(names, info.Name)
		}

		whole = page.Next == ""
		if whole || time.Since(l.began) >= searchTimeShare {
			err := flush()
			l.marker = page.Next
			return whole, refused, err
		}

		l.marker = page.Next
	}
}

// removeForgotten removes each of the named bodies to which no row refers, and marks the other ones
// as used. The names are those of unmarked bodies of one lane.
func (l *bodySearch) removeForgotten(ctx context.Context, day, partition string,
	names []string) (refused bool, err error) {
	if len(names) == 0 {
		return false, nil
	}

	used, err := l.findUsed(ctx, day, partition, names)
	if err == nil && slices.ContainsFunc(names, func(name string) bool { return !used[name] }) {
		// findUsed goes by the clocks of receivers. No clock decides that a body is removed: before
		// that, all messages are read. There are few forgotten bodies, so few lanes are read as a
		// whole.
		err = l.addBlobs(ctx, rows.WithPrefix(partition, rows.MessagePrefix, nil), used,
			time.Time{})
	}

	if err != nil {
		return false, fmt.Errorf("lane %s: %w", partition, err)
	}

	var anyRefused atomic.Bool
	err = ForEach(len(names), func(i int) error {
		change := l.Store.Bodies.Delete
		if used[names[i]] {
			change = l.Store.Bodies.Mark
		}

		err := change(ctx, names[i])
		switch {
		case err == nil, storage.Is(err, storage.NotFound):
			return nil
		case isUndecided(err):
			return err
		}

		l.refusedBody(partition, err)
		anyRefused.Store(true)

		return nil
	})

	return anyRefused.Load(), err
}

// refusedBody logs and counts a body that storage refuses to remove or to mark.
func (l *bodySearch) refusedBody(partition string, err error) {
	if l.Log != nil {
		l.Log.Warn("retention: forgotten body kept, storage refuses to remove it", "lane",
			partition, "err", err)
	}
	l.countRemoved(0, 1)
}

// acceptedMargin is a reserve before and after a day. findUsed searches the messages that were
// accepted on the day or within the reserve. A message can be accepted on another day than the day
// in the name of its body. The receiver takes this day from its clock, seconds before the message
// is accepted, and clocks differ. If they differ by more, removeForgotten finds the message.
const acceptedMargin = 6 * time.Hour

// findUsed returns the names of those bodies to which a row of the lane refers. It reads requests
// before messages. In the other order it could miss the body of a replay with an edit: between the
// two reads, the holder can grant the request, and so move the name of the body from the request's
// row to the message's row.
func (l *bodySearch) findUsed(ctx context.Context, day, partition string,
	names []string) (map[string]bool, error) {
	used := map[string]bool{}
	requests := rows.WithPrefix(partition, rows.RequestPrefix, nil)
	if err := l.addBlobs(ctx, requests, used, time.Time{}); err != nil {
		return nil, err
	}

	messages := rows.WithPrefix(partition, rows.MessagePrefix, nil)

	// a name of an edited body may have no sequence number: read all messages
	if day <= l.namesSince {
		return used, l.addBlobs(ctx, messages, used, time.Time{})
	}

	accepted := false
	for _, name := range names {
		seq, edited := seqOfEdited(name)
		if accepted = accepted || !edited; !edited {
			continue
		}

		edit := rows.Messages(partition, seq, seq+1, nil)
		if err := l.addBlobs(ctx, edit, used, time.Time{}); err != nil {
			return nil, err
		}
	}

	if !accepted {
		return used, nil
	}

	begin, err := time.Parse(dayFormat, day)
	if err != nil {
		return nil, err
	}

	first, err := l.findFirst(ctx, partition, begin.Add(-acceptedMargin))
	if err != nil {
		return nil, err
	}

	messages.From = rows.MessageKey(first)

	return used, l.addBlobs(ctx, messages, used, begin.AddDate(0, 0, 1).Add(acceptedMargin))
}

// findFirst returns the sequence number from which findUsed reads. All messages with lower numbers
// were accepted at the time "at" or before. The parameter "name" is the partition of the lane.
func (l *bodySearch) findFirst(ctx context.Context, name string, at time.Time) (int64, error) {
	var id weir.ID
	if _, err := fmt.Sscanf(name, "%d.%d", &id.Epoch, &id.Lane); err != nil ||
		rows.Partition(id.Epoch, id.Lane) != name {
		return 1, nil // not the partition of a lane
	}

	store := l.Store.ForEpoch(epochs.Epoch{Number: id.Epoch})
	control, err := store.ReadControl(ctx, id.Lane)
	if storage.Is(err, storage.NotFound) {
		return 1, nil // the lane was deleted
	}
	if err != nil {
		return 0, err
	}

	// The result of FindAcceptedAfter can be too high by some hundreds. That is less than maxPage.
	first, _, err := store.FindAcceptedAfter(ctx, id.Lane, control.Head.Next, at)

	return max(first-maxPage, 1), err
}

// addBlobs reads the rows of the query q, and adds the names of their blobs to the set used. If
// until is not zero, addBlobs stops after a page whose messages were all accepted later than the
// time until.
func (l *bodySearch) addBlobs(ctx context.Context, q storage.Query, used map[string]bool,
	until time.Time) error {
	q.Columns = rows.Names(acceptedBody.blob, editedBody.blob, rows.AcceptedAt)
	for page, err := range rows.Pages(ctx, l.Store.Table, q) {
		if err != nil {
			return err
		}

		past := !until.IsZero()
		for _, row := range page.Rows {
			v := row.Values
			for _, in := range []bodyColumns{acceptedBody, editedBody} {
				if blob := in.blob.Of(v); blob != "" {
					used[blob] = true
				}
			}

			past = past && rows.AcceptedAt.Of(v).After(until)
		}

		if past {
			break
		}
	}

	return nil
}
