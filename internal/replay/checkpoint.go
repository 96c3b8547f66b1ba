package replay

import (
	"cmp"
	"encoding/json"
	"slices"

	"weir/internal/overview/lists"
	"weir/internal/replay/jobrow"
)

// checkpoint is the stored progress of a job, from which another process can continue. Its field names are the names in
// the stored JSON.
type checkpoint struct {
	// Until is the time of the latest death among the messages that Job.Matched counts, see diedAtMicros. It is 0 if
	// the messages were not counted yet.
	Until int64
	Lane  int // index, among the job's lanes, of the lane that the job has reached
	// Seq is the position that the job has reached in that lane. If the first dead message of a key is at or before
	// Seq, that message was already in a batch.
	Seq  int64
	Next []deadMessage // the present batch; the replay of some of its messages may already have been requested
	Open []deadMessage // the open messages, sorted by lane and position
}

// deadMessage identifies a message by its position and the time of its death.
type deadMessage struct {
	lane   int
	seq    int64
	diedAt int64 // see diedAtMicros; it changes if the message dies again
}

// diedAtMicros returns a time of death in microseconds of the Unix epoch.
func diedAtMicros(d lists.DeadRow) int64 { return d.DiedAt.UnixMicro() }

// includes reports whether a dead message belongs to the job. A message that died after Until does not belong to it,
// because the job itself may have replayed that message before it died.
func (p *checkpoint) includes(f Filter, d lists.DeadRow) bool {
	return diedAtMicros(d) <= p.Until && matchesFilter(f, d)
}

// MarshalJSON implements json.Marshaler. The form is short, because a row has up to maxOpen messages.
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

// isOpen reports whether a message was replayed and is not final yet.
func (p *checkpoint) isOpen(i deadMessage) bool {
	at, found := slices.BinarySearchFunc(p.Open, i, compareLog)
	return found && p.Open[at] == i
}

// addOpen adds a message to Open, if Open does not have it.
func (p *checkpoint) addOpen(i deadMessage) {
	if at, found := slices.BinarySearchFunc(p.Open, i, compareLog); !found {
		p.Open = slices.Insert(p.Open, at, i)
	}
}

// encodeJob returns a job and its checkpoint as stored.
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
