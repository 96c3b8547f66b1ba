package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"weir/internal/lane/outbox"
	"weir/internal/weir"
)

// webhookEvent is the body of a request to a receiver.
type webhookEvent struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      any       `json:"data"`
}

// messageData is the data of an event about a message. The message's body is never included.
type messageData struct {
	ID           string     `json:"id"`
	Stage        weir.Stage `json:"stage"`
	Contract     string     `json:"contract"`
	Key          string     `json:"key"`
	Version      string     `json:"version,omitempty"`
	Lane         int        `json:"lane"`
	Sequence     int64      `json:"sequence"`
	Attempts     int        `json:"attempts"`
	Reason       string     `json:"reason,omitempty"` // reason of the death or of the discard
	CMSStatus    int        `json:"cmsStatus,omitempty"`
	SupersededBy string     `json:"supersededBy,omitempty"`
	AcceptedAt   time.Time  `json:"acceptedAt"`
	DeliverAt    *time.Time `json:"deliverAt,omitempty"`
	FinishedAt   time.Time  `json:"finishedAt"`
}

// encodeMessageEvent returns the webhook-id and the body of an event which says that a message has
// become final. It takes the stage and the time from the event's row, because a replay can have
// changed the message in the meantime.
func encodeMessageEvent(m outbox.Event, st weir.Status) (id string, body []byte, err error) {
	public := st.Message.Public().String()
	data := messageData{
		ID: public, Stage: m.Stage, Contract: st.Message.Contract, Key: st.Message.Key,
		Version: st.Message.Version,
		Lane:    st.Message.ID.Lane, Sequence: st.Message.ID.Seq, Attempts: st.AttemptCount,
		CMSStatus:  st.CMSStatus,
		AcceptedAt: st.Message.AcceptedAt.UTC(), FinishedAt: m.At,
	}

	switch m.Stage {
	case weir.Dead:
		data.Reason = st.LastError
	case weir.Discarded:
		data.Reason = st.DiscardReason
	case weir.Superseded:
		data.SupersededBy = st.SupersededBy
	}

	if due := st.Message.DueAt; !due.IsZero() {
		data.DeliverAt = &due
	}

	body, err = json.Marshal(webhookEvent{m.Type, m.At, data})

	// The message's id contains a nonce, so events of different installations have different
	// webhook-ids.
	sum := sha256.Sum256([]byte(public + " " + m.Key))

	return "evt_" + hex.EncodeToString(sum[:16]), body, err
}

// encodeEvent returns the body of an event that is not about a message.
func encodeEvent(kind string, at time.Time, data any) ([]byte, error) {
	return json.Marshal(webhookEvent{kind, at.UTC().Truncate(time.Microsecond), data})
}
