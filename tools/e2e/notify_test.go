package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/notify"
)

const webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// webhookReceiver is a receiver of events and callbacks on loopback. It checks the signature of
// each request.
type webhookReceiver struct {
	*httptest.Server
	t *testing.T

	mu     sync.Mutex
	status int                          // status of the answers
	slow   time.Duration                // delay before each answer; 0 = none
	tries  int                          // number of requests so far
	events map[string]map[string]string // types of the recorded events, by message and webhook-id
}

func newReceiver(t *testing.T) *webhookReceiver {
	h := &webhookReceiver{t: t, status: http.StatusNoContent,
		events: map[string]map[string]string{}}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

// ServeHTTP checks and counts an event, and answers as setAnswer has set. It records the event if
// this answer is 2xx without a delay.
func (h *webhookReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var event struct {
		Type string
		Data struct{ ID string }
	}

	if err == nil {
		err = json.Unmarshal(body, &event)
	}

	secret, _ := notify.ParseSecret(webhookSecret)
	seconds, _ := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64)
	id := r.Header.Get("webhook-id")
	if err != nil || secret.Sign(id, time.Unix(seconds, 0), body) !=
		r.Header.Get("webhook-signature") ||
		time.Since(time.Unix(seconds, 0)).Abs() > time.Minute {
		h.t.Errorf("got an event with %v %v %s, want a valid signature of the last minute", err,
			r.Header, body)
	}

	h.mu.Lock()
	status, slow := h.status, h.slow
	h.tries++
	if status/100 == 2 && slow == 0 {
		if h.events[event.Data.ID] == nil {
			h.events[event.Data.ID] = map[string]string{}
		}
		h.events[event.Data.ID][id] = event.Type
	}

	h.mu.Unlock()

	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-r.Context().Done():
		}
	}

	w.WriteHeader(status)
}

func (h *webhookReceiver) setAnswer(status int, slow time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status, h.slow = status, slow
}

func (h *webhookReceiver) countTries() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tries
}

// eventsOf returns the types of a message's recorded events, by webhook-id.
func (h *webhookReceiver) eventsOf(id string) map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.events[id])
}

func (h *webhookReceiver) hostName() string { return strings.TrimPrefix(h.URL, "http://") }

// receiverSettings returns replacements in weir.yaml. They allow callbacks to the given receivers,
// send events of dead messages to the first receiver, and shorten the lease.
func receiverSettings(hooks ...*webhookReceiver) []string {
	var hosts []string
	for _, h := range hooks {
		hosts = append(hosts, strconv.Quote(h.hostName()))
	}

	return []string{"contracts:\n", fmt.Sprintf(
		"callbacks: { allowedHosts: [%s], allowPrivate: true, secret: %s }\nnotify: [{ url: %q, secret: %s, events: "+
			"[message.dead], allowPrivate: true }]\ncontracts:\n",
		strings.Join(hosts, ", "), webhookSecret, hooks[0].URL+"/deaths", webhookSecret),
		"lease: 30s", "lease: 15s"}
}

// postWithCallback repeats a post with a callback until Weir accepts the message.
func (s *system) postWithCallback(callback, path string, version int) (m postedMessage) {
	s.t.Helper()
	s.awaitCondition(path+" is accepted", time.Minute, func() bool {
		resp, err := s.postCallbackOnce(callback, path, version)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return json.NewDecoder(resp.Body).Decode(&m) == nil &&
			resp.StatusCode == http.StatusAccepted
	})

	return m
}

func (s *system) postCallbackOnce(callback, path string, version int) (*http.Response, error) {
	body := fmt.Sprintf(`<article path="%s" version="%d"><title>Version %d</title></article>`, path,
		version, version)
	req, err := http.NewRequest(http.MethodPost, s.weir+"/api/messages", strings.NewReader(body))
	if err != nil {
		return nil, err
	}

	req.Header.Set("Content-Type", "application/xml")
	req.Header.Set("Idempotency-Key", fmt.Sprintf("%s@%d", path, version))
	req.Header.Set("Weir-Callback", callback)

	return http.DefaultClient.Do(req)
}

// At first the receiver answers all callbacks with 503, and the test kills handlers. Afterwards the
// receiver still gets the callback of each message, under one webhook-id.
func TestCallbacks_AcrossKillsAndAnAbsentReceiver(t *testing.T) {
	h := newReceiver(t)
	s := newSystem(t, 2, receiverSettings(h)...)
	h.setAnswer(http.StatusServiceUnavailable, 0)
	var accepted []postedMessage
	for i := range 60 {
		accepted = append(accepted,
			s.postWithCallback(h.URL+"/done", fmt.Sprintf("/p/%d", i%7), 1+i))
		if i%20 == 10 {
			s.killNext(i / 20)
		}
	}

	s.awaitStages(accepted, "delivered", 2*time.Minute)
	s.awaitCondition("the receiver is tried", time.Minute,
		func() bool { return h.countTries() > 0 })
	h.setAnswer(http.StatusNoContent, 0)
	s.killNext(1)

	for _, m := range accepted {
		s.awaitCondition(m.ID+" is called back", 3*time.Minute,
			func() bool { return len(h.eventsOf(m.ID)) > 0 })
		if told := h.eventsOf(m.ID); len(told) != 1 {
			t.Errorf("the events of %s are %v, want one", m.ID, told)
		}
	}

	s.checkRecord()
}

// Weir sends the event of a dead message to the operator's receiver. Weir refuses a post whose
// callback address is not allowed.
func TestNotify_OfADeath(t *testing.T) {
	h := newReceiver(t)
	s := newSystem(t, 1, append(receiverSettings(h), "attempts: 5", "attempts: 1")...)
	s.setFaults(`{"failPath":"/bad"}`)
	m, err := s.postMessageOnce("/bad", 1, "bad")
	if err != nil {
		t.Fatal(err)
	}

	s.awaitCondition("the operator is told", time.Minute,
		func() bool { return len(h.eventsOf(m.ID)) > 0 })

	for _, kind := range h.eventsOf(m.ID) {
		if kind != "message.dead" {
			t.Errorf("got %v, want message.dead", kind)
		}
	}

	for callback, says := range map[string]string{
		"https://elsewhere.example.com/": "not among those allowed",
		"ftp://" + h.hostName():          "https://", h.URL + "/#x": "fragment"} {
		resp, err := s.postCallbackOnce(callback, "/x", 1)
		if err != nil {
			t.Fatal(err)
		}

		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()

		if resp.StatusCode != http.StatusUnprocessableEntity ||
			!strings.Contains(string(text), says) {
			t.Errorf("%s: got %d %s, want 422 with the reason", callback, resp.StatusCode, text)
		}
	}
}

// A receiver that answers after 30 s does not delay deliveries or other receivers.
func TestCallbacks_ASlowReceiverDelaysNoOther(t *testing.T) {
	slow, quick := newReceiver(t), newReceiver(t)
	s := newSystem(t, 1, receiverSettings(quick, slow)...)
	slow.setAnswer(http.StatusNoContent, 30*time.Second)
	var accepted []postedMessage
	for i := range 100 {
		to := slow
		if i%10 == 9 {
			to = quick
		}
		accepted = append(accepted,
			s.postWithCallback(to.URL+"/done", fmt.Sprintf("/p/%d", i%5), 1+i))
	}

	posted := time.Now()
	s.awaitStages(accepted, "delivered", 30*time.Second)

	for i, m := range accepted {
		if i%10 == 9 {
			s.awaitCondition(m.ID+" is called back", 30*time.Second,
				func() bool { return len(quick.eventsOf(m.ID)) > 0 })
		}
	}

	t.Logf("all was delivered, and the quick receiver told, %s after the last post; the slow one was tried %d times",
		time.Since(posted).Round(time.Millisecond), slow.countTries())
	if slow.countTries() == 0 {
		t.Error("the slow receiver was never tried, want some tries")
	}

	s.checkRecord()
}
