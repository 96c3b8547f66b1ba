package simulation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"weir/internal/notify"
	"weir/internal/storage"
	"weir/internal/weir"
)

// When a message becomes final, Weir calls its callback with the stage, at least once. In some runs
// a receiver of events also gets an event for each dead message. The callbacks and the events must
// arrive despite all faults of processes, storage and receivers.

const (
	hookURL   = "https://hooks.test/done"
	deathsURL = "https://ops.test/deaths"
)

// mailKeys is the secret that signs the events.
var mailKeys = func() notify.Secret {
	s, err := notify.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		panic(err) // the secret is part of this test, so it is valid
	}
	return s
}()

// drawReceivers draws the share of messages with a callback, and whether a receiver gets an event
// for each dead message.
func (s *settings) drawReceivers(d *dice) {
	s.callbacks = []float64{0, 0, 0.2, 0.8}[d.drawBelow("callbacks", 4)]
	s.deaths = d.drawChance("deaths", 0.3)
}

// newNotifier returns the process's sender of events. The faults of its requests to the table are
// drawn separately from those of the rest of the process.
func (p *process) newNotifier() *notify.Sender {
	store := *p.store
	store.Table, store.Notifier = p.newTable("mail "), nil
	cfg := notify.Config{
		Store: &store, Leases: p.newLeases(), Transport: &hooks{p}, Now: p.now, Log: discardLog,
		Rand:      p.w.dice.newSource(p.name + " notify"),
		Callbacks: notify.Callbacks{AllowedHosts: []string{"hooks.test"}, Secret: mailKeys},
	}

	if p.w.deaths {
		cfg.Receivers = []notify.Receiver{{URL: deathsURL, Secret: mailKeys,
			Events: []string{notify.MessageDead}}}
	}

	return notify.New(cfg)
}

// hooks is a process's HTTP transport to the receivers of events. A receiver can be slow, can
// refuse an event, or can accept an event whose answer is then lost.
type hooks struct{ p *process }

func (h *hooks) RoundTrip(r *http.Request) (*http.Response, error) {
	p, w := h.p, h.p.w
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}

	// The dice need a name that is the same in each run with the same seed. So the name does not
	// contain the message's id, which differs from run to run.
	var about struct {
		Data struct{ Lane, Sequence int64 }
	}
	if err := json.Unmarshal(body, &about); err != nil {
		return nil, err
	}

	name := fmt.Sprint("hook ", r.URL.Host, about.Data.Lane, " ", about.Data.Sequence)
	w.check.noteTry(r)
	if !p.awaitRunning(name) {
		return nil, errLost
	}

	takes, kind := w.dice.drawBetween(name, 5*time.Millisecond, 200*time.Millisecond), 99
	if !w.isCalm() {
		kind = w.dice.drawBelow(name+" kind", 10)
	}

	if kind == 0 {
		takes = w.dice.drawBetween(name+" slow", 5*time.Second, 20*time.Second)
	}

	if !p.waitFor(r.Context(), takes) || !p.awaitRunning(name) {
		return nil, errLost
	}

	status := http.StatusNoContent
	switch kind {
	case 1:
		return nil, errRefused
	case 2:
		status = http.StatusInternalServerError
	case 3:
		status = http.StatusServiceUnavailable
	default:
		w.check.noteEvent(r, body)
	}

	if !p.waitFor(r.Context(), takes) || kind == 4 || !p.awaitRunning(name) {
		return nil, errLost
	}

	return &http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		Body: http.NoBody, Request: r}, nil
}

// noteTry is called when a process sends a request to a receiver.
func (c *checker) noteTry(r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tries[r.Header.Get("webhook-id")+" "+r.URL.String()]++
}

// checkRewritten checks that the rows of an event are written at most once after the event was put
// into the outbox for each request of the event. So the rows that a backlog costs do not depend on
// its length.
func (c *checker) checkRewritten(p *process, ops []storage.Op) {
	if !strings.HasPrefix(ops[0].Key, "n_") {
		return // the transaction makes a message final
	}

	for _, op := range ops {
		if !strings.HasPrefix(op.Key, "n_") || op.Kind != storage.Upsert {
			continue
		}

		to := deathsURL
		if strings.HasSuffix(op.Key, "_callback") {
			to = hookURL
		}

		id, _ := op.Values["ID"].(string)
		c.counts.Postponed++
		if c.tries[id+" "+to]--; c.tries[id+" "+to] < 0 {
			c.addViolation("rewritten", "%s writes the row %s again without a request of its event",
				p.name, op.Key)
		}
	}
}

// noteEvent is called when a receiver gets an event. It checks the event's signature and type, and
// compares the event's stage with the stage of the message (see checkTold).
func (c *checker) noteEvent(r *http.Request, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var event struct {
		Type string
		Data struct {
			ID    string
			Stage weir.Stage
		}
	}

	seconds, _ := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64)
	unread := json.Unmarshal(body, &event)
	id, err := weir.ParseID(event.Data.ID)
	switch {
	case unread != nil || err != nil ||
		mailKeys.Sign(r.Header.Get("webhook-id"), time.Unix(seconds, 0),
			body) != r.Header.Get("webhook-signature"):
		c.addViolation("told", "an event that is not signed, or about no message: %s", body)
		return

	case event.Type != "message."+string(event.Data.Stage), !event.Data.Stage.Final():
		c.addViolation("told", "the event %s", body)
	}

	c.checkTold(id, event.Data.Stage)
	to := r.URL.String() + " " + id.String()
	if c.told[to] == nil {
		c.told[to] = map[weir.Stage]bool{}
	}

	c.counts.Told++
	if c.told[to][event.Data.Stage] {
		c.counts.ToldAgain++
	}

	c.told[to][event.Data.Stage] = true
}

// checkTold checks that a message has the stage that an event names. If the event says that the
// message is dead, any stage is right, because the message may have been replayed or discarded
// afterwards.
func (c *checker) checkTold(id weir.ID, stage weir.Stage) {
	st, err := c.store.Messages().Status(context.Background(), id)
	if err != nil || st.Stage != stage && stage != weir.Dead {
		c.addViolation("told", "seq %d of lane %d was told to be %s and is %s: %v", id.Seq, id.Lane,
			stage, st.Stage, err)
	}
}

// checkAllTold checks, at the end of a run, that each receiver got its events, and that the
// outboxes are empty.
func (c *checker) checkAllTold(ctx context.Context) {
	if c.first != nil {
		return
	}

	for n := range c.w.lanes {
		for _, f := range c.laneOf(n).log {
			st, err := c.store.Messages().Status(ctx, f.id)
			if err != nil {
				c.addViolation("lost", "%v", err)
				return
			}

			if f.erasing {
				continue
			}

			id := f.id.String()
			if st.Message.Callback != "" && !c.told[hookURL+" "+id][st.Stage] {
				c.addViolation("untold", "seq %d of lane %d is %s, and was not called back",
					f.id.Seq, f.id.Lane, st.Stage)
			}

			if c.w.deaths && st.Stage == weir.Dead && !c.told[deathsURL+" "+id][weir.Dead] {
				c.addViolation("untold", "no receiver got the death of seq %d of lane %d",
					f.id.Seq, f.id.Lane)
			}
		}

		page, err := c.w.account.Table().Range(ctx,
			storage.Query{Partition: fmt.Sprintf("%d.%d", c.store.Epoch, n), From: "n_", To: "n_~"})
		if err != nil || countWhole(page.Rows) > 0 {
			c.addViolation("untold", "the outbox of lane %d has %d events left: %v", n,
				len(page.Rows), err)
		}
	}

	for to := range c.told {
		if !strings.HasPrefix(to, hookURL) && !c.w.deaths {
			c.addViolation("told", "%s was told", to)
		}
	}
}
