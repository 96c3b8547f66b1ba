package steps_test

import (
	"net/http"
	"strings"
	"testing"

	"weir/internal/weir"
)

const remembering = `
      - name: find
        when: remembered == nil
        get: /items?slug={{ slug(key) }}
        remember: "{{ len(json.data) > 0 ? json.data[0].id : nil }}"
      - name: create
        when: remembered == nil and len(find.json.data) == 0
        post: /items
        json: &item { slug: "{{ slug(key) }}" }
        remember: "{{ json.data.id }}"
      - name: update
        when: create == nil
        put: /items/{{ remembered ?? find.json.data[0].id }}
        json: *item
`

func TestSender_Remember(t *testing.T) {
	t.Parallel()
	const lookUp = "GET /items?slug=news-1"
	for name, c := range map[string]struct {
		known     string
		items     map[int]map[string]any
		want      string
		learned   string
		forgotten bool
	}{
		"Creates": {"", nil, lookUp + ",POST /items", "1", false},
		"Finds": {"", map[int]map[string]any{3: {"slug": "news-1"}}, lookUp + ",PUT /items/3",
			"3", false},
		"Remembered": {"3", map[int]map[string]any{3: {"slug": "news-1"}}, "PUT /items/3",
			"", false},
		"Gone": {"7", nil, "PUT /items/7," + lookUp + ",POST /items", "1", true},
		"GoneFound": {
			"7", map[int]map[string]any{3: {"slug": "news-1"}},
			"PUT /items/7," + lookUp + ",PUT /items/3", "3", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cms := &store{items: c.items}
			s := newSender(t, articleWithSteps(remembering), cms)
			d := newDelivery(`<article/>`)
			d.RememberedID = c.known
			r := s.Send(t.Context(), d)
			if got := strings.Join(cms.requests, ","); r.Outcome != weir.OutcomeDelivered ||
				got != c.want ||
				r.RememberedID != c.learned || r.IsForgotten != c.forgotten {
				t.Errorf("got %+v with the requests %s; want id %q, forgotten %v and the requests %s", r, got,
					c.learned, c.forgotten, c.want)
			}

			if !s.Remembers("article") || s.Remembers("other") {
				t.Error("Remembers is wrong for article or other, want true for article only")
			}
		})
	}
}

// The address of a GraphQL request can have the remembered id. If the answer is 404, the item is
// gone.
func TestSender_RememberedInTheAddressOfGraphQL(t *testing.T) {
	t.Parallel()
	s := newSender(t, articleWithSteps(`
      - name: update
        when: remembered != nil
        graphql: "mutation { update }"
        address: /items/{{ remembered }}
      - name: create
        when: remembered == nil
        post: /items
        json: {}
        remember: "{{ json.id }}"
`), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/items/7" {
			answerWith(404, "", `{}`)(w)
			return
		}
		answerWith(201, "", `{"id":"8"}`)(w)
	}))

	d := newDelivery(`<article/>`)
	d.RememberedID = "7"
	if r := s.Send(t.Context(), d); r.Outcome != weir.OutcomeDelivered || r.RememberedID != "8" ||
		!r.IsForgotten {
		t.Errorf("got %+v, want delivered with the id 8, and the id 7 forgotten", r)
	}
}

// If a step has remembered an id and a later step fails, the attempt's result still has the id.
// Without the id, the next attempt would look the item up. If the CMS's index is not up to date,
// the look-up finds nothing, and the attempt would create a second item.
func TestSender_RememberBeforeAFailure(t *testing.T) {
	t.Parallel()
	cms := &store{}
	cms.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		isPublish := strings.HasSuffix(r.URL.Path, "/publish")
		if isPublish {
			answerWith(409, "application/json", `{}`)(w)
		}
		return isPublish
	}

	s := newSender(t,
		articleWithSteps(remembering+
			"      - { post: '/items/{{ remembered ?? create.json.data.id }}/publish' }\n"),
		cms)

	r := s.Send(t.Context(), newDelivery(`<article/>`))
	const want = "GET /items?slug=news-1,POST /items,POST /items/1/publish,PUT /items/1,POST /items/1/publish," +
		"PUT /items/1,POST /items/1/publish"
	if got := strings.Join(cms.requests, ","); r.Outcome != weir.OutcomeRetry ||
		r.RememberedID != "1" || got != want {
		t.Errorf("got %+v with the requests %s; want retry, id 1 and the requests %s", r, got, want)
	}
}

func TestSender_RememberedValues(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 513)
	for name, c := range map[string]struct {
		answer, want string
		outcome      weir.Outcome
		reason       string
	}{
		"Number":  {`{"id":4711}`, "4711", weir.OutcomeDelivered, ""},
		"Text":    {`{"id":"a/b c"}`, "a/b c", weir.OutcomeDelivered, ""},
		"None":    {`{}`, "", weir.OutcomeDelivered, ""},
		"Empty":   {`{"id":" "}`, "", weir.OutcomeDelivered, ""},
		"TooLong": {`{"id":"` + long + `"}`, "", weir.OutcomeDelivered, ""},
		"Object": {`{"id":{}}`, "", weir.OutcomeRetry,
			"remember: an object cannot stand in a text"},
		"HTML": {`<html>`, "", weir.OutcomeRetry, "not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSender(t, articleWithSteps("      - { post: /items, json: {}, remember: '{{ json.id }}' }\n"),
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					answerWith(200, "application/json", c.answer)(w)
				}))

			r := s.Send(t.Context(), newDelivery(`<article/>`))
			if r.Outcome != c.outcome || r.RememberedID != c.want ||
				!strings.Contains(r.Reason, c.reason) {
				t.Errorf("got %+v; want %s, the remembered id %q and a reason with %q", r,
					c.outcome, c.want, c.reason)
			}
		})
	}
}

// A CMS can answer with a status other than 404 and 410 if an item is gone. A rule with "do:
// forget" can name that status.
func TestSender_Forget(t *testing.T) {
	t.Parallel()
	forgetting := strings.Replace(remembering, "        json: *item\n",
		"        json: *item\n        on: [ { when: status == 403, do: forget } ]\n", 1)
	cms := &store{}
	cms.fault = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		if n == 1 {
			answerWith(403, "application/json", `{}`)(w)
		}
		return n == 1
	}

	s := newSender(t, articleWithSteps(forgetting), cms)
	d := newDelivery(`<article/>`)
	d.RememberedID = "7"
	if r := s.Send(t.Context(), d); r.Outcome != weir.OutcomeDelivered || r.RememberedID != "1" ||
		!r.IsForgotten {
		t.Errorf("got %+v, want delivered, IsForgotten, and the id 1 in place of 7", r)
	}
}
