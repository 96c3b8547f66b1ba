package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"weir/internal/democms"
)

// getStatus sends a GET, and returns the status of the answer; 0 = there was no answer.
func (s *system) getStatus(url string) int {
	resp, err := http.Get(url)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// postStatus sends a POST without a body, and returns the status of the answer; 0 = there was no
// answer.
func (s *system) postStatus(url string) int {
	resp, err := http.Post(url, "", nil)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func getJSON[T any](s *system, url string) T {
	s.t.Helper()
	var v T
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}

	resp, err := s.sendRequest(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		s.t.Fatalf("decode the answer of %s: %v", url, err)
	}

	return v
}

// sendRequest sends a request. If a handler ends during a request, the host answers 500 or 502
// without a body. In a test that kills handlers or ends hosts, sendRequest repeats a GET that got
// such an answer, for up to 30 s, longer on a busy machine (see slowdown).
func (s *system) sendRequest(req *http.Request) (*http.Response, error) {
	for limit := time.Now().Add(slowdown * 30 * time.Second); ; {
		resp, err := http.DefaultClient.Do(req)
		if err != nil || req.Method != http.MethodGet || !s.hasKilled.Load() ||
			time.Now().After(limit) {
			return resp, err
		}

		if resp.ContentLength > 0 || resp.StatusCode != http.StatusInternalServerError &&
			resp.StatusCode != http.StatusBadGateway {
			return resp, nil
		}

		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()

		if err == nil && len(text) > 0 {
			resp.Body = io.NopCloser(bytes.NewReader(text))
			return resp, nil
		}
	}
}

func (s *system) readStats() democms.Stats {
	s.t.Helper()
	return getJSON[democms.Stats](s, s.cms+"/stats")
}
func (s *system) readRequests() []democms.Request {
	s.t.Helper()
	return getJSON[[]democms.Request](s, s.cms+"/requests")
}

// setFaults replaces the faults of the demo CMS.
func (s *system) setFaults(json string) {
	s.t.Helper()
	resp, err := http.Post(s.cms+"/faults", "application/json", strings.NewReader(json))
	if err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("faults %s: %v %v, want status 200 and no error", json, resp, err)
	}
	resp.Body.Close()
}

// postedMessage has some fields of the answers of functions/receive and functions/status.
type postedMessage struct {
	ID, Stage, Key, LastError string
	Attempts, CMSStatus       int
	Sequence                  int64
	Duplicate                 bool
	Location                  string `json:"-"`
	version                   int    // version that the test posted; 0 = unknown
}

// postMessageOnce posts a message once, and records the post in s.history.
func (s *system) postMessageOnce(path string, version int,
	idempotencyKey string) (postedMessage, error) {
	sent := time.Now()
	m, err := s.sendPost(path, version, idempotencyKey)
	s.recordPost(path, version, sent, m, err)
	return m, err
}

func versionedArticle(path string, version int) string {
	return fmt.Sprintf(`<article path="%s" version="%d"><title>Version %d</title></article>`, path,
		version, version)
}

// keyOf returns the Idempotency-Key that tests send with a version.
func keyOf(path string, version int) string { return fmt.Sprintf("%s@%d", path, version) }

// sendPost posts a message once, without an entry in s.history.
func (s *system) sendPost(path string, version int, idempotencyKey string) (postedMessage, error) {
	req, err := http.NewRequest(http.MethodPost, s.weir+"/api/messages",
		strings.NewReader(versionedArticle(path, version)))
	if err != nil {
		return postedMessage{}, err
	}

	req.Header.Set("Content-Type", "application/xml")
	req.Header.Set("Idempotency-Key", idempotencyKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return postedMessage{}, err
	}
	defer resp.Body.Close()

	if resp.StatusCode != http.StatusAccepted {
		text, _ := io.ReadAll(resp.Body)
		return postedMessage{}, fmt.Errorf("%s: %s", resp.Status, text)
	}

	m := postedMessage{Location: resp.Header.Get("Location"), version: version}

	return m, json.NewDecoder(resp.Body).Decode(&m)
}

// postUntilAccepted repeats a post with the same Idempotency-Key until Weir accepts the message or
// ctx ends.
func (s *system) postUntilAccepted(ctx context.Context, path string,
	version int) (postedMessage, error) {
	for {
		m, err := s.postMessageOnce(path, version, keyOf(path, version))
		if err == nil {
			return m, nil
		}

		select {
		case <-ctx.Done():
			return m, errors.Join(err, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// postBurst posts the versions 1 to n of each path. Each path has one client, which posts the
// versions in order. postBurst returns the accepted messages.
func (s *system) postBurst(ctx context.Context, paths, n int) []postedMessage {
	return s.postBurstFrom(ctx, paths, n, 1)
}

// postBurstFrom is postBurst with n versions from the version "first" on.
func (s *system) postBurstFrom(ctx context.Context, paths, n, first int) []postedMessage {
	var mu sync.Mutex
	var accepted []postedMessage
	var wg sync.WaitGroup
	for p := range paths {
		wg.Go(func() {
			for v := range n {
				m, err := s.postUntilAccepted(ctx, fmt.Sprintf("/p/%d", p), first+v)
				if err != nil {
					return // ctx has ended, and an ended test cannot report an error
				}

				if v%4 == 0 {
					// for the history; an error means that the test has killed the handler
					_, _ = s.readStage(m)
				}

				mu.Lock()
				accepted = append(accepted, m)
				mu.Unlock()
			}
		})
	}

	wg.Wait()

	return accepted
}

func (s *system) awaitStages(messages []postedMessage, stage string, limit time.Duration) {
	s.t.Helper()
	deadline := time.Now().Add(slowdown * limit)
	for _, m := range messages {
		s.awaitConditionUntil(fmt.Sprintf("%s is %s", m.ID, stage), deadline, func() bool {
			got, err := s.readStage(m)
			if err != nil {
				s.t.Fatalf("ask for message %s: %v", m.ID, err)
			}
			return got == stage
		})
	}
}

// checkRecord checks the CMS's record of a system with one lane. No path has two items, no writes
// overlap, and no write is out of its key's order. A message can have been written more than once.
func (s *system) checkRecord() democms.Stats {
	s.t.Helper()
	st := s.readStats()
	if st.Duplicates != 0 || st.Overlaps != 0 || st.Inversions != 0 || st.MaxConcurrent > 1 {
		s.t.Errorf("the CMS's record: %+v, want Duplicates 0, Overlaps 0, Inversions 0 and MaxConcurrent at most 1",
			st)
	}
	return st
}
