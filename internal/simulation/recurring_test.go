package simulation_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/internal/lane"
	"weir/internal/recur"
	"weir/internal/weir"
)

// In some seeds there is a recurring message, and every instance runs the schedule of this message. Each occurrence
// must lead to exactly one message, whatever happens to the instances. There is only one schedule, because a seed could
// not decide the order of two occurrences in the same nanosecond.

const recurring, recurringKey = "recurring", "recurring"

// recurringLog implements recur.Log.
type recurringLog struct {
	*lane.Appender
	lane.Messages
}

// accepter takes the place of the contracts, and accepts each body.
type accepter struct{}

func (accepter) Accept(_ context.Context, contentType string, body []byte) (weir.Message, error) {
	return weir.Message{Contract: "article", Key: recurringKey, ContentType: contentType, Body: body}, nil
}

func recurringBody(due time.Time) string {
	return fmt.Sprintf("<r due='%s'/>", due.UTC().Format(time.RFC3339))
}

func runnerOf(store *recur.Store, log recurringLog, bell recur.Tickets, draw func() float64) *recur.Runner {
	return recur.New(recur.Config{
		Store: store, Log: log,
		Contracts: accepter{}, Tickets: bell, Now: store.Now, Rand: draw, Logger: discardLog,
	})
}

type noTickets struct{}

func (noTickets) EnqueueAsync(int) {}

// putSchedule creates the schedule, as a user does, before the instances start.
func (w *world) putSchedule(ctx context.Context) error {
	if w.every == 0 {
		return nil
	}
	log := recurringLog{lane.NewAppender(w.check.store, discardLog), w.check.store.Messages()}
	r := runnerOf(&recur.Store{Table: w.account.Table(), Bodies: w.check.store.Bodies, Now: time.Now}, log, noTickets{},
		w.dice.newSource("schedule"))
	_, _, err := r.Put(ctx, recurring, recur.Definition{
		Cron: fmt.Sprintf("@every %s", w.every), Message: []byte("<r due='{{.DueAt}}'/>"), Missed: recur.All,
		End: w.recursUntil(),
	}, recur.Condition{})
	if err != nil {
		return err
	}
	return r.Close(ctx)
}

func (w *world) recursUntil() time.Time { return w.started.Add(w.trouble + w.every*2) }

// listOccurrences returns the bodies of all messages that the schedule must append.
func (w *world) listOccurrences() (bodies []string) {
	if w.every == 0 {
		return nil
	}
	for at := w.started.Add(w.every); at.Before(w.recursUntil()); at = at.Add(w.every) {
		bodies = append(bodies, recurringBody(at))
	}
	return bodies
}

// isRecurringDone reports whether the messages of all occurrences have been appended.
func (w *world) isRecurringDone(ctx context.Context) bool {
	if w.every == 0 {
		return true
	}
	s, err := (&recur.Store{Table: w.account.Table(), Bodies: w.account.Blobs(), Now: time.Now}).Get(ctx, recurring)
	return err == nil && s.NextAt.IsZero()
}

// checkRecurring checks that the schedule has appended one message for each occurrence, and no other messages.
func (c *checker) checkRecurring(ctx context.Context) {
	var got []string
	l := c.laneOf(lane.Of(recurringKey, c.w.lanes))
	for _, f := range l.log {
		if f.key != recurringKey {
			continue
		}
		e, err := c.store.ReadMessage(ctx, f.id.Lane, f.id.Seq)
		if err == nil {
			err = c.store.LoadBody(ctx, e)
		}
		if err != nil {
			c.addViolation("recurring", "seq %d: %v", f.id.Seq, err)
			return
		}
		got = append(got, string(e.Message.Body))
	}
	slices.Sort(got)
	want := c.w.listOccurrences()
	c.counts.Recurred += len(got)
	if !slices.Equal(got, want) {
		c.addViolation("recurring", "%d messages for %d occurrences: %s", len(got), len(want), strings.Join(got, " "))
	}
}
