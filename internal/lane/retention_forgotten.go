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

// A body that is too large for its row is stored before its message is filed, and marked afterwards. If the message
// was not filed, no row refers to the body: the body is forgotten. Names of bodies begin with the day on which they
// were stored. Each day is searched once, by one process at a time, and again only if storage refuses to remove a
// body. The row meta/forgotten records the progress of the search. If no process searches for some days, the next
// search continues at the recorded day.

const (
	// searchDelayDays is the number of days by which the search stays behind the present day. So a body is at least
	// about a day old when it is checked, even if its receiver's clock was ahead.
	searchDelayDays = 2
	// searchTimeShare is the time after which a search leaves the rest to the next search.
	searchTimeShare = time.Minute
	// searchClaimTime is the time for which one process has the search for itself. If that process is killed, another
	// process continues the search after that time.
	searchClaimTime = 10 * time.Minute
	// maxRepeatDays limits the recorded days with a body that storage refused to remove.
	maxRepeatDays = 30
	dayFormat     = time.DateOnly
)

// bodySearchRecord is the row meta/forgotten.
type bodySearchRecord struct {
	etag         storage.ETag
	lastDay      string    // all days up to this one were searched
	marker       string    // where to continue in the day after lastDay
	repeatDays   []string  // days to search again, because storage refused to remove a body
	namesSince   string    // edited bodies of later days have the sequence number in their names
	claimedUntil time.Time // until this time one process has the search for itself; zero = no process has it
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

// bodySearch is one search, by the process that has claimed it.
type bodySearch struct {
	*Retention
	bodySearchRecord
	began time.Time
}

// RemoveForgottenBodies removes the bodies to which no row refers. It searches all days before yesterday that were not
// searched yet. It returns the time at which there is more to do; zero = soon.
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

// searchDays searches one day after the other, and reports whether it has finished the last day.
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

// saveClaim saves the progress of the search, and reserves the search for this process for a time span.
func (l *bodySearch) saveClaim(ctx context.Context, span time.Duration) error {
	l.claimedUntil = time.Time{}
	if span > 0 {
		l.claimedUntil = l.Store.Now().Add(span)
	}
	op := storage.Op{Kind: storage.Replace, Key: rows.ForgottenKey, IfMatch: l.etag, Values: l.searchValues()}
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

// searchAgain repeats the search of each day on which storage refused to remove a body. It returns the days that still
// have such a body. It also returns the days that it could not search to their ends in half of searchTimeShare.
func (l *bodySearch) searchAgain(ctx context.Context) (still []string, err error) {
	if l.marker != "" {
		return l.repeatDays, nil // the search of a day continues; searchAgain ran before that search began
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

// dayBeforeFirst is for the very first search. That search begins with the day of the oldest body, or with the day last
// if no body is older. dayBeforeFirst returns the day before it.
func (l *bodySearch) dayBeforeFirst(ctx context.Context, last string) (string, error) {
	const century = "2" // names of other blobs in the container begin with a letter
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

// searchDay lists a day's bodies from the marker on, and removes the forgotten bodies lane by lane. whole reports
// whether the search has reached the end of the day; otherwise the marker has its position. refused reports whether
// storage has refused to remove a body, or to mark one.
func (l *bodySearch) searchDay(ctx context.Context, day string) (whole, refused bool, err error) {
	var names []string // unmarked bodies of one lane
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

// removeForgotten gets the names of unmarked bodies of a lane. It removes each body to which no row refers. It marks
// the others: an append can succeed although it fails to mark its body.
func (l *bodySearch) removeForgotten(ctx context.Context, day, partition string, names []string) (refused bool,
	err error) {
	if len(names) == 0 {
		return false, nil
	}
	used, err := l.findUsed(ctx, day, partition, names)
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
		l.Log.Warn("retention: forgotten body kept, storage refuses to remove it", "lane", partition, "err", err)
	}
	l.countRemoved(0, 1)
}

// acceptedMargin widens the part of the log that is searched for the bodies of one day. The day in a body's name comes
// from the receiver's clock, seconds before the message is accepted, and clocks may differ.
const acceptedMargin = 6 * time.Hour

// findUsed returns the set of those names whose bodies a row of the lane refers to. It reads waiting requests before it
// reads messages: if the holder grants a replay with an edit in between, the message's row refers to the body.
func (l *bodySearch) findUsed(ctx context.Context, day, partition string, names []string) (map[string]bool, error) {
	used := map[string]bool{}
	requests := rows.WithPrefix(partition, rows.RequestPrefix, nil)
	if err := l.addBlobs(ctx, requests, used, time.Time{}); err != nil {
		return nil, err
	}
	messages := rows.WithPrefix(partition, rows.MessagePrefix, nil)
	if day <= l.namesSince {
		return used, l.addBlobs(ctx, messages, used, time.Time{}) // an edited body can belong to any message
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

// findFirst returns a sequence number of a lane: no message with a lower number was accepted after the time at. name is
// the name of the lane's partition.
func (l *bodySearch) findFirst(ctx context.Context, name string, at time.Time) (int64, error) {
	var id weir.ID
	if _, err := fmt.Sscanf(name, "%d.%d", &id.Epoch, &id.Lane); err != nil || rows.Partition(id.Epoch,
		id.Lane) != name {
		return 1, nil // this program writes no such name
	}
	store := l.Store.ForEpoch(epochs.Epoch{Number: id.Epoch})
	control, err := store.ReadControl(ctx, id.Lane)
	if storage.Is(err, storage.NotFound) {
		return 1, nil // the lane was deleted
	}
	if err != nil {
		return 0, err
	}
	// The result of FindAcceptedAfter can be too high by some hundreds, fewer than maxPage.
	first, _, err := store.FindAcceptedAfter(ctx, id.Lane, control.Head.Next, at)
	return max(first-maxPage, 1), err
}

// addBlobs adds the bodies to which rows refer to the set used. If until is zero, it reads all rows. Otherwise it stops
// after a page whose messages were all accepted after until.
func (l *bodySearch) addBlobs(ctx context.Context, q storage.Query, used map[string]bool, until time.Time) error {
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
