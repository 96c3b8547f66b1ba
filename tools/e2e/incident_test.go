package e2e_test

import (
	"bytes"
	"context"
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

// cluster is a row of GET /api/errors, as far as the incident needs it.
type cluster struct {
	Fingerprint, Contract, Message string
	CMSStatus, Count, Keys         int
	Sample                         struct{ ID, Key, Reason string }
}

// balance is what a lane tells of its books.
type balance struct {
	Accepted, Delivered, Dead, Cancelled, Superseded, Waiting int64
}

// TestIncident: the CMS rejects 500 messages for a field, is away for a while, and comes
// back. The operator finds the cluster, mends one message by edit and replays the rest with
// a rate cap, while other traffic flows. Nothing is written twice or out of order, and the
// books balance at every moment.
func TestIncident(t *testing.T) {
	newSystem(t, 2, incidentSettings...).passesIncident()
}

// TestIncident_OnFlex is TestIncident with groups on instances of their own, of which the host ends
// those that have no invocation for a while.
func TestIncident_OnFlex(t *testing.T) {
	s := newSystemUnder(t, nil, onFlex(5*time.Second), incidentSettings...)
	s.passesIncident()
	if want := "is scaled in."; !strings.Contains(s.logs.String(), want) {
		t.Errorf("the host did not log %q", want)
	}
}

var incidentSettings = []string{"min: 1s, max: 5m", "min: 100ms, max: 1s"}

func (s *system) passesIncident() {
	t := s.t
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	traffic := s.traffic(ctx, &background)
	s.watchBalance(ctx, &background)

	const keys, each = 100, 5
	s.faults(`{"rejectText":"forbidden-field"}`)
	bad := s.postBad(keys, each)
	s.allFinal(bad, "dead", 2*time.Minute)

	s.faults(`{"down":true}`)
	s.eventually("the CMS is found to be away", time.Minute, func() bool { return s.paused() == "cms" })
	s.faults(`{"rejectText":"forbidden-field"}`)

	found := s.cluster()
	if found.Count != keys*each || found.Keys != keys || found.CMSStatus != http.StatusBadRequest || found.Contract != "article" {
		t.Fatalf("the cluster: %+v", found)
	}
	edited := s.edit(bad[0])
	s.allFinal([]message{edited}, "delivered", time.Minute)

	s.faults(`{}`)
	const overtaken = 5 // keys that got a newer version before their dead are replayed
	newer := s.overtake(overtaken, each+1)
	s.allFinal(newer, "delivered", time.Minute)

	done := s.replayAll(found.Fingerprint, keys*each-1)
	wantRefused := overtaken*each - 1 // the first of them was mended above
	if done.State != "done" || done.Matched != keys*each-1 || done.Refused != wantRefused || done.Delivered != keys*each-1-wantRefused || done.DeadAgain != 0 {
		t.Errorf("the replay: %+v", done)
	}
	stop()
	background.Wait()
	s.allFinal(*traffic, "delivered", time.Minute)
	st := s.clean()
	if want := keys*each - wantRefused + overtaken + len(*traffic); st.Writes != want || st.Repeats != 0 {
		t.Errorf("%d writes were due: %+v", want, st)
	}
	s.inOrder()
	s.linearizes(*traffic)
}

// traffic posts other messages until ctx ends, a few each second.
func (s *system) traffic(ctx context.Context, wg *sync.WaitGroup) *[]message {
	var posted []message
	wg.Go(func() {
		ticker := time.NewTicker(200 * time.Millisecond)
		defer ticker.Stop()
		for version := 1; ; version++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			m, err := s.post(context.WithoutCancel(ctx), fmt.Sprintf("/other/%d", version%7), version)
			if err != nil {
				s.t.Error(err)
				return
			}
			posted = append(posted, m)
		}
	})
	return &posted
}

// watchBalance holds the books to their sum, as often as they can be read.
func (s *system) watchBalance(ctx context.Context, wg *sync.WaitGroup) {
	wg.Go(func() {
		looked := 0
		for ctx.Err() == nil {
			if s.balances().Accepted > 0 { // an answer that tells of a failure balances, too
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

// balances holds the books of each lane to their sum, and returns those of all lanes.
func (s *system) balances() balance {
	s.t.Helper()
	all := get[struct {
		Lanes  []balance
		Totals balance
	}](s, s.weir+"/api/lanes")
	for _, b := range append(all.Lanes, all.Totals) {
		if b.Accepted != b.Delivered+b.Dead+b.Cancelled+b.Superseded+b.Waiting {
			s.t.Errorf("the books do not balance: %+v", b)
		}
	}
	return all.Totals
}

// call sends a request with a body to Weir, and reads JSON from an answer of the status
// wanted.
func call[T any](s *system, method, path, contentType, body string, want int) T {
	s.t.Helper()
	req, err := http.NewRequest(method, s.weir+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != want {
		s.t.Fatalf("%s %s: %s %s %v", method, path, resp.Status, text, err)
	}
	var v T
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&v); err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return v
}

func badBody(key string, version int) string {
	return fmt.Sprintf(`<article path="%s" version="%d"><title>Version %d with a forbidden-field</title></article>`, key, version, version)
}

// postBad posts what the CMS will not take, the versions of a key one after the other.
func (s *system) postBad(keys, each int) []message {
	s.t.Helper()
	all := make([][]message, keys)
	var wg sync.WaitGroup
	for k := range keys {
		wg.Go(func() {
			for v := range each {
				all[k] = append(all[k], call[message](s, http.MethodPost, "/api/messages", "application/xml", badBody(fmt.Sprintf("/bad/%d", k), v+1), http.StatusAccepted))
			}
		})
	}
	wg.Wait()
	return slices.Concat(all...)
}

// paused says who keeps the lane from sending; empty = nobody.
func (s *system) paused() string {
	s.t.Helper()
	return get[struct{ PausedBy string }](s, s.weir+"/api/lanes/0").PausedBy
}

// cluster is the one cluster of errors there is.
func (s *system) cluster() cluster {
	s.t.Helper()
	all := get[struct{ Errors []cluster }](s, s.weir+"/api/errors").Errors
	if len(all) != 1 {
		s.t.Fatalf("clusters: %+v", all)
	}
	return all[0]
}

// edit mends a message: first wrongly, which is refused, then rightly.
func (s *system) edit(m message) message {
	s.t.Helper()
	path := "/api/messages/" + m.ID + "/edit?note=without+the+field"
	refused := call[struct{ Problems []struct{ Message string } }](s, http.MethodPost, path, "application/xml", `<article path="/bad/0" version="1"></article>`, http.StatusUnprocessableEntity)
	if len(refused.Problems) == 0 {
		s.t.Error("a body without title was refused without a reason")
	}
	return call[message](s, http.MethodPost, path, "application/xml", `<article path="/bad/0" version="1"><title>Version 1, mended</title></article>`, http.StatusAccepted)
}

// overtake posts a newer version of the first keys.
func (s *system) overtake(keys, version int) []message {
	s.t.Helper()
	var newer []message
	for k := range keys {
		m, err := s.post(s.t.Context(), fmt.Sprintf("/bad/%d", k), version)
		if err != nil {
			s.t.Fatal(err)
		}
		s.history.Exclude(m.Key, "its dead are replayed")
		newer = append(newer, m)
	}
	return newer
}

// replayAll replays a cluster, after a look at what that would be, and waits for its end.
func (s *system) replayAll(fingerprint string, want int) job {
	s.t.Helper()
	body := fmt.Sprintf(`{"filter":{"fingerprint":%q},"ratePerMinute":3000`, fingerprint)
	if dry := call[struct{ Count int }](s, http.MethodPost, "/api/replays", "application/json", body+`,"dryRun":true}`, http.StatusOK); dry.Count != want {
		s.t.Errorf("the dry run: %+v", dry)
	}
	began := time.Now()
	j := call[job](s, http.MethodPost, "/api/replays", "application/json", body+`}`, http.StatusAccepted)
	s.eventually("the replay ends", 2*time.Minute, func() bool {
		j = get[job](s, s.weir+"/api/replays/"+j.ID)
		return j.State != "running"
	})
	if least := time.Duration(j.Replayed-1) * time.Minute / 3000; time.Since(began) < least*9/10 {
		s.t.Errorf("%d messages in %s are more than 3000 a minute", j.Replayed, time.Since(began))
	}
	return j
}

// inOrder holds the CMS's record to the order of each key: what was written had a higher
// version than all before it.
func (s *system) inOrder() {
	s.t.Helper()
	last := map[string]int{}
	for _, r := range s.requests() {
		if r.Status >= http.StatusBadRequest || r.Status <= 0 {
			continue
		}
		if r.Version <= last[r.Path] {
			s.t.Errorf("%s: version %d was written after %d", r.Path, r.Version, last[r.Path])
		}
		last[r.Path] = r.Version
	}
}
