package replay

import (
	"cmp"
	"encoding/json"
	"slices"

	"weir/internal/lane/jobrow"
	"weir/internal/lane/lists"
)

// checkpoint is a job's stored progress, from which another process can continue the job. The names
// of the fields must not change, because the stored JSON has them.
type checkpoint struct {
	// Until is the latest time of death, in microseconds, of the messages that Job.Matched counts.
	// It is 0 before these messages are counted.
	Until int64
	Lane  int // index of the present lane in jobRun.lanes
	// Seq is the job's position in the present lane. The job takes the keys in the order of their
	// first dead messages. Seq is the sequence number of the first dead message of the last key
	// that the job took; 0 = no key yet.
	Seq  int64
	Next []deadMessage // the present portion; perhaps some of its replays were already requested
	// replayed messages that are not final yet, sorted by lane and sequence number
	Open []deadMessage
}

// deadMessage identifies one death of a message. It has the time of death, because the message can
// die again.
type deadMessage struct {
	lane   int
	seq    int64
	diedAt int64 // time of death in microseconds of Unix time
}

// diedAtMicros returns the time of death in microseconds of Unix time.
func diedAtMicros(d lists.DeadRow) int64 { return d.DiedAt.UnixMicro() }

// includes reports whether a dead message belongs to the job. A message that died after Until does
// not belong to the job, because the job itself can have replayed that message.
func (p *checkpoint) includes(f Filter, d lists.DeadRow) bool {
	return diedAtMicros(d) <= p.Until && selectionOf(f).HasDead(d)
}

// MarshalJSON implements json.Marshaler. It writes a short form, because one row can store up to
// maxOpen messages.
func (i deadMessage) MarshalJSON() ([]byte, error) {
	return json.Marshal([3]int64{int64(i.lane), i.seq, i.diedAt})
}

// UnmarshalJSON implements json.Unmarshaler.
func (i *deadMessage) UnmarshalJSON(data []byte) error {
	var v [3]int64
	err := json.Unmarshal(data, &v)
	*i = deadMessage{int(v[0]), v[1], v[2]}
	return err
}

func compareLog(a, b deadMessage) int {
	return cmp.Or(cmp.Compare(a.lane, b.lane), cmp.Compare(a.seq, b.seq))
}

// isOpen reports whether Open has the message with the same time of death.
func (p *checkpoint) isOpen(i deadMessage) bool {
	at, found := slices.BinarySearchFunc(p.Open, i, compareLog)
	return found && p.Open[at] == i
}

func (p *checkpoint) addOpen(i deadMessage) {
	if at, found := slices.BinarySearchFunc(p.Open, i, compareLog); !found {
		p.Open = slices.Insert(p.Open, at, i)
	}
}

func encodeJob(j Job, p checkpoint) (jobrow.Row, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return jobrow.Row{}, err
	}
	remembered, err := json.Marshal(p)
	return jobrow.Row{ID: j.ID, Text: string(text), Checkpoint: string(remembered)}, err
}

func decodeJob(r jobrow.Row) (j Job, p checkpoint, err error) {
	if err = json.Unmarshal([]byte(r.Text), &j); err == nil && r.Checkpoint != "" {
		err = json.Unmarshal([]byte(r.Checkpoint), &p)
	}
	return j, p, err
}
