package lane

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Tail is the control row that the holder writes. Each group of its fields has one purpose.
type Tail struct {
	ETag      storage.ETag
	Nonce     string // random text of the holder that wrote tail last
	Fence     int64  // rises with each new holder of the lane
	CommitSeq int64  // rises with each commit
	Cursor    int64  // each message with a smaller number is final, held or scheduled
	Counts    Counts

	// value of Head.RequestSeq up to which the holder has carried out the requests
	RequestsSeen int64
	SentBelow    int64 // no message with this number or a greater one was ever sent; 0 = not known

	DueState
	CMSPause
	// until this time the CMS may still work on an unanswered request, and no message is sent
	SettleUntil time.Time
	// Missing has the contracts that the settings of the last holder lacked, and for which messages
	// wait; nil = none. A process whose settings have such a contract has work in the lane.
	Missing []MissingContract
	Brakes  []Brake // the closed brakes for which messages of the lane wait
	HolderReport
	CrashRecord
	EpochEnd
}

// DueState is about the held and scheduled messages.
type DueState struct {
	NextDueAt time.Time // when the first of these messages can be sent; zero = there is none
	// when the first scheduled message, or untried held message, can be sent; zero = none
	NextUntriedAt time.Time
	// the position of the next released message has a later time; see Change.Release
	LastReleasedAt time.Time
}

// CMSPause is the pause of a lane because the CMS is unavailable or refuses messages. A pause by an
// operator is not part of tail.
type CMSPause struct {
	// end of the pause; an untried message can be sent earlier, see Control.HasUntried
	PausedUntil time.Time
	PauseReason string
	PauseCount  int64  // number of pauses in a row
	PauseCause  string // which recovery ends the pause, see Recovery.Ends; "" = none
	// time since which the CMS has refused everything; zero = it does not refuse everything
	RefusingSince time.Time
	// if not 0: the CMS refuses, and each key with a message below this number had its turn
	ProbedBelow int64
}

// HolderReport is for operators. Delivery does not depend on it.
type HolderReport struct {
	Holder      string // name of the process that raised the fence last
	LastError   string // error of the last attempt that did not deliver
	LastErrorAt time.Time

	LastDeliveredAt time.Time // time of the last delivery
	// AttemptingID is the id of the message whose attempt takes long, and AttemptingSince the
	// beginning of that attempt; zero = no attempt is known that takes long.
	AttemptingID    string
	AttemptingSince time.Time
}

// CrashRecord counts the crashes of holders. It also names the message that a cautious holder is
// about to send.
type CrashRecord struct {
	// a process holds the lane, or the lane's last holder crashed or lost the lane
	IsOpen bool
	// number of holders in a row that found IsOpen set when they took the lane
	Crashes int64
	// message that a cautious holder named before it sent that message; 0 = none
	InFlightSeq     int64
	InFlightCrashes int64 // crashes of holders that had named the message InFlightSeq
	// fence of the holder that named InFlightSeq last; 0 = the attempt is over
	InFlightFence int64
}

// EpochEnd is the state of a lane whose epoch is over, or about to end.
type EpochEnd struct {
	IsClosed      bool // no process is allowed to hold the lane
	MovedRecorded bool // the messages with a copy are in Counts.Moved, and no longer in Counts.Dead
}

// Counts has the number of messages in each final stage, and the number of messages that moved to
// the next epoch.
type Counts struct {
	Delivered, Dead, Cancelled, Superseded, Discarded int64
	// scheduled or dead messages, copied to the next epoch
	Moved int64
}

// Total returns the number of messages that are final in this epoch, or have moved to the next
// epoch.
func (c Counts) Total() int64 {
	return c.Delivered + c.Dead + c.Cancelled + c.Superseded + c.Discarded + c.Moved
}

// DueLead says how long before the due time of a message a process takes the lane. So the process
// already holds the lane when the message becomes due.
const DueLead = 2 * time.Second

// crashLead replaces DueLead if the last holder may have crashed. The new holder then has to wait
// for the settle time of the last holder's request.
const crashLead = 20 * time.Second

func (t Tail) leadTime() time.Duration {
	if t.IsOpen {
		return crashLead
	}
	return DueLead
}

// HolderFence returns the fence of the process that holds the lane, or of a holder that crashed or
// lost the lane. It returns 0 if the lane is free.
func (t Tail) HolderFence() int64 {
	if t.IsOpen {
		return t.Fence
	}
	return 0
}

// DueAt returns the time at which the first held or scheduled message can be sent. It returns the
// zero time if there is no such message, or if all these messages wait until an operator resumes
// their keys.
func (t Tail) DueAt() time.Time {
	if t.NextDueAt.Before(weir.Forever) {
		return t.NextDueAt
	}
	return time.Time{}
}

// UpdateOp returns the operation that writes columns of tail, under the ETag with which tail was
// read. Use it only for a lane that no process can hold, because the lane is closed or its epoch is
// not open yet.
func (t Tail) UpdateOp(cells ...rows.Cell) storage.Op {
	return storage.Op{Kind: storage.Merge, Key: rows.TailKey, IfMatch: t.ETag,
		Values: rows.Values(cells...)}
}

func (t Tail) tailValues() map[string]any {
	return rows.Sparse(
		rows.Nonce.Is(t.Nonce), rows.Fence.Is(t.Fence), rows.CommitSeq.Is(t.CommitSeq),
		rows.Cursor.Is(t.Cursor),
		rows.Delivered.Is(t.Counts.Delivered), rows.Dead.Is(t.Counts.Dead),
		rows.Cancelled.Is(t.Counts.Cancelled), rows.Superseded.Is(t.Counts.Superseded),
		rows.Discarded.Is(t.Counts.Discarded), rows.Moved.Is(t.Counts.Moved),
		rows.NextDueAt.Is(t.NextDueAt), rows.NextUntriedAt.Is(t.NextUntriedAt),
		rows.LastReleasedAt.Is(t.LastReleasedAt), rows.RequestsSeen.Is(t.RequestsSeen),
		rows.PausedUntil.Is(t.PausedUntil), rows.PauseReason.Is(t.PauseReason),
		rows.PauseCount.Is(t.PauseCount),
		rows.PauseCause.Is(t.PauseCause),
		rows.RefusingSince.Is(t.RefusingSince), rows.ProbedBelow.Is(t.ProbedBelow),
		rows.SettleUntil.Is(t.SettleUntil),
		rows.Holder.Is(t.Holder), rows.LastError.Is(t.LastError),
		rows.LastErrorAt.Is(t.LastErrorAt),
		rows.LastDeliveredAt.Is(t.LastDeliveredAt), rows.AttemptingID.Is(t.AttemptingID),
		rows.AttemptingSince.Is(t.AttemptingSince),
		rows.IsOpen.Is(t.IsOpen), rows.Crashes.Is(t.Crashes), rows.InFlightSeq.Is(t.InFlightSeq),
		rows.InFlightCrashes.Is(t.InFlightCrashes), rows.InFlightFence.Is(t.InFlightFence),
		rows.IsClosed.Is(t.IsClosed), rows.MovedRecorded.Is(t.MovedRecorded),
		rows.SentBelow.Is(t.SentBelow),
		rows.Missing.Is(packList(t.Missing, maxMissing)),
		rows.Brakes.Is(packList(t.Brakes, maxTailBrakes)),
	)
}

func tailFrom(r storage.Row) Tail {
	v := r.Values
	return Tail{
		ETag: r.ETag, Nonce: rows.Nonce.Of(v), Fence: rows.Fence.Of(v),
		CommitSeq: rows.CommitSeq.Of(v),
		Cursor:    rows.Cursor.Of(v),
		Counts: Counts{Delivered: rows.Delivered.Of(v), Dead: rows.Dead.Of(v),
			Cancelled:  rows.Cancelled.Of(v),
			Superseded: rows.Superseded.Of(v), Discarded: rows.Discarded.Of(v),
			Moved: rows.Moved.Of(v)},
		RequestsSeen: rows.RequestsSeen.Of(v), SentBelow: rows.SentBelow.Of(v),
		DueState: DueState{rows.NextDueAt.Of(v), rows.NextUntriedAt.Of(v),
			rows.LastReleasedAt.Of(v)},
		CMSPause: CMSPause{PausedUntil: rows.PausedUntil.Of(v), PauseReason: rows.PauseReason.Of(v),
			PauseCount: rows.PauseCount.Of(v), PauseCause: rows.PauseCause.Of(v),
			RefusingSince: rows.RefusingSince.Of(v), ProbedBelow: rows.ProbedBelow.Of(v)},
		Missing:     unpackList[MissingContract](rows.Missing.Of(v)),
		Brakes:      unpackList[Brake](rows.Brakes.Of(v)),
		SettleUntil: rows.SettleUntil.Of(v),
		HolderReport: HolderReport{rows.Holder.Of(v), rows.LastError.Of(v), rows.LastErrorAt.Of(v),
			rows.LastDeliveredAt.Of(v), rows.AttemptingID.Of(v), rows.AttemptingSince.Of(v)},
		CrashRecord: CrashRecord{IsOpen: rows.IsOpen.Of(v), Crashes: rows.Crashes.Of(v),
			InFlightSeq: rows.InFlightSeq.Of(v), InFlightCrashes: rows.InFlightCrashes.Of(v),
			InFlightFence: rows.InFlightFence.Of(v)},
		EpochEnd: EpochEnd{IsClosed: rows.IsClosed.Of(v), MovedRecorded: rows.MovedRecorded.Of(v)},
	}
}

// packList returns the value of a column of tail with a list, at most the first elements of it;
// "" = the list is empty.
func packList[T any](list []T, most int) string {
	if len(list) == 0 {
		return ""
	}

	data, err := json.Marshal(list[:min(len(list), most)])
	if err != nil {
		return "" // this cannot happen: each time comes from storage or from a clock
	}

	return string(data)
}

// unpackList returns the list in a value of packList. It returns nil for a value that it cannot
// read: otherwise no process could read the lane's control rows.
func unpackList[T any](packed string) (list []T) {
	if packed == "" || json.Unmarshal([]byte(packed), &list) != nil {
		return nil
	}
	return list
}

// Brake is a rejection by the CMS that has made messages of several keys dead, with no delivery of
// their contract between. While it is closed, further messages with this rejection wait.
type Brake struct {
	Contract    string    `json:"contract"`
	Fingerprint string    `json:"fingerprint"`         // as in the lists of errors
	CMSStatus   int       `json:"cmsStatus,omitempty"` // 0 = the request could not be built
	Reason      string    `json:"reason"`              // normalised; see weir.Fingerprint
	Since       time.Time `json:"since"`               // time at which it was closed
	// messages of the lane that wait, with those behind them
	Messages int64 `json:"messages"`
	Keys     int64 `json:"keys"` // number of ordering keys of these messages
}

// maxTailBrakes bounds the brakes in tail, because each commit writes tail.
const maxTailBrakes = 20

// Recovery is a delivery by a lane that had paused for the CMS. It shows to other lanes that their
// pauses of the same cause are over.
type Recovery struct {
	Contract string    // contract of the delivered message
	At       time.Time // time at which the attempt began that delivered the message
}

// The causes of pauses for the CMS (CMSPause.PauseCause).
const (
	// CauseAway means that the CMS was away. A delivery of any contract shows that it is back.
	CauseAway     = "away"
	refusedPrefix = "refused "
)

// CauseRefused returns the cause of a pause in which the CMS refuses messages of a contract. Only a
// delivery of that contract shows that the CMS takes messages again.
func CauseRefused(contract string) string { return refusedPrefix + contract }

// Ends reports whether the recovery ends the pause in tail: the causes match, and the attempt that
// was delivered began after the lane's last failure.
func (r Recovery) Ends(t Tail) bool {
	contract, isRefused := strings.CutPrefix(t.PauseCause, refusedPrefix)
	isSame := t.PauseCause == CauseAway || isRefused && contract == r.Contract
	return isSame && !t.PausedUntil.IsZero() && r.At.After(t.LastErrorAt)
}

// SaveRecovery stores a recovery for other processes, in place of an earlier one.
func (s *Store) SaveRecovery(ctx context.Context, r Recovery) error {
	_, err := s.Table.Transact(ctx, rows.MetaPartition,
		[]storage.Op{{Kind: storage.Upsert, Key: rows.RecoveredKey,
			Values: rows.Values(rows.Contract.Is(r.Contract), rows.RecoveredAt.Is(r.At))}})
	return err
}

// ReadRecovery reads the last recovery that a process has stored. It returns the zero Recovery if
// there is none, or if its time lies ahead because the clock of that process was wrong.
func (s *Store) ReadRecovery(ctx context.Context) (Recovery, error) {
	row, err := s.Table.Get(ctx, rows.MetaPartition, rows.RecoveredKey)
	if storage.Is(err, storage.NotFound) {
		return Recovery{}, nil
	}
	if err != nil {
		return Recovery{}, err
	}

	r := Recovery{Contract: rows.Contract.Of(row.Values), At: rows.RecoveredAt.Of(row.Values)}
	if r.At.After(s.Now().Add(2 * ClockSkew)) {
		return Recovery{}, nil
	}

	return r, nil
}
