// Package verify compares the control rows of a lane with its messages. So it finds storage accounts that were copied
// while Weir ran.
//
// A transaction that adds a message, or makes a message final, writes a control row, too. So in an account in use the
// control rows and the messages agree. A tool that copies row by row reads the control rows first, and the messages
// seconds or hours later. In such a copy the log can have messages behind its end, which make each append fail. Other
// messages can be final although the counters still count them as waiting.
package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"weir/internal/lane"
	"weir/internal/overview/lists"
	"weir/internal/storage"
	"weir/internal/weir"
)

// Report compares one lane's counters with its rows.
type Report struct {
	Lane     int
	Accepted int64 // messages accepted since the lane began, as head counts them
	Waiting  int64 // messages that wait, by the counters
	Stored   int64 // messages of the log that have a row; retention has removed the rows of the others

	StoredWaiting int64   // messages whose row has no final stage
	BehindEnd     int64   // messages behind the end of the log: an append would need their numbers
	Missing       []int64 // sequence numbers from the cursor on that have no row
	Stray         []int64 // sequence numbers in a key's queue, or under a due time, of messages that do not wait
	WithoutBody   []int64 // sequence numbers of messages that wait and whose body is gone
	InUse         bool    // a control row changed during the comparison, so the other fields may not fit together
}

// IsWhole reports whether the counters and the rows agree, so that Weir can go on with the lane.
func (r Report) IsWhole() bool {
	return r.BehindEnd == 0 && r.StoredWaiting == r.Waiting && len(r.Missing) == 0 && len(r.Stray) == 0 &&
		len(r.WithoutBody) == 0
}

// Problems returns a sentence for each difference.
func (r Report) Problems() (found []string) {
	if r.BehindEnd > 0 {
		found = append(found, fmt.Sprintf("%d messages stand behind the end of the log: no message can be accepted",
			r.BehindEnd))
	}
	if r.StoredWaiting != r.Waiting {
		found = append(found, fmt.Sprintf("%d messages wait by the counters, and %d by their rows", r.Waiting,
			r.StoredWaiting))
	}
	if len(r.Missing) > 0 {
		found = append(found, fmt.Sprintf("%d messages have no row: %s", len(r.Missing), listSome(r.Missing)))
	}
	if len(r.Stray) > 0 {
		found = append(found, fmt.Sprintf("%d messages are queued or scheduled, and do not wait by their rows: %s",
			len(r.Stray), listSome(r.Stray)))
	}
	if len(r.WithoutBody) > 0 {
		found = append(found, fmt.Sprintf("%d waiting messages have no body: %s", len(r.WithoutBody),
			listSome(r.WithoutBody)))
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

// waitingPages is the largest number of pages of held messages that are read, and also the largest number of pages of
// due times. A page has a thousand rows at most.
const waitingPages = 1000

// CompareLane reads all messages of a lane, and compares them with its control rows. It writes nothing.
func CompareLane(ctx context.Context, s *lane.Store, number int) (Report, error) {
	before, err := s.ReadControl(ctx, number)
	if err != nil {
		return Report{}, err
	}
	r := Report{Lane: number, Accepted: before.Head.Next - 1, Waiting: before.WaitingCount()}
	open := map[int64]bool{}
	if err := r.readLog(ctx, s, before, open); err != nil {
		return r, err
	}
	if r.BehindEnd, err = countBehind(ctx, s, number, before.Head.Next); err != nil {
		return r, err
	}
	if err := r.findMissing(ctx, s, before, open); err != nil {
		return r, err
	}
	after, err := s.ReadControl(ctx, number)
	r.InUse = after.Head.ETag != before.Head.ETag || after.Tail.ETag != before.Tail.ETag
	return r, err
}

// readLog counts the messages of the log. It reads a body only if the message waits and its body is a blob. It adds to
// open the sequence numbers of the messages that wait, and of all messages from the cursor on.
func (r *Report) readLog(ctx context.Context, s *lane.Store, c lane.Control, open map[int64]bool) error {
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

// countBehind counts the messages from the sequence number next on. It reads groups of a hundred sequence numbers, and
// stops at the first group without a message.
func countBehind(ctx context.Context, s *lane.Store, number int, next int64) (count int64, err error) {
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

// findMissing fills in the fields Missing and Stray. The parameter open has the sequence numbers that readLog found.
func (r *Report) findMissing(ctx context.Context, s *lane.Store, c lane.Control, open map[int64]bool) error {
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
	}
	slices.Sort(r.Stray)
	return nil
}
