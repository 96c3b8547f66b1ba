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
	"time"

	"weir/internal/weir"
)

// fakeCMS takes requests, and works on them for a while: also on those whose client has
// left, though not for longer than settle allows for.
type fakeCMS struct{ w *world }

// request is one request as the CMS has it.
type request struct {
	p       *process
	id      weir.ID
	key     string
	body    string
	fence   int64
	attempt int
	began   time.Time
	ended   time.Time // zero = the CMS is at work on it
	status  int       // as the CMS meant to answer
	cut     chan struct{}
	done    chan struct{}
}

func (c *fakeCMS) transport(p *process) http.RoundTripper { return &wire{c, p} }

// wire is one process's connection.
type wire struct {
	cms *fakeCMS
	p   *process
}

var errRefused, errLost = errors.New("connection refused"), errors.New("connection reset by peer")

// plan is what the CMS does with a request.
type plan struct {
	refuse bool
	lose   bool // the connection, before the answer
	takes  time.Duration
	status int
}

// plan draws it. Some minutes the CMS is down as a whole.
func (c *fakeCMS) plan(id weir.ID) plan {
	w, name := c.w, fmt.Sprint("cms ", id.Lane, " ", id.Seq)
	p := plan{takes: w.dice.between(name, 5*time.Millisecond, 60*time.Millisecond), status: 200}
	if w.calm() {
		return p
	}
	if phase := int(time.Since(w.started) / (10 * time.Second)); newDice(w.dice.seed+uint64(phase)).chance("down", 0.1) {
		p.refuse = w.dice.chance(name+" down", 0.5)
		p.status = 503
		return p
	}
	switch x := w.dice.float(name + " what"); {
	case x < 0.72:
	case x < 0.77:
		p.takes = w.dice.between(name+" slow", 500*time.Millisecond, 8*time.Second)
	case x < 0.80:
		p.lose, p.takes = true, w.dice.between(name+" lost", 5*time.Millisecond, 3*time.Second)
	case x < 0.86:
		p.status = 500
	case x < 0.89:
		p.status = 409
	case x < 0.92:
		p.status = 422
	case x < 0.94:
		p.status = 302
	case x < 0.96:
		p.status = 429
	case x < 0.98:
		p.status = 504
	default:
		p.refuse = true
	}
	return p
}

// RoundTrip sends one request. A process that stands still sends it when it goes on, too
// late perhaps: what it had begun to write is not held back by a context.
func (c *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	p, w := c.p, c.p.w
	if !p.running(r.Context()) {
		return nil, errLost
	}
	id, err := weir.ParseID(r.Header.Get("Idempotency-Key"))
	if err != nil || r.URL.Path != "/content" {
		w.check.fail("redirect", "%s sent a request to %s", p.name, r.URL)
		return nil, errRefused
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	plan := c.cms.plan(id)
	if plan.refuse {
		return nil, errRefused
	}
	p.spring("send", early)
	if !p.running(r.Context()) {
		return nil, errLost
	}
	if t := httptrace.ContextClientTrace(r.Context()); t != nil {
		t.GotConn(httptrace.GotConnInfo{Reused: true})
		t.WroteHeaders()
	}
	return c.exchange(r, id, string(body), plan)
}

func (c *wire) exchange(r *http.Request, id weir.ID, body string, plan plan) (*http.Response, error) {
	p, w := c.p, c.p.w
	req := &request{p: p, id: id, key: r.Header.Get("Weir-Key"), body: body, began: time.Now(), status: plan.status, cut: make(chan struct{}), done: make(chan struct{})}
	req.fence, _ = strconv.ParseInt(r.Header.Get("Weir-Fence"), 10, 64)
	req.attempt, _ = strconv.Atoi(r.Header.Get("Weir-Attempt"))
	w.check.begin(req)
	c.cms.work(req, plan)
	p.spring("send", afterwards)
	gone := r.Context().Done()
	for {
		select {
		case <-req.done:
			if plan.lose {
				return c.lost(r, id, body)
			}
			if !p.running(r.Context()) {
				return nil, errLost
			}
			w.check.answered(req)
			return answer(r, plan.status), nil
		case <-gone:
			if !p.running(r.Context()) {
				return nil, errLost
			}
			close(req.cut)
			return nil, context.Cause(r.Context())
		case <-p.killed:
			close(req.cut)
			p.running(r.Context())
			return nil, errLost
		}
	}
}

// lost is a connection that broke. Where requests are sent again by themselves, they are.
func (c *wire) lost(r *http.Request, id weir.ID, body string) (*http.Response, error) {
	if c.p.w.mutant == "requests sent again by themselves" {
		return c.exchange(r, id, body, c.cms.plan(id))
	}
	return nil, errLost
}

// work is what goes on inside the CMS. Of what is cut off it may still do for most of
// settle. A connection that is lost is such a cut too.
func (c *fakeCMS) work(req *request, plan plan) {
	settle := c.w.settle() * 8 / 10
	c.w.loose.Go(func() {
		timer := time.NewTimer(plan.takes)
		defer timer.Stop()
		select {
		case <-timer.C:
			if plan.lose || plan.status == 504 {
				close(req.done)
				time.Sleep(c.w.dice.between(fmt.Sprint("after ", req.id.Lane, " ", req.id.Seq), 0, settle))
				c.w.check.end(req)
				return
			}
		case <-req.cut:
			left := time.Until(req.began.Add(plan.takes))
			time.Sleep(min(left, settle))
		}
		c.w.check.end(req)
		close(req.done)
	})
}

func answer(r *http.Request, status int) *http.Response {
	h := http.Header{}
	if status == 302 {
		h.Set("Location", "http://cms.test/elsewhere")
	}
	if status == 429 {
		h.Set("Retry-After", "3")
	}
	return &http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: h, Body: io.NopCloser(strings.NewReader("done")), Request: r}
}
