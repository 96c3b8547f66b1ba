package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"testing/iotest"
	"time"

	"weir/internal/weir"
)

// fakeCMS receives requests, and works on each for a while. If the client gives a request up,
// fakeCMS may go on working on the request, but for less than the settle time.
type fakeCMS struct{ w *world }

// request is one request at the CMS.
type request struct {
	p       *process
	id      weir.ID
	key     string
	body    string
	fence   int64
	attempt int
	replay  int           // number of the replay that the request belongs to; 0 = no replay
	round   int           // number of the chain's run in the attempt; 0 = the first run
	isRead  bool          // the request changes nothing, so it may overlap other requests
	sent    time.Time     // time at which the process sent the request
	began   time.Time     // time at which the request reached the CMS
	status  int           // status that the CMS answers, even if the answer is lost
	asked   time.Duration // Retry-After of the answer
	cut     chan struct{} // closed when the client gives the request up
	done    chan struct{} // closed when the CMS has answered or has dropped the connection
}

func (c *fakeCMS) newTransport(p *process) http.RoundTripper { return &wire{c, p} }

// wire is the connection of one process to the CMS.
type wire struct {
	cms *fakeCMS
	p   *process
}

var errRefused, errLost = errors.New("connection refused"), errors.New("connection reset by peer")

// plan is the drawn reaction of the CMS to a request.
type plan struct {
	refuse bool // the CMS refuses the connection
	stale  bool // the CMS closed the reused connection before the request was written
	lose   bool // the connection is lost before the answer
	torn   bool // the answer's body breaks off
	takes  time.Duration
	status int
	header http.Header
}

// planAnswer draws a plan. In some periods of ten seconds the whole CMS is down: it refuses
// connections or answers 503.
func (c *fakeCMS) planAnswer(id weir.ID, body string) plan {
	w, name := c.w, fmt.Sprint("cms ", id.Lane, " ", id.Seq)
	p := plan{takes: w.dice.drawBetween(name, 5*time.Millisecond, 60*time.Millisecond), status: 200,
		header: http.Header{}}

	if w.leaving.kind != "" {
		p.takes = w.dice.drawBetween(name, 60*time.Millisecond, 120*time.Millisecond)
		return p
	}

	if w.killing.ends > 0 {
		return p
	}

	if w.swift {
		p.takes /= 50
	}

	if n, err := numberOf(body); err == nil && w.braking.rejects(n) {
		p.status = 422
		return p
	}

	if w.absence.isOn() {
		p.refuse, p.status = !w.absence.busy, 503
		return p
	}

	if n, err := numberOf(body); err == nil && (n == w.bad[0] || n == w.bad[1]) {
		p.status = []int{500, 422, 403}[n%3]
		return p
	} else if err == nil && w.isRefused(n) {
		p.status = w.refusal
		return p
	}

	if n, err := numberOf(body); err == nil && w.blocking != "" && n == w.blocker() {
		return w.blocking.planBlocker(p)
	}

	if w.isCalm() {
		return p
	}

	if phase := int(time.Since(w.started) / (10 * time.Second)); newDice(w.dice.seed+uint64(phase)).drawChance("down",
		0.1) {
		p.refuse = w.dice.drawChance(name+" down", 0.5)
		p.status = 503
		return p
	}

	if w.dice.drawChance(name+" rejected", w.rejects) {
		p.status = 422
		return p
	}

	if w.dice.drawChance(name+" fault", w.cmsFaults) {
		c.spoilPlan(&p, name)
	}

	return p
}

// spoilPlan adds a fault to a plan.
func (c *fakeCMS) spoilPlan(p *plan, name string) {
	d := c.w.dice
	pick := func(of ...int) int { return of[d.drawBelow(name+" pick", len(of))] }
	switch d.drawBelow(name+" what", 12) {
	case 0, 1:
		p.takes = d.drawBetween(name+" slow", 500*time.Millisecond, 8*time.Second)
	case 2:
		p.lose, p.takes = true, d.drawBetween(name+" lost", 5*time.Millisecond, 3*time.Second)
	case 3:
		p.refuse = true
	case 4:
		p.stale = true
	case 5:
		p.torn = true
	case 6, 7:
		p.status = pick(500, 500, 501, 409, 423, 425)
	case 8:
		p.status = pick(400, 413, 422)
	case 9:
		p.status = pick(301, 302, 303, 307, 308)
		p.header.Set("Location", "http://cms.test/elsewhere")
	case 10:
		p.status = pick(408, 504)
	case 11:
		p.status = pick(401, 403, 407, 429, 429, 502, 503, 503)
		p.header.Set("Retry-After", fmt.Sprint(pick(0, 1, 3, 8)))
	}
}

// RoundTrip sends one request. If the process stalls, RoundTrip sends the request after the stall,
// even if the request's context has ended during the stall. A real client can also send the rest of
// a request after the context has ended, if the client has begun to write the request.
func (c *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	p, w := c.p, c.p.w
	p.noteSlotUsed()
	if !p.awaitRunning("send " + r.Header.Get("Weir-Key")) {
		return nil, errLost
	}

	id, _, err := idempotencyKey(r)
	if err != nil || r.URL.Path != "/content" {
		w.check.reportViolation("redirect", "%s sent a request to %s", p.name, r.URL)
		return nil, errRefused
	}

	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}

	plan := c.cms.planAnswer(id, string(body))
	if err := p.openConnection(r, plan.refuse, plan.stale, fmt.Sprint("refused ", id.Lane, " ", id.Seq)); err != nil {
		return nil, err
	}

	p.countRequest(1)
	defer p.countRequest(-1)

	if w.isKiller(string(body)) {
		p.dieOf(string(body))
		p.awaitRunning("die")
		return nil, errLost
	}

	return c.exchangeRequest(r, id, string(body), plan)
}

// openConnection returns nil when the headers of the request are written. It returns errRefused if
// isRefused is set, and errLost if isStale is set or the process dies. A refusal takes a random
// time; the parameter "refusal" is the name under which the dice draw this time.
func (p *process) openConnection(r *http.Request, isRefused, isStale bool, refusal string) error {
	name := "send " + r.Header.Get("Weir-Key")
	if isRefused {
		p.waitFor(r.Context(),
			p.w.dice.drawBetween(refusal, 50*time.Microsecond, 2*time.Millisecond))
		p.awaitRunning(name)
		return errRefused
	}

	p.springTrap("send", early)
	if !p.awaitRunning(name) {
		return errLost
	}

	if t := httptrace.ContextClientTrace(r.Context()); t != nil {
		t.GotConn(httptrace.GotConnInfo{Reused: true})
		if isStale {
			return errLost
		}
		t.WroteHeaders()
	}

	return nil
}

// idempotencyKey returns the message's id and the number of the replay from a request's
// Idempotency-Key. The number is 0 if the message was not replayed.
func idempotencyKey(r *http.Request) (id weir.ID, replay int, err error) {
	name, number, isReplay := strings.Cut(r.Header.Get("Idempotency-Key"), ".")
	if isReplay {
		replay, err = strconv.Atoi(number)
	}

	if err == nil {
		id, err = weir.ParseID(name)
	}

	return id, replay, err
}

// countRequest adds n to the process's number of requests under way, and checks the limit of that
// number.
func (p *process) countRequest(n int) {
	p.mu.Lock()
	p.requests += n
	requests, atOnce := p.requests, p.w.atOnce
	p.mu.Unlock()

	if atOnce > 0 && requests > atOnce {
		p.w.check.reportViolation("limit", "%s has %d requests under way where %d are allowed",
			p.name, requests, atOnce)
	}
}

func (c *wire) exchangeRequest(r *http.Request, id weir.ID, body string,
	plan plan) (*http.Response, error) {
	p, w := c.p, c.p.w
	req := &request{p: p, id: id, key: r.Header.Get("Weir-Key"), body: body, sent: time.Now(),
		status: plan.status, cut: make(chan struct{}), done: make(chan struct{})}
	req.fence, _ = strconv.ParseInt(r.Header.Get("Weir-Fence"), 10, 64)
	seconds, _ := strconv.Atoi(plan.header.Get("Retry-After"))
	req.asked = time.Duration(seconds) * time.Second
	req.attempt, _ = strconv.Atoi(r.Header.Get("Weir-Attempt"))
	_, req.replay, _ = idempotencyKey(r)
	name := fmt.Sprint("trip ", id.Lane, " ", id.Seq)
	names := tripNames{trip: name, arrival: name + " arrives", waiting: name}
	if err := req.awaitAnswer(r.Context(), names, func() { c.cms.handleRequest(req, plan) }); err !=
		nil {
		return nil, err
	}

	if plan.lose {
		return c.loseAnswer(r, id, body)
	}

	w.check.noteAnswered(req, !plan.torn)

	return newAnswer(r, id, plan), nil
}

// tripNames has the names that awaitAnswer passes on for one request. The dice draw two values
// under such names: under trip, the time until the request reaches the CMS; under arrival, whether
// the request still arrives after its client has given up. waiting is the argument of awaitRunning.
type tripNames struct{ trip, arrival, waiting string }

// awaitAnswer sends the request, calls handle when the request reaches the CMS, and returns nil
// when the CMS has answered. If the client gives up earlier, awaitAnswer returns the context's
// cause or errLost, although the CMS may have received the request.
func (r *request) awaitAnswer(ctx context.Context, names tripNames, handle func()) error {
	p := r.p
	stood := ctx.Err() != nil // the process stalled before it sent the request
	trip := p.w.dice.drawBetween(names.trip, 50*time.Microsecond, 2*time.Millisecond)
	if !stood && !p.waitFor(ctx, trip) {
		if p.w.dice.drawChance(names.arrival, 0.5) {
			close(r.cut)
			handle()
		}
		p.awaitRunning(names.waiting)
		return errLost
	}

	handle()
	p.springTrap("send", afterwards)

	select {
	case <-r.done:
		if !p.awaitRunning(names.waiting) {
			return errLost
		}
		return nil

	case <-ctx.Done():
		if !p.awaitRunning(names.waiting) {
			return errLost
		}
		close(r.cut)
		return context.Cause(ctx)

	case <-p.killed:
		close(r.cut)
		p.awaitRunning(names.waiting)
		return errLost
	}
}

// loseAnswer breaks the connection. If the run has the deliberate defect "requests sent again by
// themselves", loseAnswer sends the request again instead, like a client that repeats lost requests
// by itself.
func (c *wire) loseAnswer(r *http.Request, id weir.ID, body string) (*http.Response, error) {
	if c.p.w.mutant == "requests sent again by themselves" {
		return c.exchangeRequest(r, id, body, c.cms.planAnswer(id, body))
	}
	return nil, errLost
}

// handleRequest lets the CMS work on a request for the drawn time. The CMS can go on with the
// request for most of the settle time in three cases: the client gives up, the connection is lost,
// or a proxy answers 408 or 504.
func (c *fakeCMS) handleRequest(req *request, plan plan) {
	settle := c.w.settle * 8 / 10
	req.began = time.Now()
	c.w.check.beginRequest(req)
	c.w.loose.Go(func() {
		timer := time.NewTimer(plan.takes)
		defer timer.Stop()

		select {
		case <-timer.C:
			if plan.lose || plan.status == 504 || plan.status == 408 {
				close(req.done)
				time.Sleep(c.w.dice.drawBetween(fmt.Sprint("after ", req.id.Lane, " ", req.id.Seq),
					0, settle))
				c.w.check.endRequest(req)
				return
			}

		case <-req.cut:
			left := time.Until(req.began.Add(plan.takes))
			time.Sleep(min(left, settle))
		}

		c.w.check.endRequest(req)
		close(req.done)
	})
}

func newAnswer(r *http.Request, id weir.ID, plan plan) *http.Response {
	body := io.Reader(strings.NewReader("done"))
	if plan.status >= 400 {
		body = strings.NewReader(repeatCredential(r, id.Seq))
	}

	if plan.torn {
		body = io.MultiReader(strings.NewReader("do"), iotest.ErrReader(io.ErrUnexpectedEOF))
	}

	return &http.Response{StatusCode: plan.status, ProtoMajor: 1, ProtoMinor: 1,
		Header: plan.header, Body: io.NopCloser(body), Request: r}
}
