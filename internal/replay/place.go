package replay

import (
	"cmp"
	"encoding/json"
	"slices"

	"weir/internal/lane"
)

// place is what a runner remembers of a job, so that another can go on.
type place struct {
	Until int64  // the last death there was when Job.Matched was counted; 0 = it was not yet
	Lane  int    // of those concerned, which one it is at
	Seq   int64  // there: every key has begun its turn whose first message stands up to here
	Next  []item // these have their turn now: some of them may have had it
	Open  []item // replayed, and not final when last looked at; sorted
}

// item is a message that was dead at a moment.
type item struct {
	lane int
	seq  int64
	died int64 // see diedAt: it is dead again when it has another moment
}

// diedAt is a moment of death as a place has it, in microseconds of the Unix epoch.
func diedAt(d lane.DeadRow) int64 { return d.DiedAt.UnixMicro() }

// means says whether a dead message is the job's. One that died later is not: it may be
// one of its own that died again.
func (p *place) means(f Filter, d lane.DeadRow) bool { return diedAt(d) <= p.Until && f.matches(d) }

// MarshalJSON keeps it short: five hundred of them stand in a row.
func (i item) MarshalJSON() ([]byte, error) {
	return json.Marshal([3]int64{int64(i.lane), i.seq, i.died})
}

// UnmarshalJSON implements json.Unmarshaler.
func (i *item) UnmarshalJSON(data []byte) error {
	var v [3]int64
	err := json.Unmarshal(data, &v)
	*i = item{int(v[0]), v[1], v[2]}
	return err
}

func byPlace(a, b item) int { return cmp.Or(cmp.Compare(a.lane, b.lane), cmp.Compare(a.seq, b.seq)) }

// isOpen says whether a message was replayed, and nothing has come of it yet.
func (p *place) isOpen(i item) bool {
	at, found := slices.BinarySearchFunc(p.Open, i, byPlace)
	return found && p.Open[at] == i
}

// opened puts a message among the open ones.
func (p *place) opened(i item) {
	if at, found := slices.BinarySearchFunc(p.Open, i, byPlace); !found {
		p.Open = slices.Insert(p.Open, at, i)
	}
}

// row gives job and place as they are stored.
func row(j Job, p place) (lane.Job, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return lane.Job{}, err
	}
	remembered, err := json.Marshal(p)
	return lane.Job{ID: j.ID, Text: string(text), Place: string(remembered)}, err
}

func fromRow(r lane.Job) (j Job, p place, err error) {
	if err = json.Unmarshal([]byte(r.Text), &j); err == nil && r.Place != "" {
		err = json.Unmarshal([]byte(r.Place), &p)
	}
	return j, p, err
}
