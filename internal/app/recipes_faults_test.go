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

// fakeCMS is a CMS of the tests. It may have the article harbour-opens.
type fakeCMS interface {
	http.Handler
	// listArticles returns "published" or "draft" for each article.
	listArticles() []string
}

// harness opens a recipe against a fake CMS.
type harness[C fakeCMS] struct {
	newCMS func(isThere bool) C // with the article, if wanted
	open   func(t *testing.T, cms C, faults ...fault) *recipe

	create   string    // begin of the request that creates the article
	noAPI    string    // part of the reason if a page of HTML answers 404
	toCreate string    // steps up to the one that creates
	ifNew    string    // steps if the article is not there
	ifThere  string    // steps if it is
	removals [2]string // the steps of a delete, and of a second one
}

// delivery is a way to write the article in one attempt.
type delivery struct {
	isThere bool    // the article, before the attempt
	faults  []fault // that the attempt meets
	steps   string
}

// failure is an attempt that meets a fault. The next attempt delivers.
type failure struct {
	isThere bool // the article, before the attempt
	fault   fault
	want    weir.Outcome
	reason  string // a part of it
	steps   string
	next    string // steps of the next attempt
}

// fault replaces the CMS's answer to one request.
type fault struct {
	request string // begin of "METHOD /path"
	acts    bool   // the CMS acts before its answer is replaced
	status  int    // 0 closes the connection without an answer
	header  string // "Name: value"
	body    string
}

const pageOfHTML = "<!DOCTYPE html><html><title>Please sign in</title></html>"

// faultyCMS is a CMS behind faults. Each fault happens once, in their order.
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

// checkDeliveries writes the article in each way, and then deletes it twice. checkArticle looks at the CMS in between.
// A new article and one that is there are added to the ways.
func (h harness[C]) checkDeliveries(
	t *testing.T, deliveries map[string]delivery, checkArticle func(t *testing.T, cms C, wasThere bool),
) {
	t.Helper()
	deliveries["New"] = delivery{false, nil, h.ifNew}
	deliveries["There"] = delivery{true, nil, h.ifThere}
	for name, d := range deliveries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cms := h.newCMS(d.isThere)
			r := h.open(t, cms, d.faults...)
			checkResult(t, r.send(r.sample("article.xml")), weir.OutcomeDelivered, "", d.steps)
			checkOneArticle(t, cms)
			checkArticle(t, cms, d.isThere)
			for _, steps := range h.removals {
				checkResult(t, r.send(r.sample("delete.xml")), weir.OutcomeDelivered, "", steps)
				if got := cms.listArticles(); len(got) != 0 {
					t.Errorf("got %v after a delete, want no article", got)
				}
			}
		})
	}
}

// checkFailures attempts to write the article twice: with the fault, and without. Then one article is there. The
// failures that each CMS can have are added.
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
			article := r.sample("article.xml")
			got := r.send(article)
			checkResult(t, got, f.want, f.reason, f.steps)
			if f.fault.status == 429 && got.RetryAfter != 7*time.Second {
				t.Errorf("got %v until the next attempt, want 7s", got.RetryAfter)
			}
			checkResult(t, r.send(article), weir.OutcomeDelivered, "", f.next)
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
		t.Fatalf("got articles %v, want one, published", got)
	}
}

// checkResult compares an attempt's outcome, a part of its reason, and the names of the requests that it made.
func checkResult(t *testing.T, got weir.Result, outcome weir.Outcome, reason, steps string) {
	t.Helper()
	var names []string
	for _, s := range got.Steps {
		names = append(names, s.Name)
	}
	if got.Outcome != outcome || !strings.Contains(got.Reason, reason) || strings.Join(names, " ") != steps {
		t.Fatalf("got %+v, want %s with %q after %s", got, outcome, reason, steps)
	}
}
