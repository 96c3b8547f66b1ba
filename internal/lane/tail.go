package lane

import (
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Tail is the control row that the holder writes. Each group of its fields has one purpose.
type Tail struct {
	ETag      storage.ETag
	Nonce     string // nonce of the holder that wrote tail last
	Fence     int64  // rises with each new holder of the lane
	CommitSeq int64  // rises with each commit
	Cursor    int64  // below it each message is final, held or scheduled
	Counts    Counts

	RequestsSeen int64 // the requests up to this Head.RequestSeq were carried out
	SentBelow    int64 // messages from here on were never sent; 0 = not known
	HistoryFence int64 // all holders from this fence on have written l_ rows; 0 = the last holder has not

	DueState
	CMSPause
	SendLimits
	HolderReport
	CrashRecord
	EpochEnd
}

// DueState is about the messages below the cursor.
type DueState struct {
	NextDueAt      time.Time // time at which the first message below the cursor can continue; zero = none waits there
	NextUntriedAt  time.Time // as NextDueAt, but only for untried messages of keys that the CMS has not refused
	LastReleasedAt time.Time // the time in the position of the last released message; see Change.Release
}

// CMSPause is the pause of a lane because the CMS is unavailable, or refuses everything. No operator has asked for it.
type CMSPause struct {
	PausedUntil   time.Time // no message is sent before this time
	PauseReason   string
	PauseCount    int64     // number of pauses in a row
	RefusingSince time.Time // the CMS refuses everything since this time; zero = it takes messages, or does not answer
	ProbedBelow   int64     // if RefusingSince is set: all keys with messages below this number were tried; 0 = not all
}

// SendLimits are times before which no message is sent, whatever the state of the CMS.
type SendLimits struct {
	SettleUntil   time.Time // until this time the CMS may still work on an unanswered request
	NextAllowedAt time.Time // the setting "delivery.rate" allows no message before this time
}

// HolderReport is for operators.
type HolderReport struct {
	Holder      string // process that raised the fence last
	LastError   string // error of the last attempt that did not deliver
	LastErrorAt time.Time
}

// CrashRecord counts the crashes of holders, and names the message that a holder was about to send.
type CrashRecord struct {
	IsOpen          bool  // a holder is at work, or has crashed
	Crashes         int64 // takeovers in a row that found IsOpen
	InFlightSeq     int64 // after crashes, a holder names each message here before it sends it: the last one named
	InFlightCrashes int64 // crashes of holders that were about to send that message
	InFlightFence   int64 // fence of the holder that last named that message; 0 = its attempt is over
}

// EpochEnd is the state of a lane whose epoch is over, or about to end.
type EpochEnd struct {
	IsClosed      bool // no process may hold the lane
	MovedRecorded bool // Counts.Moved has the moved messages, and Counts.Dead no longer has them
}

// Counts has the number of messages in each final stage, and the number of messages that have moved to the next epoch.
type Counts struct {
	Delivered, Dead, Cancelled, Superseded, Discarded int64
	Moved                                             int64 // were scheduled or dead, and have a copy in the next epoch
}

// Total returns the number of messages that are final here or have moved.
func (c Counts) Total() int64 {
	return c.Delivered + c.Dead + c.Cancelled + c.Superseded + c.Discarded + c.Moved
}

// DueLead is how long before a due time a process takes the lane, so that it holds the lane when the
// message becomes due.
const DueLead = 2 * time.Second

// crashLead replaces DueLead if the last holder may have crashed: then the new holder has to wait until the last
// holder's request has settled.
const crashLead = 20 * time.Second

func (t Tail) leadTime() time.Duration {
	if t.IsOpen {
		return crashLead
	}
	return DueLead
}

// HolderFence returns the fence of the process that holds the lane, or that crashed as its holder; 0 = the lane is
// free.
func (t Tail) HolderFence() int64 {
	if t.IsOpen {
		return t.Fence
	}
	return 0
}

// DueAt returns the time at which the first message below the cursor can continue. The time is zero if no message
// waits there, or if each one that waits there needs an operator to resume its key.
func (t Tail) DueAt() time.Time {
	if t.NextDueAt.Before(weir.Forever) {
		return t.NextDueAt
	}
	return time.Time{}
}

// UpdateOp returns the operation that writes columns of tail, under the ETag with which tail was read. It is for
// lanes that no process can hold: their epoch is not open yet, or they are closed.
func (t Tail) UpdateOp(cells ...rows.Cell) storage.Op {
	return storage.Op{Kind: storage.Merge, Key: rows.TailKey, IfMatch: t.ETag, Values: rows.Values(cells...)}
}

func (t Tail) tailValues() map[string]any {
	return rows.Sparse(
		rows.Nonce.Is(t.Nonce), rows.Fence.Is(t.Fence), rows.CommitSeq.Is(t.CommitSeq), rows.Cursor.Is(t.Cursor),
		rows.Delivered.Is(t.Counts.Delivered), rows.Dead.Is(t.Counts.Dead),
		rows.Cancelled.Is(t.Counts.Cancelled+t.Counts.Discarded), rows.Superseded.Is(t.Counts.Superseded),
		rows.Moved.Is(t.Counts.Moved),
		rows.NextDueAt.Is(t.NextDueAt), rows.NextUntriedAt.Is(t.NextUntriedAt),
		rows.LastReleasedAt.Is(t.LastReleasedAt), rows.RequestsSeen.Is(t.RequestsSeen),
		rows.PausedUntil.Is(t.PausedUntil), rows.PauseReason.Is(t.PauseReason), rows.PauseCount.Is(t.PauseCount),
		rows.RefusingSince.Is(t.RefusingSince), rows.ProbedBelow.Is(t.ProbedBelow),
		rows.SettleUntil.Is(t.SettleUntil), rows.NextAllowedAt.Is(t.NextAllowedAt),
		rows.Holder.Is(t.Holder), rows.LastError.Is(t.LastError), rows.LastErrorAt.Is(t.LastErrorAt),
		rows.IsOpen.Is(t.IsOpen), rows.Crashes.Is(t.Crashes), rows.InFlightSeq.Is(t.InFlightSeq),
		rows.InFlightCrashes.Is(t.InFlightCrashes), rows.InFlightFence.Is(t.InFlightFence),
		rows.IsClosed.Is(t.IsClosed), rows.MovedRecorded.Is(t.MovedRecorded), rows.SentBelow.Is(t.SentBelow),
		rows.HistoryFence.Is(t.HistoryFence),
	)
}

func tailFrom(r storage.Row) Tail {
	v := r.Values
	return Tail{
		ETag: r.ETag, Nonce: rows.Nonce.Of(v), Fence: rows.Fence.Of(v), CommitSeq: rows.CommitSeq.Of(v),
		Cursor: rows.Cursor.Of(v),
		Counts: Counts{Delivered: rows.Delivered.Of(v), Dead: rows.Dead.Of(v), Cancelled: rows.Cancelled.Of(v),
			Superseded: rows.Superseded.Of(v), Moved: rows.Moved.Of(v)},
		RequestsSeen: rows.RequestsSeen.Of(v), SentBelow: rows.SentBelow.Of(v), HistoryFence: rows.HistoryFence.Of(v),
		DueState: DueState{rows.NextDueAt.Of(v), rows.NextUntriedAt.Of(v), rows.LastReleasedAt.Of(v)},
		CMSPause: CMSPause{PausedUntil: rows.PausedUntil.Of(v), PauseReason: rows.PauseReason.Of(v),
			PauseCount: rows.PauseCount.Of(v), RefusingSince: rows.RefusingSince.Of(v),
			ProbedBelow: rows.ProbedBelow.Of(v)},
		SendLimits:   SendLimits{rows.SettleUntil.Of(v), rows.NextAllowedAt.Of(v)},
		HolderReport: HolderReport{rows.Holder.Of(v), rows.LastError.Of(v), rows.LastErrorAt.Of(v)},
		CrashRecord: CrashRecord{IsOpen: rows.IsOpen.Of(v), Crashes: rows.Crashes.Of(v),
			InFlightSeq: rows.InFlightSeq.Of(v), InFlightCrashes: rows.InFlightCrashes.Of(v),
			InFlightFence: rows.InFlightFence.Of(v)},
		EpochEnd: EpochEnd{IsClosed: rows.IsClosed.Of(v), MovedRecorded: rows.MovedRecorded.Of(v)},
	}
}
