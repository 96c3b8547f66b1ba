package steps_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"weir/internal/weir"
)

const upsert = `
      - name: find
        get: /items?slug={{ slug(key) }}&fields=id
      - name: create
        when: len(find.json.data) == 0
        post: /items
        json: &item
          slug: "{{ slug(key) }}"
          title: "{{ text('./title') }}"
          absent: "{{ text('./absent') }}"
          tags: "{{ texts('./tag') }}"
          price: "{{ number('./price') }}"
      - name: update
        when: len(find.json.data) == 1
        put: /items/{{ find.json.data[0].id }}
        json: *item
`

// store is a simulated CMS. A GET finds an item by its slug.
type store struct {
	mu       sync.Mutex
	items    map[int]map[string]any
	requests []string
	keys     []string // the Idempotency-Keys of the requests
	// fault is called before the store carries out request number n; the first request has number
	// 1. If fault returns true, it has answered the request, and the store does not carry out the
	// request.
	fault func(n int, w http.ResponseWriter, r *http.Request) bool
	// after is called when request number n was carried out. If it returns true, it has answered
	// the request in place of the store.
	after func(n int, w http.ResponseWriter, r *http.Request) bool
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
	s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
	n := len(s.requests)
	if s.fault != nil && s.fault(n, w, r) {
		return
	}

	var item map[string]any
	body, _ := io.ReadAll(r.Body)
	if len(body) > 0 {
		if err := json.Unmarshal(body, &item); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}

	status, answer := s.serveItem(r, item)
	if s.after != nil && s.after(n, w, r) {
		return
	}

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

func (s *store) serveItem(r *http.Request, item map[string]any) (int, any) {
	if s.items == nil {
		s.items = map[int]map[string]any{}
	}

	switch r.Method {
	case http.MethodGet:
		found := []any{}
		for id, it := range s.items {
			if it["slug"] == r.URL.Query().Get("slug") {
				found = append(found, map[string]any{"id": id})
			}
		}
		return 200, map[string]any{"data": found}

	case http.MethodPost:
		s.items[len(s.items)+1] = item
		return 201, map[string]any{"data": map[string]any{"id": len(s.items)}}
	}

	var id int
	if _, err := fmt.Sscanf(r.URL.Path, "/items/%d", &id); err != nil || s.items[id] == nil {
		return 404, map[string]any{"message": "no such item"}
	}

	s.items[id] = item

	return 200, map[string]any{"data": map[string]any{"id": id}}
}

func TestSender_CreatesAndUpdates(t *testing.T) {
	t.Parallel()
	cms := &store{}
	s := newSender(t, articleWithSteps(upsert), cms)
	d := newDelivery(
		`<article id="/news/1"><title>A "b" {{ key }}</title><tag>x</tag><tag>y</tag><price>12.5</price></article>`,
	)

	for i, want := range []string{"GET /items?slug=news-1&fields=id,POST /items",
		"GET /items?slug=news-1&fields=id,PUT /items/1"} {
		cms.requests = nil
		r := s.Send(t.Context(), d)
		if got := strings.Join(cms.requests, ","); r.Outcome != weir.OutcomeDelivered ||
			got != want ||
			len(r.Steps) != 2 {
			t.Errorf("attempt %d: got %+v with the requests %s, want delivered with %s", i,
				r, got, want)
		}
	}

	item := cms.items[1]
	if len(cms.items) != 1 || item["title"] != `A "b" {{ key }}` || item["price"] != 12.5 ||
		fmt.Sprint(item["tags"]) != "[x y]" {
		t.Errorf("got %v, want 1 item, title A \"b\" {{ key }}, price 12.5 and tags [x y]",
			cms.items)
	}

	if _, has := item["absent"]; has {
		t.Errorf("got %v, want no field absent", item)
	}

	id := d.Message.Public().String()
	if want := []string{id + "/find", id + "/create", id + "/find", id + "/update"}; fmt.Sprint(
		cms.keys,
	) != fmt.Sprint(
		want,
	) {
		t.Errorf("Idempotency-Keys: got %v, want %v", cms.keys, want)
	}
}
