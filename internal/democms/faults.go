package democms

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Faults selects how writes to the CMS fail or slow down. The zero value selects no fault.
type Faults struct {
	Down bool   `json:"down,omitempty"` // each write gets 503
	Drop bool   `json:"drop,omitempty"` // the connection is closed without an answer
	Hang bool   `json:"hang,omitempty"` // no answer until the fault is cleared
	Slow string `json:"slow,omitempty"` // duration by which each write takes longer
	// each write gets 429 with this Retry-After (a duration)
	TooMany   string `json:"tooMany,omitempty"`
	FailEvery int    `json:"failEvery,omitempty"` // each nth write gets 500
	FailPath  string `json:"failPath,omitempty"`  // 500 for writes of this path
	// 500 for first attempts at a path that begins with this
	FailFirst   string `json:"failFirst,omitempty"`
	FailUnder   string `json:"failUnder,omitempty"`   // 500 for writes whose path begins with this
	RefuseUnder string `json:"refuseUnder,omitempty"` // 403 for writes whose path begins with this
	RejectText  string `json:"rejectText,omitempty"`  // 400 for writes whose body contains this
}

// aborted is the recorded status of a request that got no answer.
const aborted = -1

// hangPoll is the pause after which a hanging request checks again whether the fault Hang is still
// set.
const hangPoll = 10 * time.Millisecond

func (s *Server) setFaults(w http.ResponseWriter, r *http.Request) {
	var f Faults
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16))
	d.DisallowUnknownFields()

	if err := d.Decode(&f); err != nil {
		http.Error(w, "faults: "+err.Error(), http.StatusBadRequest)
		return
	}

	for _, text := range []string{f.Slow, f.TooMany} {
		if _, err := time.ParseDuration(firstNonEmpty(text, "0s")); err != nil {
			http.Error(w, "faults: "+err.Error(), http.StatusBadRequest)
			return
		}
	}

	s.SetFaults(f)
	writeJSON(w, f)
}

func (s *Server) clearFaults(http.ResponseWriter, *http.Request) { s.SetFaults(Faults{}) }

// SetFaults replaces all faults of the CMS. The durations in f are not checked: an invalid Slow is
// no delay, and an invalid TooMany is a 429 with Retry-After 0.
func (s *Server) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

func (s *Server) currentFaults() (Faults, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults, s.requestCount
}

// applyFaults counts a write and delays it as the faults demand. If the write is to fail,
// applyFaults returns the status and the text of the answer. The status "aborted" means no answer,
// and 0 means no failure.
func (s *Server) applyFaults(w http.ResponseWriter, r *http.Request, path string,
	body []byte) (int, string) {
	s.mu.Lock()
	s.requestCount++
	s.mu.Unlock()
	f, n := s.currentFaults()
	if d, err := time.ParseDuration(f.Slow); err == nil {
		time.Sleep(d)
	}

	for f.Hang && r.Context().Err() == nil {
		time.Sleep(hangPoll)
		f, n = s.currentFaults()
	}

	switch {
	case f.Drop:
		return aborted, ""
	case f.Down:
		return http.StatusServiceUnavailable, "down for maintenance"
	case f.TooMany != "":
		d, _ := time.ParseDuration(f.TooMany)
		w.Header().Set("Retry-After", strconv.Itoa(int(d.Seconds())))
		return http.StatusTooManyRequests, "too many writes"

	case f.RejectText != "" && strings.Contains(string(body), f.RejectText):
		return http.StatusBadRequest, fmt.Sprintf("%q is not allowed here", f.RejectText)
	case hasFaultPrefix(path, f.RefuseUnder):
		return http.StatusForbidden, "this writer may not write here"
	case hasFaultPrefix(path, f.FailUnder), f.FailPath != "" &&
		f.FailPath == path, f.FailEvery > 0 &&
		n%f.FailEvery == 0, f.failsFirst(r, path):
		return http.StatusInternalServerError, "internal error: the index is locked"
	}

	return 0, ""
}

func (f Faults) failsFirst(r *http.Request, path string) bool {
	return hasFaultPrefix(path, f.FailFirst) && r.Header.Get("Weir-Attempt") == "1"
}

// hasFaultPrefix reports whether a path begins with a fault's prefix. An empty prefix matches no
// path.
func hasFaultPrefix(path, prefix string) bool {
	return prefix != "" && strings.HasPrefix(path, prefix)
}
