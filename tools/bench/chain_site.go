package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// chainSite is a CMS that needs several requests for each message. It is safe for concurrent use.
type chainSite struct {
	latency   time.Duration // latency of each request
	tokenLife time.Duration // lifetime of a token; 0 = no sign-in is needed
	remembers bool          // Weir's steps remember the ids of items
	mux       *http.ServeMux

	mu     sync.Mutex
	items  []*chainItem         // by id
	tokens map[string]time.Time // when each token expires
	stats  chainStats
}

type chainItem struct {
	Ref     string `json:"ref"`
	Version int    `json:"version"`
	shown   int    // the last published version; 0 = none
}

type chainStats struct {
	requests     int // requests with a valid token, or without sign-in
	unauthorized int // requests without a valid token
	tokens       int // tokens that were issued
	items        int
	newest       int       // items whose newest version is published; 0 if there were inversions
	duplicates   int       // items with the same ref as an earlier item
	inversions   int       // updates that lowered an item's version
	endedAt      time.Time // end of the last request
}

const chainBase = "/api/content"

func newChainSite(latency, tokenLife time.Duration) *chainSite {
	s := &chainSite{latency: latency, tokenLife: tokenLife, mux: http.NewServeMux(),
		tokens: map[string]time.Time{}}
	s.mux.HandleFunc("POST "+chainBase, func(http.ResponseWriter, *http.Request) {
		time.Sleep(s.latency) // measureTrips posts to this address, which stores nothing
	})
	s.mux.HandleFunc("POST "+chainBase+"/token", s.giveToken)
	s.mux.HandleFunc("GET "+chainBase+"/items", s.serveStep(s.findItem))
	s.mux.HandleFunc("POST "+chainBase+"/items", s.serveStep(s.createItem))
	s.mux.HandleFunc("PUT "+chainBase+"/items/{id}", s.serveStep(s.updateItem))
	s.mux.HandleFunc("POST "+chainBase+"/items/{id}/publish", s.serveStep(s.publishItem))

	return s
}

// ServeHTTP implements http.Handler.
func (s *chainSite) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// giveToken answers like a token endpoint of OAuth2. It accepts all credentials.
func (s *chainSite) giveToken(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.tokens++
	token := fmt.Sprint("token-", time.Now().UnixNano())
	s.tokens[token] = time.Now().Add(s.tokenLife)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":%g}`, token,
		s.tokenLife.Seconds())
}

// serveStep returns a handler that checks the token, waits for the latency, and answers with the
// result of the function "handle". The handler calls "handle" with mu locked.
func (s *chainSite) serveStep(handle func(*http.Request) (int, any)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.isSignedIn(r) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}

		time.Sleep(s.latency)
		s.mu.Lock()
		status, answer := handle(r)
		s.stats.requests++
		s.stats.endedAt = time.Now()
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer) // an error means that the client has gone
	}
}

// isSignedIn reports whether a request has a valid token or needs none. Otherwise it counts the
// request as unauthorized.
func (s *chainSite) isSignedIn(r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	isGood := s.tokenLife == 0 || time.Now().Before(s.tokens[token])
	if !isGood {
		s.stats.unauthorized++
	}

	return isGood
}

func (s *chainSite) findItem(r *http.Request) (int, any) {
	found := []map[string]int{}
	for id, it := range s.items {
		if it.Ref == r.URL.Query().Get("ref") {
			found = append(found, map[string]int{"id": id})
		}
	}
	return http.StatusOK, map[string]any{"items": found}
}

func (s *chainSite) createItem(r *http.Request) (int, any) {
	it := &chainItem{}
	if err := json.NewDecoder(r.Body).Decode(it); err != nil {
		return http.StatusBadRequest, map[string]string{"message": err.Error()}
	}
	s.items = append(s.items, it)
	return http.StatusCreated, map[string]int{"id": len(s.items) - 1}
}

func (s *chainSite) updateItem(r *http.Request) (int, any) {
	id, it := s.itemOf(r)
	if it == nil {
		return http.StatusNotFound, map[string]string{"message": "no such item"}
	}

	before := it.Version
	if err := json.NewDecoder(r.Body).Decode(it); err != nil {
		return http.StatusBadRequest, map[string]string{"message": err.Error()}
	}

	if it.Version < before {
		s.stats.inversions++
	}

	return http.StatusOK, map[string]int{"id": id}
}

func (s *chainSite) publishItem(r *http.Request) (int, any) {
	id, it := s.itemOf(r)
	if it == nil {
		return http.StatusNotFound, map[string]string{"message": "no such item"}
	}
	it.shown = it.Version
	return http.StatusOK, map[string]int{"id": id}
}

// itemOf returns the id in the request's path, and the item with this id. If no such item exists,
// the item is nil.
func (s *chainSite) itemOf(r *http.Request) (int, *chainItem) {
	id, err := strconv.Atoi(r.PathValue("id"))
	if err != nil || id < 0 || id >= len(s.items) {
		return 0, nil
	}
	return id, s.items[id]
}

// resetStats clears the counts and removes the items. Tokens stay valid.
func (s *chainSite) resetStats() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats, s.items = chainStats{}, nil
}

// readStats returns the counts, and computes those that depend on the items.
func (s *chainSite) readStats() chainStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, seen := s.stats, map[string]bool{}
	for _, it := range s.items {
		st.items++
		if it.shown == it.Version && st.inversions == 0 {
			st.newest++
		}

		if seen[it.Ref] {
			st.duplicates++
		}

		seen[it.Ref] = true
	}

	return st
}
