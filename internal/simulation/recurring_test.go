package simulation_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/internal/lane"
	"weir/internal/recur"
	"weir/internal/wake"
	"weir/internal/weir"
)

// In some seeds there is a recurring message, and every instance runs the schedule of this message.
// Each occurrence must lead to exactly one message, whatever happens to the instances. There is
// only one schedule, because a seed could not decide the order of two occurrences in the same
// nanosecond.

const recurring, recurringKey = "recurring", "recurring"

// recurringLog implements recur.Log.
type recurringLog struct {
	*lane.Appender
	lane.Messages
}

// accepter takes the place of the contracts, and accepts each body.
type accepter struct{}

func (accepter) Accept(_ context.Context, contentType string, body []byte) (weir.Message, error) {
	key := recurringKey
	if string(body) == runBody {
		key = runsKey
	}
	return weir.Message{Contract: "article", Key: key, ContentType: contentType, Body: body}, nil
}

func recurringBody(due time.Time) string {
	return fmt.Sprintf("<r due='%s'/>", due.UTC().Format(time.RFC3339))
}

func runnerOf(store *recur.Store, log recurringLog, waker wake.Ringer,
	draw func() float64) *recur.Runner {
	return recur.New(recur.Config{
		Store: store, Log: log,
		Contracts: accepter{}, Waker: waker, Now: store.Now, Rand: draw, Logger: discardLog,
	})
}

// putSchedule creates the schedule, as a user does, before the instances start.
func (w *world) putSchedule(ctx context.Context) error {
	if w.every == 0 {
		return nil
	}

	log := recurringLog{lane.NewAppender(w.check.store, discardLog), w.check.store.Messages()}
	r := runnerOf(&recur.Store{Table: w.account.Table(), Bodies: w.check.store.Bodies,
		Now: time.Now}, log, noRinger{}, w.dice.newSource("schedule"))
	_, _, err := r.Put(ctx, recurring, recur.Definition{
		Cron: fmt.Sprintf("@every %s", w.every), Message: []byte("<r due='{{.DueAt}}'/>"),
		Missed: recur.All,
		End:    w.recursUntil(),
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

// checkRecurring checks that the schedule has appended one message for each occurrence, and no
// other messages.
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
		c.addViolation("recurring", "%d messages for %d occurrences: %s", len(got), len(want),
			strings.Join(got, " "))
	}
}

// In some seeds an operator runs another schedule by hand, and sometimes deletes it and creates it
// again. All its messages are alike. Each run that was answered must have a message of its own.
const (
	runsSchedule, runsKey = "by hand", "run"
	runBody               = "<r/>"
)

func (s *settings) drawRuns(d *dice) {
	if d.drawChance("runs by hand", 0.25) {
		s.runs = 2 + d.drawBelow("runs", 8)
	}
}

// startRuns starts the operator of the schedule that is run by hand.
func (w *world) startRuns(ctx context.Context) {
	if w.settings.runs == 0 {
		return
	}

	w.upstream.Go(func() {
		for range w.settings.runs {
			if w.dice.drawChance("created anew", 0.4) {
				w.askRunner(ctx, "delete", func(ctx context.Context, r *recur.Runner) error {
					return r.Delete(ctx, runsSchedule, recur.Condition{})
				})
			}

			w.askRunner(ctx, "create", func(ctx context.Context, r *recur.Runner) error {
				_, _, err := r.Put(ctx, runsSchedule,
					recur.Definition{Cron: "0 0 1 1 *", Message: []byte(runBody)},
					recur.Condition{})
				return err
			})

			w.askRunner(ctx, "run", func(ctx context.Context, r *recur.Runner) error {
				receipt, _, err := r.Run(ctx, runsSchedule)
				w.check.noteRun(receipt.Message.ID, err)
				return err
			})

			time.Sleep(w.dice.drawBetween("until the next run", time.Second, 15*time.Second))
		}
	})
}

// askRunner asks a random instance once. The operator does not look at the answer: a request that
// failed may have been done.
func (w *world) askRunner(ctx context.Context, verb string,
	do func(context.Context, *recur.Runner) error) {
	p := w.slots[w.dice.drawBelow("runs to", len(w.slots))].currentProcess()
	_, err := askProcess(ctx, p, verb+" by hand", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, do(ctx, p.runner)
	})
	w.trace.addLine("%s: %s by hand: %v", p.name, verb, err)
	if err == nil {
		p.lookAtLane(lane.Of(runsKey, w.lanes))
	}
}

// noteRun records the answer to a run. A run that finds the message of another run is refused.
func (c *checker) noteRun(id weir.ID, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	switch kind := weir.KindOf(err); {
	case err == nil:
		c.counts.Runs++
		c.runs = append(c.runs, id)
	case kind == weir.Conflict || kind == weir.Invalid:
		c.addViolation("recurring", "a run was refused: %v", err)
	}
}

// checkRuns checks that each run that was answered has a message of its own in the log.
func (c *checker) checkRuns() {
	seen := map[weir.ID]bool{}
	for _, id := range c.runs {
		l := c.laneOf(id.Lane)
		isFiled := id.Seq >= 1 && id.Seq <= int64(len(l.log)) && l.log[id.Seq-1].key == runsKey
		if seen[id] || !isFiled {
			c.addViolation("recurring",
				"a run was answered with message %d of lane %d: another run's %v, filed %v",
				id.Seq, id.Lane, seen[id], isFiled)
		}

		seen[id] = true
	}
}
