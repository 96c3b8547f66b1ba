// Package verify compares the control rows of a lane with the rows of its messages. If there is a
// difference, the storage account was probably copied while Weir ran.
//
// Each transaction that adds a message, or makes a message final, also writes a control row. So the
// control rows and the messages of the original account agree. A tool that copies an account row by
// row reads the control rows first, and the messages seconds or hours later. The copy's head can
// then give out sequence numbers that messages already have, so each append fails. The copy can
// also have final messages that its counters still count as waiting.
package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"weir/internal/lane"
	"weir/internal/lane/lists"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Report compares one lane's counters with its rows.
type Report struct {
	Lane     int
	Accepted int64 // messages ever accepted, according to head
	Waiting  int64 // waiting messages, according to the counters
	Stored   int64 // messages of the log that have a row; retention removes rows

	StoredWaiting int64 // messages whose row has no final stage
	// messages whose sequence numbers head would give out again, so appends fail
	BehindEnd int64
	Missing   []int64 // sequence numbers from the cursor on that have no row
	// sequence numbers of held or scheduled messages without a row, or with a final row
	Stray       []int64
	WithoutBody []int64 // sequence numbers of waiting messages whose body is missing
	// sequence numbers of scheduled messages that no row releases at their due time
	WithoutDue []int64
	Damaged    []lane.DamagedRow
	// a control row changed during the comparison, so the other fields can be wrong
	InUse bool
}

// IsWhole reports whether the counters and the rows agree.
func (r Report) IsWhole() bool {
	return r.BehindEnd == 0 && r.StoredWaiting == r.Waiting && len(r.Missing) == 0 &&
		len(r.Stray) == 0 &&
		len(r.WithoutBody) == 0 && len(r.WithoutDue) == 0 && len(r.Damaged) == 0
}

// Problems returns a sentence for each difference.
func (r Report) Problems() (found []string) {
	if r.BehindEnd > 0 {
		found = append(found, fmt.Sprintf("%d messages stand behind the end of the log: no message can be accepted",
			r.BehindEnd))
	}

	if r.StoredWaiting != r.Waiting {
		found = append(found, fmt.Sprintf("%d messages wait by the counters, and %d by their rows",
			r.Waiting, r.StoredWaiting))
	}

	if len(r.Missing) > 0 {
		found = append(found, fmt.Sprintf("%d messages have no row: %s", len(r.Missing),
			listSome(r.Missing)))
	}

	if len(r.Stray) > 0 {
		found = append(found, fmt.Sprintf("%d messages are queued or scheduled, and do not wait by their rows: %s",
			len(r.Stray), listSome(r.Stray)))
	}

	if len(r.WithoutBody) > 0 {
		found = append(found, fmt.Sprintf("%d waiting messages have no body: %s",
			len(r.WithoutBody), listSome(r.WithoutBody)))
	}

	if len(r.WithoutDue) > 0 {
		found = append(found, fmt.Sprintf("%d scheduled messages have no row of their due time, so none is sent: %s",
			len(r.WithoutDue), listSome(r.WithoutDue)))
	}

	for i, d := range r.Damaged {
		if i == maxListed {
			found = append(found,
				fmt.Sprintf("%d further rows are damaged", len(r.Damaged)-maxListed))
			break
		}

		found = append(found, fmt.Sprintf("row %s of partition %s is damaged: %v", d.Key,
			d.Partition, d.Err))
	}

	return found
}

// maxListed is the largest number of sequence numbers that a problem names.
const maxListed = 10

func listSome(seqs []int64) string {
	text := "sequence"
	for _, seq := range seqs[:min(len(seqs), maxListed)] {
		text += fmt.Sprintf(" %d", seq)
	}

	if len(seqs) > maxListed {
		text += " …"
	}

	return text
}

// waitingPages is the largest number of pages of held messages that findMissing reads. The same
// limit applies to the pages of due times. A page has at most a thousand rows.
const waitingPages = 1000

// CompareLane reads all messages of a lane, and compares them with the lane's control rows. It
// writes nothing.
func CompareLane(ctx context.Context, s *lane.Store, number int) (Report, error) {
	before, err := s.ReadControl(ctx, number)
	if err != nil {
		return Report{}, err
	}

	r := Report{Lane: number, Accepted: before.Head.Next - 1, Waiting: before.WaitingCount()}
	open, scheduled := map[int64]bool{}, map[int64]bool{}
	if err := r.readLog(ctx, s, before, open, scheduled); err != nil {
		return r, err
	}

	if r.BehindEnd, err = countBehind(ctx, s, number, before.Head.Next); err != nil {
		return r, err
	}

	if err := r.findMissing(ctx, s, before, open, scheduled); err != nil {
		return r, err
	}

	if r.Damaged, err = s.FindDamaged(ctx, number); err != nil {
		return r, err
	}

	after, err := s.ReadControl(ctx, number)
	r.InUse = after.Head.ETag != before.Head.ETag || after.Tail.ETag != before.Tail.ETag

	return r, err
}

// readLog counts the messages of the log, and fills in WithoutBody. It fills the map "open" with
// the sequence numbers of all waiting messages, and of all messages from the cursor on, and the map
// "scheduled" with those of the scheduled ones.
func (r *Report) readLog(ctx context.Context, s *lane.Store, c lane.Control, open,
	scheduled map[int64]bool) error {
	for scan := (lists.Reader{Store: s}).ScanBackward(r.Lane, c.Head.Next, c.Head.Next); scan.Before > 1; {
		entries, err := scan.Read(ctx)
		if err != nil {
			return err
		}

		for _, e := range entries {
			r.Stored++
			isWaiting := !e.Status().Stage.Final()
			if isWaiting || e.Seq() >= c.Tail.Cursor {
				open[e.Seq()] = true
			}

			if !isWaiting {
				continue
			}

			r.StoredWaiting++
			if e.Stage == weir.Scheduled {
				scheduled[e.Seq()] = true
			}

			if !e.IsBodyInBlob() {
				continue
			}

			if _, err := s.Messages().LoadMessage(ctx, e.Message.ID); isGone(err) {
				r.WithoutBody = append(r.WithoutBody, e.Seq())
			} else if err != nil {
				return err
			}
		}
	}

	slices.Sort(r.WithoutBody)
	return nil
}

// isGone reports whether an error means that a message or its body does not exist.
func isGone(err error) bool {
	var e *weir.Error
	return storage.Is(err, storage.NotFound) || errors.As(err, &e) && e.Kind == weir.NotFound
}

// countBehind counts the messages whose sequence number is next or greater. It reads a hundred
// sequence numbers at a time, and stops when none of the hundred has a message.
func countBehind(ctx context.Context, s *lane.Store, number int, next int64) (count int64,
	err error) {
	const group = 100
	for from := next; ; from += group {
		seqs := make([]int64, 0, group)
		for seq := from + group - 1; seq >= from; seq-- {
			seqs = append(seqs, seq)
		}

		entries, _, err := s.ReadMany(ctx, number, seqs)
		if err != nil || len(entries) == 0 {
			return count, err
		}

		count += int64(len(entries))
	}
}

// findMissing fills in Missing, Stray and WithoutDue. The parameters open and scheduled have the
// sequence numbers that readLog found.
func (r *Report) findMissing(ctx context.Context, s *lane.Store, c lane.Control, open,
	scheduled map[int64]bool) error {
	for seq := max(c.Tail.Cursor, 1); seq < c.Head.Next; seq++ {
		if !open[seq] {
			r.Missing = append(r.Missing, seq)
		}
	}

	waiting, err := lists.Reader{Store: s}.ReadWaiting(ctx, r.Lane, waitingPages)
	if err != nil {
		return err
	}

	for _, h := range waiting.Held {
		if !open[h.Seq] {
			r.Stray = append(r.Stray, h.Seq)
		}
	}

	for _, d := range waiting.DueTimes {
		if !open[d.Seq] {
			r.Stray = append(r.Stray, d.Seq)
		}
		delete(scheduled, d.Seq)
	}

	slices.Sort(r.Stray)
	if waiting.IsComplete {
		r.WithoutDue = slices.Sorted(maps.Keys(scheduled))
	}

	return nil
}
