package overview

import (
	"time"

	"weir/internal/lane"
	"weir/internal/wire"
)

// These functions return what the API and the pages show.

// DescribeLanes returns the JSON form of all lanes.
func DescribeLanes(lanes []Lane, calendar wire.Calendar) wire.LaneList {
	totals := SumLanes(lanes)
	list := wire.LaneList{Lanes: []wire.Lane{}, Calendar: calendar,
		Totals: describeCounts(totals.Accepted, totals.Counts, totals.Waiting)}
	for i := range lanes {
		list.Lanes = append(list.Lanes, DescribeLane(&lanes[i]))
	}
	return list
}

// DescribeLane returns the JSON form of a lane.
func DescribeLane(l *Lane) wire.Lane {
	out := wire.Lane{
		Number: l.Number, Counts: describeCounts(l.Accepted, l.Counts, l.Waiting),
		Scheduled: l.Scheduled, Queued: l.Queued, Retrying: l.Retrying, Exact: l.Exact,
		OldestAt: l.OldestAt, Rate1: rateOrNil(l.Rate1), Rate15: rateOrNil(l.Rate15),
		RatesUntil: l.RatesUntil, FoundDown: l.FoundDown,
		Held: l.Held, Holder: l.Holder, Fence: l.Fence,
		PausedBy: l.PauseCause.By, PausedUntil: l.PauseCause.Until,
		PauseReason: l.PauseCause.Reason,
		Pauses:      wire.NewPauses(l.Pauses),
		NextDueAt:   l.NextDue, LastError: l.LastError, LastErrorAt: l.LastErrorAt,
		LastDeliveredAt: l.LastDeliveredAt, AttemptingID: l.AttemptingID,
		AttemptingSince: l.AttemptingSince,
		RefusedKeys:     l.Refused.Count, RefusedKey: l.Refused.First,
		HasFewRefused: l.Refused.AreFew(),
	}

	for _, m := range l.Missing {
		out.MissingContracts = append(out.MissingContracts, wire.MissingContract(m))
	}

	for _, b := range l.Brakes {
		out.Brakes = append(out.Brakes, wire.Brake(b))
	}

	if !l.OldestAt.IsZero() {
		out.OldestSeconds = toSeconds(max(l.At.Sub(l.OldestAt), 0))
	}

	if l.DrainEstimate.Known {
		out.EmptyIn = toSeconds(l.DrainEstimate.In)
	}

	return out
}

func describeCounts(accepted int64, c lane.Counts, waiting int64) wire.Counts {
	return wire.Counts{Accepted: accepted, Delivered: c.Delivered, Dead: c.Dead,
		Cancelled:  c.Cancelled,
		Superseded: c.Superseded, Discarded: c.Discarded, Moved: c.Moved, Waiting: waiting}
}

func toSeconds(d time.Duration) *float64 {
	s := d.Round(time.Millisecond).Seconds()
	return &s
}

func rateOrNil(r Rate) *float64 {
	if !r.Known {
		return nil
	}
	return &r.PerMinute
}

// DescribeMessages returns the JSON form of a page of messages.
func DescribeMessages(found SearchResult) wire.MessageList {
	list := wire.MessageList{Messages: []wire.MessageLine{}, Looked: found.Examined,
		NotSearched: found.BodiesSkipped, Complete: found.Complete, Continue: found.Continue}
	for _, st := range found.Messages {
		st.Attempts = nil // the rows that a search reads do not have all attempts
		list.Messages = append(list.Messages,
			wire.MessageLine{Message: wire.NewMessage(st), Size: st.Message.Size})
	}

	return list
}

// DescribeErrors returns the JSON form of the causes of dead messages.
func DescribeErrors(all Clusters) wire.ErrorList {
	list := wire.ErrorList{Errors: []wire.ErrorCause{}, Looked: all.Examined,
		Complete: all.Complete}
	for _, c := range all.List {
		list.Errors = append(list.Errors, wire.ErrorCause{
			Fingerprint: c.Fingerprint, Contract: c.Contract, CMSStatus: c.CMSStatus,
			Message: c.Message,
			Count:   c.Count, Keys: c.Keys, FirstAt: c.First.UTC(), LastAt: c.Last.UTC(),
			Sample: wire.ErrorSample{ID: c.Sample.ID, Key: c.Sample.Key, Reason: c.Sample.Reason}})
	}

	return list
}
