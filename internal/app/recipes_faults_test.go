package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/weir"
)

// fakeCMS stands in for a CMS. The sample article.xml writes the article harbour-opens. The sample
// delete.xml deletes this article.
type fakeCMS interface {
	http.Handler
	// listArticles returns "published" or "draft" for each article.
	listArticles() []string
}

// harness has the values for the tests of one recipe. The steps of an attempt are written as their
// names, separated by spaces.
type harness[C fakeCMS] struct {
	newCMS func(isThere bool) C // returns a CMS, with the article if isThere is set
	open   func(t *testing.T, cms C, faults ...fault) *recipe

	create   string    // beginning of the request that creates the article, as "METHOD /path"
	noAPI    string    // part of the reason if the CMS answers 404 with a page of HTML
	toCreate string    // steps up to the step that creates the article
	ifNew    string    // steps if the CMS does not have the article
	ifThere  string    // steps if the CMS has the article
	removals [2]string // steps of the first and of the second delete
}

// delivery is a way to write the article in one attempt.
type delivery struct {
	isThere bool    // the CMS has the article before the attempt
	faults  []fault // faults that happen during the attempt
	steps   string  // wanted steps
}

// failure is an attempt that fails because of a fault. The next attempt delivers the message.
type failure struct {
	isThere bool // the CMS has the article before the attempt
	fault   fault
	want    weir.Outcome // wanted outcome of the failed attempt
	reason  string       // part of the wanted reason
	steps   string       // wanted steps
	next    string       // wanted steps of the next attempt
}

// fault replaces the CMS's answer to one request.
type fault struct {
	request string // beginning of the request, as "METHOD /path"
	acts    bool   // true = the CMS executes the request before its answer is replaced
	status  int    // 0 = the CMS closes the connection without an answer
	header  string // "Name: value"
	body    string
}

const pageOfHTML = "<!DOCTYPE html><html><title>Please sign in</title></html>"

// faultyCMS is a CMS with faults. Each fault happens once. The faults happen in the given order.
type faultyCMS struct {
	http.Handler

	mu       sync.Mutex
	faults   []fault
	requests []string
}

func (f *faultyCMS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	request := r.Method + " " + r.URL.RequestURI()
	f.requests = append(f.requests, request)
	var next *fault
	if len(f.faults) > 0 && strings.HasPrefix(request, f.faults[0].request) {
		next, f.faults = &f.faults[0], f.faults[1:]
	}

	f.mu.Unlock()

	if next == nil {
		f.Handler.ServeHTTP(w, r)
		return
	}

	if next.acts {
		f.Handler.ServeHTTP(httptest.NewRecorder(), r)
	}

	if next.status == 0 {
		panic(http.ErrAbortHandler)
	}

	w.Header().Set("Content-Type", "application/json")
	if strings.HasPrefix(next.body, "<") {
		w.Header().Set("Content-Type", "text/html")
	}

	if name, value, is := strings.Cut(next.header, ": "); is {
		w.Header().Set(name, value)
	}

	w.WriteHeader(next.status)
	fmt.Fprint(w, next.body)
}

// checkDeliveries writes the article in each of the given ways, calls checkArticle, and then
// deletes the article twice. It adds two ways without faults: the CMS has the article, or does not
// have the article.
func (h harness[C]) checkDeliveries(
	t *testing.T, deliveries map[string]delivery,
	checkArticle func(t *testing.T, cms C, wasThere bool),
) {
	t.Helper()
	deliveries["New"] = delivery{false, nil, h.ifNew}
	deliveries["There"] = delivery{true, nil, h.ifThere}
	for name, d := range deliveries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cms := h.newCMS(d.isThere)
			r := h.open(t, cms, d.faults...)
			checkResult(t, r.sendBody(r.readSample("article.xml")), weir.OutcomeDelivered,
				"", d.steps)
			checkOneArticle(t, cms)
			checkArticle(t, cms, d.isThere)

			for _, steps := range h.removals {
				checkResult(t, r.sendBody(r.readSample("delete.xml")),
					weir.OutcomeDelivered, "", steps)
				if got := cms.listArticles(); len(got) != 0 {
					t.Errorf("after a delete: got the articles %v, want none", got)
				}
			}
		})
	}
}

// checkFailures makes, for each failure, two attempts to write the article: the first attempt with
// the fault, and the second attempt without a fault. After both attempts the CMS must have one
// article. checkFailures adds failures that every CMS can have.
func (h harness[C]) checkFailures(t *testing.T, failures map[string]failure) {
	t.Helper()
	failures["AnswerLostAfterCreate"] = failure{
		false, fault{request: h.create, acts: true}, weir.OutcomeRetry, "", h.toCreate, h.ifThere,
	}
	failures["PageOfHTML"] = failure{
		false, fault{request: "GET", status: 200, body: pageOfHTML},
		weir.OutcomeUnavailable, "page of HTML", "find", h.ifNew,
	}

	failures["NoAPI"] = failure{
		false, fault{request: "GET", status: 404, body: pageOfHTML},
		weir.OutcomeUnavailable, h.noAPI, "find", h.ifNew,
	}

	failures["TooManyRequests"] = failure{
		false, fault{request: h.create, status: 429, header: "Retry-After: 7"},
		weir.OutcomeUnavailable, "429", h.toCreate, h.ifNew,
	}
	for name, f := range failures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cms := h.newCMS(f.isThere)
			r := h.open(t, cms, f.fault)
			article := r.readSample("article.xml")
			got := r.sendBody(article)
			checkResult(t, got, f.want, f.reason, f.steps)
			if f.fault.status == 429 && got.RetryAfter != 7*time.Second {
				t.Errorf("got RetryAfter %v, want 7s", got.RetryAfter)
			}

			checkResult(t, r.sendBody(article), weir.OutcomeDelivered, "", f.next)
			checkOneArticle(t, cms)
		})
	}
}

func nameState(isPublished bool) string {
	if isPublished {
		return "published"
	}
	return "draft"
}

func checkOneArticle(t *testing.T, cms fakeCMS) {
	t.Helper()
	if got := cms.listArticles(); len(got) != 1 || got[0] != "published" {
		t.Fatalf("got the articles %v, want one that is published", got)
	}
}

func checkResult(t *testing.T, got weir.Result, outcome weir.Outcome, reason, steps string) {
	t.Helper()
	var names []string
	for _, s := range got.Steps {
		names = append(names, s.Name)
	}

	if got.Outcome != outcome || !strings.Contains(got.Reason, reason) ||
		strings.Join(names, " ") != steps {
		t.Fatalf("got %+v, want the outcome %s, a reason with %q and the steps %s", got, outcome,
			reason, steps)
	}
}
