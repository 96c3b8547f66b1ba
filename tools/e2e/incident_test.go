package e2e_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// errorCluster has the fields that the test reads from an element of GET /api/errors.
type errorCluster struct {
	Fingerprint, Contract, Message string
	CMSStatus, Count, Keys         int
	Sample                         struct{ ID, Key, Reason string }
}

// laneBalance has the numbers of messages in one lane or in all lanes.
type laneBalance struct {
	Accepted, Delivered, Dead, Cancelled, Superseded, Discarded, Waiting int64
}

// The CMS rejects 500 messages with a forbidden field, and then is unavailable for a while. The
// operator finds the group of dead messages, corrects one message, and replays the others at a
// limited rate. Other messages arrive meanwhile. The CMS gets no message twice or out of order, and
// the counters balance at all times.
func TestIncident(t *testing.T) {
	newSystem(t, 2, incidentSettings...).runIncident()
}

var incidentSettings = []string{"min: 1s, max: 5m", "min: 100ms, max: 1s"}

func (s *system) runIncident() {
	t := s.t
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	traffic := s.startTraffic(ctx, &background)
	s.watchBalance(ctx, &background)

	const keys, each = 100, 5
	s.setFaults(`{"rejectText":"forbidden-field"}`)
	bad := s.postBad(keys, each)
	s.awaitStages(bad, "dead", 2*time.Minute)

	s.setFaults(`{"down":true}`)
	s.awaitCondition("the CMS is found to be away", time.Minute,
		func() bool { return s.pausedBy() == "cms" })
	s.setFaults(`{"rejectText":"forbidden-field"}`)

	found := s.readCluster()
	if found.Count != keys*each || found.Keys != keys || found.CMSStatus != http.StatusBadRequest ||
		found.Contract != "article" {
		t.Fatalf("the cluster: %+v, want Count %v, Keys %v, CMSStatus 400 and Contract article",
			found, keys*each, keys)
	}

	edited := s.editMessage(bad[0])
	s.awaitStages([]postedMessage{edited}, "delivered", time.Minute)

	s.setFaults(`{}`)
	const overtaken = 5 // number of keys that get a newer version before the replay
	newer := s.postNewer(overtaken, each+1)
	s.awaitStages(newer, "delivered", time.Minute)

	done := s.replayAll(found.Fingerprint, keys*each-1)

	// the operator has already corrected one of these dead messages
	wantRefused := overtaken*each - 1
	if done.State != "done" || done.Matched != keys*each-1 || done.Refused != wantRefused ||
		done.Delivered != keys*each-1-wantRefused || done.DeadAgain != 0 {
		t.Errorf("the replay: %+v, want State done, Matched %v, Refused %v, Delivered %v and DeadAgain 0", done,
			keys*each-1, wantRefused, keys*each-1-wantRefused)
	}

	stop()
	background.Wait()
	s.awaitStages(*traffic, "delivered", time.Minute)
	st := s.checkRecord()
	if want := keys*each - wantRefused + overtaken + len(*traffic); st.Writes != want ||
		st.Repeats != 0 {
		t.Errorf("%d writes were due: %+v, want Writes %v and Repeats 0", want, st, want)
	}

	s.checkKeyOrder()
	s.checkHistory(*traffic)
}

// startTraffic posts up to five messages per second until ctx ends. Their keys are /other/0 to
// /other/6. The caller must not read the result before wg.Wait returns.
func (s *system) startTraffic(ctx context.Context, wg *sync.WaitGroup) *[]postedMessage {
	var posted []postedMessage
	wg.Go(func() {
		ticker := time.NewTicker(200 * time.Millisecond)
		defer ticker.Stop()

		for version := 1; ; version++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}

			m, err := s.postUntilAccepted(context.WithoutCancel(ctx),
				fmt.Sprintf("/other/%d", version%7), version)
			if err != nil {
				s.t.Error(err)
				return
			}

			posted = append(posted, m)
		}
	})

	return &posted
}

// watchBalance calls readBalance each 100 ms until ctx ends.
func (s *system) watchBalance(ctx context.Context, wg *sync.WaitGroup) {
	wg.Go(func() {
		looked := 0
		for ctx.Err() == nil {
			// after a failed request all counts are zero, and would balance
			if s.readBalance().Accepted > 0 {
				looked++
			}

			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}

		if looked < 10 {
			s.t.Errorf("the books were looked at %d times only", looked)
		}
	})
}

// readBalance checks that the counts of each lane balance, and returns the totals of all lanes.
func (s *system) readBalance() laneBalance {
	s.t.Helper()
	all := getJSON[struct {
		Lanes  []laneBalance
		Totals laneBalance
	}](s, s.weir+"/api/lanes")
	for _, b := range append(all.Lanes, all.Totals) {
		if b.Accepted != b.Delivered+b.Dead+b.Cancelled+b.Superseded+b.Discarded+b.Waiting {
			s.t.Errorf("the books do not balance: %+v", b)
		}
	}

	return all.Totals
}

// callAPI sends a request to Weir, checks the status of the answer, and decodes the answer's JSON.
// If the answer is 503, callAPI repeats the request for up to a minute, as each client should: on a
// busy machine storage can be too slow for one request. The header Idempotency-Key keeps a repeated
// post from becoming a second message.
func callAPI[T any](s *system, method, path, contentType, body string, want int) T {
	s.t.Helper()
	key := ""
	if path == "/api/messages" {
		key = rand.Text()
	}

	status, text := s.callOnce(method, path, contentType, body, key)
	for limit := time.Now().Add(slowdown * time.Minute); status == http.StatusServiceUnavailable &&
		time.Now().Before(limit); {
		<-time.After(time.Second)
		status, text = s.callOnce(method, path, contentType, body, key)
	}

	if status != want {
		s.t.Fatalf("%s %s: got %d %s, want status %d", method, path, status, text, want)
	}

	var v T
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&v); err != nil {
		s.t.Fatalf("%s %s: decode the answer: %v", method, path, err)
	}

	return v
}

// callOnce sends a request to Weir, and returns the status and body of the answer. If key is "",
// the request has no Idempotency-Key.
func (s *system) callOnce(method, path, contentType, body, key string) (status int, answer []byte) {
	s.t.Helper()
	req, err := http.NewRequest(method, s.weir+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}

	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}

	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}

	resp, err := s.sendRequest(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("%s %s: read the answer: %v", method, path, err)
	}

	return resp.StatusCode, answer
}

func badArticle(key string, version int) string {
	return fmt.Sprintf(`<article path="%s" version="%d"><title>Version %d with a forbidden-field</title></article>`,
		key, version, version)
}

// postBad posts messages that the CMS rejects. It posts the versions of a key one after the other.
func (s *system) postBad(keys, each int) []postedMessage {
	s.t.Helper()
	all := make([][]postedMessage, keys)
	var wg sync.WaitGroup
	for k := range keys {
		wg.Go(func() {
			for v := range each {
				all[k] = append(all[k],
					callAPI[postedMessage](s, http.MethodPost, "/api/messages", "application/xml",
						badArticle(fmt.Sprintf("/bad/%d", k), v+1), http.StatusAccepted))
			}
		})
	}

	wg.Wait()

	return slices.Concat(all...)
}

// pausedBy returns the field pausedBy of lane 0. The field is "" if the lane is not paused.
func (s *system) pausedBy() string {
	s.t.Helper()
	return getJSON[struct{ PausedBy string }](s, s.weir+"/api/lanes/0").PausedBy
}

// readCluster returns the only error of GET /api/errors. If there is not exactly one, the test
// fails.
func (s *system) readCluster() errorCluster {
	s.t.Helper()
	all := getJSON[struct{ Errors []errorCluster }](s, s.weir+"/api/errors").Errors
	if len(all) != 1 {
		s.t.Fatalf("clusters: %+v, want one", all)
	}
	return all[0]
}

// editMessage edits the dead message m of the key /bad/0. Weir refuses the first body, which is
// invalid, and accepts the second.
func (s *system) editMessage(m postedMessage) postedMessage {
	s.t.Helper()
	path := "/api/messages/" + m.ID + "/edit?note=without+the+field"
	refused := callAPI[struct{ Problems []struct{ Message string } }](s, http.MethodPost, path,
		"application/xml",
		`<article path="/bad/0" version="1"></article>`, http.StatusUnprocessableEntity)
	if len(refused.Problems) == 0 {
		s.t.Error("a body without title was refused without a reason")
	}

	return callAPI[postedMessage](s, http.MethodPost, path, "application/xml",
		`<article path="/bad/0" version="1"><title>Version 1, mended</title></article>`,
		http.StatusAccepted)
}

// postNewer posts a newer version to some keys with dead messages. It excludes these keys from
// checkHistory, because checkHistory does not know replays.
func (s *system) postNewer(keys, version int) []postedMessage {
	s.t.Helper()
	var newer []postedMessage
	for k := range keys {
		m, err := s.postUntilAccepted(s.t.Context(), fmt.Sprintf("/bad/%d", k), version)
		if err != nil {
			s.t.Fatal(err)
		}
		s.history.Exclude(m.Key, "its dead are replayed")
		newer = append(newer, m)
	}

	return newer
}

// replayAll replays all dead messages with a fingerprint, and checks the rate of the replay. It
// first makes a dry run. The dry run must count "want" messages.
func (s *system) replayAll(fingerprint string, want int) replayJob {
	s.t.Helper()
	body := fmt.Sprintf(`{"filter":{"fingerprint":%q},"ratePerMinute":3000`, fingerprint)
	if dry := callAPI[struct{ Count int }](s, http.MethodPost, "/api/replays", "application/json",
		body+`,"dryRun":true}`, http.StatusOK); dry.Count != want {
		s.t.Errorf("the dry run: %+v, want Count %v", dry, want)
	}

	began := time.Now()
	j := s.startReplay(body + `}`)
	s.awaitCondition("the replay ends", 2*time.Minute, func() bool {
		j = getJSON[replayJob](s, s.weir+"/api/replays/"+j.ID)
		return j.State != "running"
	})

	if least := time.Duration(j.Replayed-1) * time.Minute / 3000; time.Since(began) < least*9/10 {
		s.t.Errorf("%d messages in %s are more than 3000 a minute", j.Replayed, time.Since(began))
	}

	return j
}

// startReplay starts a replay, and returns it. On a busy machine Weir can answer 503 because
// storage was too slow. Then the replay may have begun nevertheless, so startReplay looks for it in
// the list before it tries again.
func (s *system) startReplay(body string) (started replayJob) {
	s.t.Helper()
	s.awaitCondition("the replay begins", time.Minute, func() bool {
		status, _, said := s.requestJSON(http.MethodPost, s.weir+"/api/replays", body,
			"Content-Type", "application/json")
		switch status {
		case http.StatusAccepted:
			started.ID, _ = said["id"].(string)
			return true
		case http.StatusServiceUnavailable:
			list := getJSON[struct{ Replays []replayJob }](s, s.weir+"/api/replays").Replays
			if len(list) > 0 {
				started = list[0]
			}
			return len(list) > 0
		}

		s.t.Fatalf("POST /api/replays: got %d %v, want 202", status, said)
		return false
	})

	return started
}

// checkKeyOrder checks the successful writes in the CMS's record. Each write must have a higher
// version than all earlier writes of its key.
func (s *system) checkKeyOrder() {
	s.t.Helper()
	last := map[string]int{}
	for _, r := range s.readRequests() {
		if r.Status >= http.StatusBadRequest || r.Status <= 0 {
			continue
		}

		if r.Version <= last[r.Path] {
			s.t.Errorf("%s: version %d was written after %d, want more than %v", r.Path, r.Version,
				last[r.Path], last[r.Path])
		}

		last[r.Path] = r.Version
	}
}
