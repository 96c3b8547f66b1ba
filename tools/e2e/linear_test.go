package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"weir/internal/testkit/linear"
)

// The functions below record the posts and reads of the tests, and the CMS's writes, by ordering
// key. checkHistory checks the record of each key against the model in internal/testkit/linear.

// versionName returns the name of a message in the history. A write by the CMS has the name of its
// message.
func versionName(path string, version int) string { return fmt.Sprintf("%s@%d", path, version) }

// recordPost records a post. A post with an error is recorded without an answer, because Weir may
// have appended the message in spite of the error.
func (s *system) recordPost(path string, version int, sent time.Time, m postedMessage, err error) {
	var receipt *linear.Receipt
	if err == nil {
		receipt = &linear.Receipt{ID: m.ID, Sequence: m.Sequence, Duplicate: m.Duplicate}
	}
	s.history.Posted(path, versionName(path, version), sent, time.Now(), receipt)
}

// readStage reads the stage of a message, and records the read in the history.
func (s *system) readStage(m postedMessage) (string, error) {
	asked := time.Now()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet,
		s.weir+"/api/messages/"+m.ID, http.NoBody)
	if err != nil {
		return "", err
	}

	resp, err := s.sendRequest(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var got postedMessage
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		return "", err
	}

	// the history has no messages without a version
	if resp.StatusCode == http.StatusOK && m.version != 0 {
		s.history.Read(m.Key, asked, time.Now(),
			linear.Seen{Name: versionName(m.Key, m.version), Stage: got.Stage})
	}

	return got.Stage, nil
}

// checkHistory checks the history of each key against the model. All messages of the history must
// be final. If a key breaks the model, checkHistory draws the key's history into build/histories.
func (s *system) checkHistory(posted []postedMessage) {
	s.t.Helper()
	keys := map[string]bool{}
	for _, m := range posted {
		keys[m.Key] = true
	}

	for _, r := range s.readRequests() {
		if !keys[r.Path] {
			continue
		}
		write := linear.Begin{Name: versionName(r.Path, r.Version), ID: r.ID, Fence: r.Fence}
		s.history.Began(r.Path, write, r.StartedAt)
		s.history.Ended(r.Path, linear.End{Begin: write, Verdict: verdictOf(r.Status)}, r.EndedAt)
	}

	s.history.Rest(time.Now())
	done, err := s.history.Check(filepath.Join("..", "..", "build", "histories"), s.t.Name())
	if err != nil {
		s.t.Error(err)
	}

	if done.Keys < len(keys) || done.Operations < 3*len(posted) {
		s.t.Errorf("the history has %+v of %d keys and %d messages, want Keys at least %v and Operations at least "+
			"%v", done, len(keys), len(posted), len(keys), 3*len(posted))
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
