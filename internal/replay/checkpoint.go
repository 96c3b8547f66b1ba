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
	Until int64 // latest death among the messages in Job.Matched, see diedAtMicros; 0 = not counted yet
	Lane  int   // index, among the job's lanes, of the lane that the walk has reached
	// Seq is the position in that lane. Of each key whose first dead message is at or before Seq, a batch already had
	// that message.
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
// because the job may have replayed the message before.
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
