package simulation_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/iotest"
	"time"

	"weir/internal/weir"
)

// chainCMS is a CMS that has items and knows nothing of Weir's messages. Clients find an item by
// its ref, and create, update and publish items. Unless chains.isUnique is set, the CMS allows two
// items with the same ref.
type chainCMS struct {
	w *world

	mu       sync.Mutex
	items    []*item
	made     int                     // number of items created so far
	removed  map[string]time.Time    // by ref: when an editor last removed an item
	shown    map[string]time.Time    // by ref: when an item was last published
	fences   map[int]int64           // by lane: the highest fence so far, if the CMS checks fences
	answered map[string]*chainAnswer // by Idempotency-Key, if the CMS honours that header
	sessions map[string]time.Time    // by token: when the CMS first saw it
	endedAt  time.Time               // when the CMS has forgotten all sessions; zero = not yet
	// by Idempotency-Key: method and path of the last request, with # for each number
	kinds map[string]string
}

// item is an item of the CMS.
type item struct {
	id        int
	ref       string
	version   int
	content   content
	published *content
	visible   time.Time // from this time on, look-ups find the item
}

// content is the part of an item that a message writes.
type content struct {
	Ref     string `json:"ref"`
	Message string `json:"message"`
	Text    string `json:"text"`
}

// chainRequest is one request of a chain.
type chainRequest struct {
	*request
	name    string // Idempotency-Key
	step    string
	method  string
	path    string
	query   url.Values
	header  http.Header
	content content
}

// chainAnswer is the CMS's answer to a chainRequest.
type chainAnswer struct {
	status int
	body   any
}

// chainPlan is the CMS's reaction to a request, which planAnswer draws.
type chainPlan struct {
	// refuse: the CMS refuses the connection; stale: it has closed a connection that is reused
	refuse, stale bool
	lose          bool // the connection is lost before the answer
	torn          bool // the answer's body breaks off
	html          bool // the answer is an HTML page, with the status 200 if no other one is drawn
	text          bool // the page of a look-up is plain text
	unknown       bool // the answer is an error of a code that Weir does not know
	skip          bool // the request is not carried out
	takes         time.Duration
	status        int // status of the answer in place of the true status; 0 = the true status
	header        http.Header
}

// chainWire is the connection of one process to the CMS.
type chainWire struct {
	cms *chainCMS
	p   *process
}

func newChainCMS(w *world) *chainCMS {
	return &chainCMS{w: w, fences: map[int]int64{}, answered: map[string]*chainAnswer{},
		kinds:    map[string]string{},
		sessions: map[string]time.Time{}, removed: map[string]time.Time{},
		shown: map[string]time.Time{}}
}

// planAnswer draws the reaction to a request. During some periods of ten seconds the whole CMS is
// down.
func (c *chainCMS) planAnswer(r *chainRequest) chainPlan {
	w, name := c.w, fmt.Sprint("chain ", r.id.Lane, " ", r.id.Seq, " ", r.step)
	p := chainPlan{takes: w.dice.drawBetween(name, 5*time.Millisecond, 60*time.Millisecond),
		header: http.Header{}}

	if n := r.id.Seq; n%7 == 0 && w.chains.stubborn && r.method == http.MethodPut {
		// the CMS refuses the update in each run of the chain
		p.skip, p.status = true, http.StatusPreconditionFailed
		return p
	}

	if w.isCalm() {
		return p
	}

	phase := newDice(w.dice.seed + uint64(time.Since(w.started)/(10*time.Second)))
	if phase.drawChance("down", 0.1) {
		p.skip, p.status, p.refuse = true, http.StatusServiceUnavailable,
			w.dice.drawChance(name+" down", 0.5)
		return p
	}

	if w.dice.drawChance(name+" fault", w.cmsFaults) {
		c.spoilPlan(&p, name)
		c.keepIndexed(r, &p)
	}

	return p
}

// spoilPlan adds a fault to a plan. With some faults the CMS still carries the request out, with
// others it does not.
func (c *chainCMS) spoilPlan(p *chainPlan, name string) {
	d := c.w.dice
	pick := func(of ...int) int { return of[d.drawBelow(name+" pick", len(of))] }
	switch d.drawBelow(name+" what", 18) {
	case 0:
		p.takes = d.drawBetween(name+" slow", 500*time.Millisecond, 8*time.Second)
	case 1, 2: // the connection is lost, and the change is made later
		p.lose, p.takes = true, d.drawBetween(name+" lost", 5*time.Millisecond, 3*time.Second)
	case 3: // the CMS restarts before it has read the request
		p.lose, p.skip = true, true
		c.forgetKeys()
	case 4:
		p.refuse = true
	case 5:
		p.stale = true
	case 6: // a sign-in page as the answer; the request is carried out or not
		p.html, p.skip, p.text = true, d.drawChance(name+" in front", 0.5),
			d.drawChance(name+" as text", 0.5)
	case 7:
		p.torn = true
	case 8:
		p.skip, p.status = true, http.StatusUnauthorized
	case 9:
		p.skip, p.status = true, pick(409, 412)
	case 10: // an error after the change was made
		p.status = pick(500, 500, 502, 503)
	case 11:
		p.skip, p.status = true, pick(500, 423, 403, 429, 503)
		p.header.Set("Retry-After", fmt.Sprint(pick(0, 1, 3)))
	case 12:
		p.status = pick(408, 504)
	case 13:
		p.skip, p.status = d.drawChance(name+" refused", 0.3), pick(400, 422)
		if !p.skip {
			p.status = 0
		}

	case 14, 15: // a proxy or a deployment in front of the CMS
		p.html, p.skip, p.status = true, true, pick(404, 404, 400, 403, 413, 422, 500, 502)
	case 16, 17: // the database is away
		p.unknown, p.skip, p.status = true, true, 500
	}
}

// refuseEnded makes the CMS answer 403 if the request has the token of a session that the CMS has
// forgotten. The CMS forgets all sessions once, at the end of the other faults: a 401 among those
// would begin a new session, too.
func (c *chainCMS) refuseEnded(r *chainRequest, p *chainPlan) {
	if !c.w.chains.endsSessions {
		return
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	token := r.header.Get("Authorization")
	if c.sessions[token].IsZero() {
		c.sessions[token] = time.Now()
	}

	if c.endedAt.IsZero() && c.w.isCalm() {
		c.endedAt = time.Now()
	}

	if c.sessions[token].Before(c.endedAt) {
		*p = chainPlan{skip: true, status: http.StatusForbidden, takes: p.takes,
			header: http.Header{}}
	}
}

// keepIndexed prevents a second item in runs with a slow index. After a faulty answer to a create
// request, the next attempt could come before the item is in the index, and create a second item.
// So keepIndexed replaces the faulty answer by a lost connection: the holder then waits for the
// settle time, and by then the item is in the index.
func (c *chainCMS) keepIndexed(r *chainRequest, p *chainPlan) {
	isMade := r.path == "/items" && !r.isRead && !p.skip
	if isMade && !c.w.chains.isUnique && c.w.chains.lag > 0 &&
		(p.torn || p.html || p.status >= 400) {
		p.torn, p.html, p.status, p.lose = false, false, 0, true
	}
}

// forgetKeys clears the Idempotency-Keys. The CMS has them only in memory, so a restart loses them.
func (c *chainCMS) forgetKeys() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.answered)
}

// RoundTrip sends one request of a chain to the simulated CMS.
func (c *chainWire) RoundTrip(r *http.Request) (*http.Response, error) {
	p := c.p
	p.noteSlotUsed()
	if !p.awaitRunning("send " + r.Header.Get("Weir-Key")) {
		return nil, errLost
	}

	req, err := c.readRequest(r)
	if err != nil {
		p.w.check.reportViolation("chain", "%s sent a request that no chain has: %v", p.name, err)
		return nil, errRefused
	}

	plan := c.cms.planAnswer(req)
	c.cms.refuseEnded(req, &plan)
	if err := p.openConnection(r, plan.refuse, plan.stale, req.drawName("refused")); err != nil {
		return nil, err
	}

	p.countRequest(1)
	defer p.countRequest(-1)

	return c.exchangeRequest(r, req, plan)
}

// readRequest reads a request. Its Idempotency-Key has the form <message>.<replay>/<step>/<round>;
// .<replay> and /<round> can be absent.
func (c *chainWire) readRequest(r *http.Request) (*chainRequest, error) {
	//lint:ignore SA1008 the client sends the name in lower case
	key := strings.Join(r.Header["idempotency-key"], "")
	name, rest, _ := strings.Cut(key, "/")
	step, again, isAgain := strings.Cut(rest, "/")
	id, number, isReplay := strings.Cut(name, ".")
	messageKey, err := url.PathUnescape(r.Header.Get("Weir-Key"))
	if err != nil {
		return nil, err
	}

	req := &chainRequest{name: key, step: step, method: r.Method, path: r.URL.Path,
		query: r.URL.Query(), header: r.Header,
		request: &request{p: c.p, key: messageKey, sent: time.Now(),
			isRead: r.Method == http.MethodGet,
			cut:    make(chan struct{}), done: make(chan struct{})}}
	if req.id, err = weir.ParseID(id); err != nil {
		return nil, err
	}

	if isReplay {
		req.replay, _ = strconv.Atoi(number)
	}

	if isAgain {
		req.round, _ = strconv.Atoi(again)
	}

	req.fence, _ = strconv.ParseInt(r.Header.Get("Weir-Fence"), 10, 64)
	req.attempt, _ = strconv.Atoi(r.Header.Get("Weir-Attempt"))
	if req.isRead || r.ContentLength == 0 {
		return req, nil
	}

	body, err := io.ReadAll(r.Body)
	if err != nil || len(body) == 0 {
		return req, err
	}
	if req.path == graphQLPath {
		return req, req.readQuery(body)
	}

	return req, json.Unmarshal(body, &req.content)
}

// graphQLPath is the path of queries of GraphQL.
const graphQLPath = "/graphql"

// readQuery reads the body of a query of GraphQL.
func (r *chainRequest) readQuery(body []byte) error {
	var query struct {
		Variables struct{ Ref string }
	}
	err := json.Unmarshal(body, &query)
	r.isRead, r.query = true, url.Values{"ref": {query.Variables.Ref}}
	return err
}

func (r *chainRequest) drawName(what string) string {
	return fmt.Sprint(what, " ", r.id.Lane, " ", r.id.Seq, " ", r.step)
}

func (c *chainWire) exchangeRequest(r *http.Request, req *chainRequest,
	plan chainPlan) (*http.Response, error) {
	var got *chainAnswer
	names := tripNames{trip: req.drawName("trip"), arrival: req.drawName("arrives"),
		waiting: "send " + req.key}
	err := req.awaitAnswer(r.Context(), names, func() { c.cms.handleRequest(req, plan, &got) })
	if err == nil && plan.lose {
		err = errLost
	}

	if err != nil {
		return nil, err
	}

	return c.newAnswer(r, req, plan, got), nil
}

// handleRequest carries a request out after plan.takes, writes the answer to got, and then closes
// req.done. If the client gives up first, the CMS still carries the request out, within 80 % of the
// settle time.
//
// If the connection is lost, or a proxy answers 408 or 504, handleRequest closes req.done without
// an answer in got. The CMS carries the request out after that, within 80 % of the settle time.
func (c *chainCMS) handleRequest(req *chainRequest, plan chainPlan, got **chainAnswer) {
	settle := c.w.settle * 8 / 10
	req.began = time.Now()
	c.w.check.beginRequest(req.request)
	c.w.check.checkChainRequest(req)
	finish := func() (answer *chainAnswer) {
		if !plan.skip {
			answer = c.serveRequest(req)
		}
		c.w.check.endRequest(req.request)
		return answer
	}

	c.w.loose.Go(func() {
		timer := time.NewTimer(plan.takes)
		defer timer.Stop()

		select {
		case <-timer.C:
			if plan.lose || plan.status == 504 || plan.status == 408 {
				close(req.done)
				time.Sleep(c.w.dice.drawBetween(req.drawName("after"), 0, settle))
				finish()
				return
			}

		case <-req.cut:
			time.Sleep(min(time.Until(req.began.Add(plan.takes)), settle))
		}

		*got = finish()
		close(req.done)
	})
}

// newAnswer returns the answer as the client gets it. If the request is the last step of a chain
// and its answer is whole, newAnswer tells the checker that the process got the answer.
func (c *chainWire) newAnswer(r *http.Request, req *chainRequest, plan chainPlan,
	got *chainAnswer) *http.Response {
	answer := chainAnswer{status: plan.status,
		body: map[string]any{"message": repeatCredential(r, req.id.Seq)}}
	if got != nil && plan.status == 0 {
		answer = *got
	}

	text, _ := json.Marshal(answer.body)
	body := io.Reader(strings.NewReader(string(text)))
	isVerdict := isRejection(answer.status) && !req.isRead && !plan.html

	switch {
	case plan.html:
		body = strings.NewReader("<!DOCTYPE html><html><body>Sign in</body></html>")
		answer.status = cmp.Or(plan.status, http.StatusOK)
		if plan.text && req.isRead {
			body = strings.NewReader("no healthy upstream")
		}

	case plan.unknown && req.path == graphQLPath:
		answer.status = http.StatusOK
		body = strings.NewReader(`{"data":{"items":null},"errors":[{"message":"no",` +
			`"extensions":{"code":"KS_PRISMA_ERROR"}}]}`)

	case plan.torn:
		body = io.MultiReader(strings.NewReader(string(text[:len(text)/2])),
			iotest.ErrReader(io.ErrUnexpectedEOF))
	}

	isWhole := !plan.html && !plan.torn
	if req.status = answer.status; req.step == lastStep && isWhole {
		c.p.w.check.noteAnswered(req.request, true)
	}

	if isVerdict {
		c.p.w.check.noteVerdict(req.request)
	}

	return &http.Response{StatusCode: max(answer.status, 100), ProtoMajor: 1, ProtoMinor: 1,
		Header: plan.header, Body: io.NopCloser(body), Request: r}
}

// serveRequest carries requests out one at a time.
func (c *chainCMS) serveRequest(r *chainRequest) *chainAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.w.chains.checksFences {
		if r.fence < c.fences[r.id.Lane] {
			return newProblem(http.StatusConflict, "the fence has risen")
		}
		c.fences[r.id.Lane] = r.fence
	}

	isPost := r.method == http.MethodPost && !r.isRead
	if known := c.answered[r.name]; known != nil && c.w.chains.honoursKeys && isPost {
		return known
	}

	answer := c.changeItems(r)
	if isPost && answer.status < 300 {
		c.answered[r.name] = answer
	}

	c.w.trace.addLine("the CMS answers %s %s of seq %d of lane %d with %d %v", r.method, r.path,
		r.id.Seq, r.id.Lane, answer.status, answer.body)

	return answer
}

func newProblem(status int, words string) *chainAnswer {
	return &chainAnswer{status, map[string]any{"message": words}}
}

// changeItems looks items up, or changes one item. The caller holds mu.
func (c *chainCMS) changeItems(r *chainRequest) *chainAnswer {
	switch {
	case r.path == graphQLPath:
		found := c.findItems(r.query.Get("ref"))
		return &chainAnswer{found.status, map[string]any{"data": found.body}}
	case r.method == http.MethodGet:
		return c.findItems(r.query.Get("ref"))
	case r.path == "/items":
		return c.createItem(r)
	}

	place, isPublish := strings.CutSuffix(strings.TrimPrefix(r.path, "/items/"), "/publish")
	n, _ := strconv.Atoi(place)
	i := slices.IndexFunc(c.items, func(it *item) bool { return it.id == n })
	if i < 0 {
		return newProblem(http.StatusNotFound, "no such item")
	}

	it := c.items[i]
	if isPublish && c.w.chains.indexesFirst && time.Now().Before(it.visible) {
		return newProblem(http.StatusConflict, "not in the index yet")
	}

	if isPublish {
		c.checkPublished(r, it)
		shown := it.content
		it.published = &shown
		c.shown[it.ref] = time.Now()
		return &chainAnswer{http.StatusOK, map[string]any{"state": "published"}}
	}

	if match := r.header.Get("If-Match"); match != "" && match != strconv.Itoa(it.version) {
		return newProblem(http.StatusPreconditionFailed, "another version")
	}

	it.content = r.content
	it.version++

	return &chainAnswer{http.StatusOK, map[string]any{"id": it.id, "version": it.version}}
}

// checkPublished checks that the earlier steps have written the request's message to the item. An
// item with another message shows that one of these steps took a proxy's answer for success.
func (c *chainCMS) checkPublished(r *chainRequest, it *item) {
	if id, err := weir.ParseID(it.content.Message); err != nil || id != r.id {
		c.w.check.reportViolation("unwritten",
			"%s publishes the item of %s for seq %d of lane %d, and the item has %q",
			r.p.name, it.ref, r.id.Seq, r.id.Lane, it.content.Message)
	}
}

func (c *chainCMS) findItems(ref string) *chainAnswer {
	found := []any{}
	for _, it := range c.items {
		if c.isSameRef(it.ref, ref) && !time.Now().Before(it.visible) {
			found = append(found, map[string]any{"id": it.id, "version": it.version})
		}
	}
	return &chainAnswer{http.StatusOK, map[string]any{"items": found}}
}

// isSameRef reports whether two refs are equal to the CMS.
func (c *chainCMS) isSameRef(a, b string) bool {
	rules := c.w.chains.foldRules()
	return rules.Fold(a) == rules.Fold(b)
}

func (c *chainCMS) createItem(r *chainRequest) *chainAnswer {
	ref := r.content.Ref
	isTaken := slices.ContainsFunc(c.items, func(it *item) bool { return c.isSameRef(it.ref, ref) })
	if isTaken && c.w.chains.isUnique {
		return newProblem(http.StatusConflict, "the ref is taken")
	}

	c.made++
	it := &item{id: c.made, ref: ref, version: 1, content: r.content,
		visible: time.Now().Add(c.w.dice.drawBetween(r.drawName("index"), 0, c.w.chains.lag))}
	c.items = append(c.items, it)
	if isTaken {
		c.w.check.reportViolation("duplicate", "%s made a second item of %s for seq %d of lane %d",
			r.p.name, ref, r.id.Seq, r.id.Lane)
	}

	return &chainAnswer{http.StatusCreated, map[string]any{"id": it.id, "version": it.version}}
}

// editItem changes an item's version, as if an editor had saved the item.
func (c *chainCMS) editItem(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.items) > 0 {
		c.items[n%len(c.items)].version++
	}
}

// removeItem removes an item, as an editor can do.
func (c *chainCMS) removeItem(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if len(c.items) > 0 {
		i := n % len(c.items)
		c.w.trace.addLine("an editor removes item %d of %s", c.items[i].id, c.items[i].ref)
		c.removed[c.items[i].ref] = time.Now()
		c.items = slices.Delete(c.items, i, i+1)
	}
}
