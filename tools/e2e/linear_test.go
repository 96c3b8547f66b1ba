package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"weir/internal/testkit/linear"
)

// What the tests' clients and the CMS saw of each key is recorded, and held against a model
// of one key (tools/linear).

// nameOf is a message's name in the history: what the CMS reads in its body.
func nameOf(path string, version int) string { return fmt.Sprintf("%s@%d", path, version) }

// recordPost records one post. A refusal counts as an answer that was not seen: a 503 may
// have been filed.
func (s *system) recordPost(path string, version int, sent time.Time, m message, err error) {
	var receipt *linear.Receipt
	if err == nil {
		receipt = &linear.Receipt{ID: m.ID, Sequence: m.Sequence, Duplicate: m.Duplicate}
	}
	s.history.Posted(path, nameOf(path, version), sent, time.Now(), receipt)
}

// readStage reads a message's stage and records it.
func (s *system) readStage(m message) (string, error) {
	asked := time.Now()
	resp, err := http.Get(s.weir + "/api/messages/" + m.ID)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var got message
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		return "", err
	}
	if resp.StatusCode == http.StatusOK && m.version != 0 { // else it was not posted by try
		s.history.Read(m.Key, asked, time.Now(), linear.Seen{Name: nameOf(m.Key, m.version), Stage: got.Stage})
	}
	return got.Stage, nil
}

// linearizes holds what was recorded against the model of one key, when everything has come
// to rest. A key that breaks it is drawn into build/histories.
func (s *system) linearizes(posted []message) {
	s.t.Helper()
	keys := map[string]bool{}
	for _, m := range posted {
		keys[m.Key] = true
	}
	for _, r := range s.requests() {
		if !keys[r.Path] {
			continue
		}
		write := linear.Begin{Name: nameOf(r.Path, r.Version), ID: r.ID, Fence: r.Fence}
		s.history.Began(r.Path, write, r.StartedAt)
		s.history.Ended(r.Path, linear.End{Begin: write, Verdict: verdictOf(r.Status)}, r.EndedAt)
	}
	s.history.Rest(time.Now())
	done, err := s.history.Check(filepath.Join("..", "..", "build", "histories"), s.t.Name())
	if err != nil {
		s.t.Error(err)
	}
	if done.Keys < len(keys) || done.Operations < 3*len(posted) {
		s.t.Errorf("the history has %+v of %d keys and %d messages", done, len(keys), len(posted))
	}
	s.t.Logf("history: %d operations on %d keys", done.Operations, done.Keys)
}

func verdictOf(status int) linear.Verdict {
	switch {
	case status < 0:
		return linear.Lost
	case status/100 == 2:
		return linear.Taken
	}
	return linear.Refused
}
