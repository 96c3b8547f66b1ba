package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"weir/internal/weir"
)

// Message is the state of a message.
type Message struct {
	ID       string     `json:"id"`
	Stage    weir.Stage `json:"stage"`
	Contract string     `json:"contract"`
	// name of the upstream that sent the message
	Upstream string `json:"upstream,omitempty"`
	Key      string `json:"key"`
	Lane     int    `json:"lane"`
	Sequence int64  `json:"sequence"`
	Version  string `json:"version,omitempty"`
	// id of the batch that the message was a part of
	Batch         string    `json:"batch,omitempty"`
	BatchPart     int       `json:"batchPart,omitempty"` // the part's place in the batch, from 1
	AttemptCount  int       `json:"attempts"`
	AcceptedAt    time.Time `json:"acceptedAt"`
	DeliverAt     time.Time `json:"deliverAt,omitzero"`
	DeliveredAt   time.Time `json:"deliveredAt,omitzero"`
	FinishedAt    time.Time `json:"finishedAt,omitzero"`
	NextAttemptAt time.Time `json:"nextAttemptAt,omitzero"`
	// RetriesUntil is the time until which a retrying message stays so, unless the CMS takes or
	// rejects it.
	RetriesUntil time.Time `json:"retriesUntil,omitzero"`
	LastError    string    `json:"lastError,omitempty"`
	CMSStatus    int       `json:"cmsStatus,omitempty"`
	SupersededBy string    `json:"supersededBy,omitempty"`
	// VersionWarning is the reason why a version is suspicious; "" = the version is plausible. The
	// version is that of this message, or of the message that superseded it.
	VersionWarning string `json:"versionWarning,omitempty"`
	// Shown has values from the body to send. The keys are the names that the contract gives to the
	// values.
	Shown          map[string]string `json:"shown,omitempty"`
	DiscardAskedAt time.Time         `json:"discardAskedAt,omitzero"`
	DiscardReason  string            `json:"discardReason,omitempty"`
	// time at which a discarded message had become dead
	DiedAt time.Time `json:"diedAt,omitzero"`
	// time at which the content was erased on demand
	ErasedAt      time.Time `json:"erasedAt,omitzero"`
	Edited        Edit      `json:"edited,omitzero"`
	Replays       int       `json:"replays,omitempty"`
	ReplayAskedAt time.Time `json:"replayAskedAt,omitzero"`
	ReplayForced  bool      `json:"replayForced,omitempty"`
	ReplayRefused string    `json:"replayRefused,omitempty"`
	// position in its key's queue, from 1
	Position   int       `json:"position,omitempty"`
	ExpectedAt time.Time `json:"expectedAt,omitzero"` // estimated time of sending
	// why the message waits, as a text for people
	WaitsFor string `json:"waitsFor,omitempty"`
	// Uncounted has the attempts of the message's lane that counted for no message, while this
	// message waited for its first attempt. Like Position it is set only if the caller asks for it.
	Uncounted Uncounted `json:"uncounted,omitzero"`
	// AttemptLog has the attempts. If there are more than 20, it has the first 10 and the last 10.
	AttemptLog []Attempt `json:"attemptLog,omitempty"`
}

// Uncounted has attempts that count for no message, because the CMS was away or refused everything.
type Uncounted struct {
	Attempts int64 `json:"attempts"`
	Status   int   `json:"status,omitempty"` // the last status that the CMS answered; 0 = no answer
}

// Sentence returns the note on the attempts in the story of a message; "" = there were none.
func (u Uncounted) Sentence() string {
	if u.Attempts == 0 {
		return ""
	}

	answer, attempts := "did not answer", "attempts"
	if u.Status != 0 {
		answer = fmt.Sprint("answered ", u.Status)
	}

	if u.Attempts == 1 {
		attempts = "attempt"
	}

	return fmt.Sprintf("meanwhile the CMS %s: %d %s of its lane did not count", answer,
		u.Attempts, attempts)
}

// longWait is the time between acceptance and the first attempt from which the wait needs a reason.
const longWait = 5 * time.Second

// FirstLongWait returns the time from which the message could be sent, and the time of its first
// attempt. It returns false if that attempt is not known, or came soon.
func (m *Message) FirstLongWait() (from, to time.Time, isLong bool) {
	if len(m.AttemptLog) == 0 || m.AttemptLog[0].Number != 1 {
		return time.Time{}, time.Time{}, false
	}

	from, to = m.AcceptedAt, m.AttemptLog[0].At
	if m.DeliverAt.After(from) {
		from = m.DeliverAt
	}

	return from, to, to.Sub(from) >= longWait
}

// Edit describes an edited body, which is sent in place of the accepted body. The zero Edit means
// that there is no edited body.
type Edit struct {
	At   time.Time `json:"at"`
	Note string    `json:"note,omitempty"`
}

// Exists reports whether there is an edited body.
func (e Edit) Exists() bool { return !e.At.IsZero() }

// Attempt is an attempt to deliver a message.
type Attempt struct {
	Number   int          `json:"number"`
	At       time.Time    `json:"at"`
	Duration Milliseconds `json:"durationMs"`
	Outcome  weir.Outcome `json:"outcome"`
	Status   int          `json:"status,omitempty"`
	Reason   string       `json:"reason,omitempty"`
	Answer   string       `json:"answer,omitempty"` // the first 2 KiB of the CMS's answer
	Steps    []Step       `json:"steps,omitempty"`  // requests of a chain; nil = a single request
}

// Step is one request of a chain.
type Step struct {
	Name     string       `json:"name"`
	Duration Milliseconds `json:"durationMs"`
	Status   int          `json:"status,omitempty"`
	// why the chain began again after this step; empty = no restart
	Reason string `json:"reason,omitempty"`
}

// Milliseconds is a duration. In JSON it is a whole number of milliseconds, rounded down.
type Milliseconds time.Duration

// MarshalJSON implements json.Marshaler.
func (d Milliseconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(d).Milliseconds())
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *Milliseconds) UnmarshalJSON(data []byte) error {
	var n int64
	if err := json.Unmarshal(data, &n); err != nil {
		return err
	}
	*d = Milliseconds(time.Duration(n) * time.Millisecond)
	return nil
}

// NewMessage returns the JSON form of a message's state.
func NewMessage(st weir.Status) Message {
	m := st.Message
	out := Message{
		ID: m.Public().String(), Stage: st.Stage, Contract: m.Contract, Upstream: m.Upstream,
		Key:  m.Key,
		Lane: m.ID.Lane, Sequence: m.ID.Seq, Version: m.Version, Batch: m.Batch,
		BatchPart:    m.BatchPart,
		AttemptCount: st.AttemptCount, AcceptedAt: m.AcceptedAt, DeliverAt: m.DueAt,
		FinishedAt: st.FinishedAt, NextAttemptAt: st.NextAttemptAt, CMSStatus: st.CMSStatus,
		SupersededBy: st.SupersededBy, VersionWarning: st.VersionWarning,
		DiscardAskedAt: st.DiscardAskedAt, DiscardReason: st.DiscardReason, DiedAt: st.DiedAt,
		ErasedAt: st.ErasedAt, Shown: m.Shown,
		LastError: st.LastError, Replays: st.Message.Replays,
		ReplayAskedAt: st.ReplayAskedAt, ReplayForced: st.ReplayForced,
		ReplayRefused: st.ReplayRefused,
	}

	if !st.EditedAt.IsZero() {
		out.Edited = Edit{st.EditedAt, st.EditNote}
	}

	if st.Stage == weir.Retrying {
		out.RetriesUntil = st.RetryUntil
	}

	if st.Stage == weir.Delivered {
		out.DeliveredAt = out.FinishedAt
	}

	for _, a := range st.Attempts {
		out.AttemptLog = append(out.AttemptLog,
			Attempt{a.Number, a.At.UTC(), Milliseconds(a.Duration), a.Outcome, a.Status,
				a.Reason, a.Body, newSteps(a.Steps)})
	}

	return out
}

func newSteps(steps []weir.Step) (out []Step) {
	for _, s := range steps {
		out = append(out, Step{s.Name, Milliseconds(s.Duration), s.Status, s.Reason})
	}
	return out
}

// MessageLine is a message in a list.
type MessageLine struct {
	Message
	Size int `json:"size"` // size of the body to send, in bytes
}

// MessageList is one page of a search, newest message first.
type MessageList struct {
	Messages []MessageLine `json:"messages"`
	Looked   int           `json:"looked"` // number of rows that were read
	// number of bodies that were too large to search
	NotSearched int  `json:"notSearched,omitempty"`
	Complete    bool `json:"complete"` // all rows were read
	// token for the next page; "" = this is the last page
	Continue string `json:"continue,omitempty"`
}

// ShownNames returns the names of the values that messages show, sorted.
func ShownNames(messages []MessageLine) []string {
	names := map[string]bool{}
	for i := range messages {
		for name := range messages[i].Shown {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Receipt is the answer to an accepted post.
type Receipt struct {
	ID         string     `json:"id"`
	Stage      weir.Stage `json:"stage"`
	Key        string     `json:"key"`
	Lane       int        `json:"lane"`
	Sequence   int64      `json:"sequence"`
	AcceptedAt time.Time  `json:"acceptedAt"`
	// Duplicate is set if an earlier post had the same idempotency key. The receipt then describes
	// the message of that earlier post.
	Duplicate bool      `json:"duplicate"`
	DeliverAt time.Time `json:"deliverAt,omitzero"`
	// a danger of the request, such as a wait without a key
	Warning string `json:"warning,omitempty"`
	// origin of DeliverAt: "header", "query" or "message"
	From string `json:"deliverAtFrom,omitempty"`
}

// ErrorList has the causes of dead messages. The cause with the latest death comes first.
type ErrorList struct {
	Errors   []ErrorCause `json:"errors"`
	Looked   int          `json:"looked"`   // number of dead messages that were read
	Complete bool         `json:"complete"` // all dead messages were read
}

// ErrorCause describes the dead messages with one fingerprint.
type ErrorCause struct {
	Fingerprint string `json:"fingerprint"`
	Contract    string `json:"contract"`
	CMSStatus   int    `json:"cmsStatus,omitempty"` // 0 = the CMS did not answer
	// the reason, normalised; see weir.Fingerprint
	Message string      `json:"message"`
	Count   int         `json:"count"`   // number of messages
	Keys    int         `json:"keys"`    // number of different keys of the messages
	FirstAt time.Time   `json:"firstAt"` // time of the first death
	LastAt  time.Time   `json:"lastAt"`  // time of the last death
	Sample  ErrorSample `json:"sample"`
}

// ErrorSample is one message of an ErrorCause: the message with the latest death.
type ErrorSample struct {
	ID     string `json:"id,omitempty"` // "" = retention has removed the message meanwhile
	Key    string `json:"key"`
	Reason string `json:"reason"`
}
