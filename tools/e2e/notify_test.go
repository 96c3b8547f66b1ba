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

// hook is a receiver on loopback.
type hook struct {
	*httptest.Server
	t *testing.T

	mu     sync.Mutex
	status int
	slow   time.Duration
	tries  int
	told   map[string]map[string]string // by message: by webhook-id, the type
}

func newHook(t *testing.T) *hook {
	h := &hook{t: t, status: http.StatusNoContent, told: map[string]map[string]string{}}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	if err != nil || secret.Sign(id, time.Unix(seconds, 0), body) != r.Header.Get("webhook-signature") || time.Since(time.Unix(seconds, 0)).Abs() > time.Minute {
		h.t.Errorf("an event that is not signed as it should be: %v %v %s", err, r.Header, body)
	}
	h.mu.Lock()
	status, slow := h.status, h.slow
	h.tries++
	if status/100 == 2 && slow == 0 {
		if h.told[event.Data.ID] == nil {
			h.told[event.Data.ID] = map[string]string{}
		}
		h.told[event.Data.ID][id] = event.Type
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

func (h *hook) set(status int, slow time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status, h.slow = status, slow
}

func (h *hook) tried() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tries
}

// of gives what was told of a message until now: the types by webhook-id.
func (h *hook) of(id string) map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.told[id])
}

func (h *hook) host() string { return strings.TrimPrefix(h.URL, "http://") }

// withHooks are settings that allow callbacks to these receivers, and have the first told of
// deaths.
func withHooks(hooks ...*hook) []string {
	var hosts []string
	for _, h := range hooks {
		hosts = append(hosts, strconv.Quote(h.host()))
	}
	return []string{"contracts:\n", fmt.Sprintf("callbacks: { allowedHosts: [%s], allowPrivate: true, secret: %s }\nnotify: [{ url: %q, secret: %s, events: [message.dead], allowPrivate: true }]\ncontracts:\n",
		strings.Join(hosts, ", "), webhookSecret, hooks[0].URL+"/deaths", webhookSecret), "lease: 30s", "lease: 15s"}
}

// postTo posts until it is accepted, with a callback.
func (s *system) postTo(callback, path string, version int) (m message) {
	s.t.Helper()
	s.eventually(path+" is accepted", time.Minute, func() bool {
		resp, err := s.postOnce(callback, path, version)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return json.NewDecoder(resp.Body).Decode(&m) == nil && resp.StatusCode == http.StatusAccepted
	})
	return m
}

func (s *system) postOnce(callback, path string, version int) (*http.Response, error) {
	body := fmt.Sprintf(`<article path="%s" version="%d"><title>Version %d</title></article>`, path, version, version)
	req, err := http.NewRequest(http.MethodPost, s.weir+"/api/messages", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/xml")
	req.Header.Set("Idempotency-Key", fmt.Sprintf("%s@%d", path, version))
	req.Header.Set("Weir-Callback", callback)
	return http.DefaultClient.Do(req)
}

// The receiver is away at first, and handlers are killed all along: everybody is called back,
// each event under one webhook-id, and of deaths the operator hears, too.
func TestCallbacks_AcrossKillsAndAnAbsentReceiver(t *testing.T) {
	h := newHook(t)
	s := newSystem(t, 2, withHooks(h)...)
	h.set(http.StatusServiceUnavailable, 0)
	var accepted []message
	for i := range 60 {
		accepted = append(accepted, s.postTo(h.URL+"/done", fmt.Sprintf("/p/%d", i%7), 1+i))
		if i%20 == 10 {
			s.killNext(i / 20)
		}
	}
	s.allFinal(accepted, "delivered", 2*time.Minute)
	s.eventually("the receiver is tried", time.Minute, func() bool { return h.tried() > 0 })
	h.set(http.StatusNoContent, 0)
	s.killNext(1)
	for _, m := range accepted {
		s.eventually(m.ID+" is called back", 3*time.Minute, func() bool { return len(h.of(m.ID)) > 0 })
		if told := h.of(m.ID); len(told) != 1 {
			t.Errorf("%s was told as %v", m.ID, told)
		}
	}
	s.clean()
}

func TestNotify_OfADeath(t *testing.T) {
	h := newHook(t)
	s := newSystem(t, 1, append(withHooks(h), "attempts: 5", "attempts: 1")...)
	s.faults(`{"failPath":"/bad"}`)
	m, err := s.try("/bad", 1, "bad")
	if err != nil {
		t.Fatal(err)
	}
	s.eventually("the operator is told", time.Minute, func() bool { return len(h.of(m.ID)) > 0 })
	for _, kind := range h.of(m.ID) {
		if kind != "message.dead" {
			t.Error(kind)
		}
	}
	for callback, says := range map[string]string{"https://elsewhere.example.com/": "not among those allowed", "ftp://" + h.host(): "https://", h.URL + "/#x": "fragment"} {
		resp, err := s.postOnce(callback, "/x", 1)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(string(text), says) {
			t.Errorf("%s: %d %s", callback, resp.StatusCode, text)
		}
	}
}

// A receiver that takes 30 s slows neither deliveries nor other receivers.
func TestCallbacks_ASlowReceiverSlowsNobody(t *testing.T) {
	slow, quick := newHook(t), newHook(t)
	s := newSystem(t, 1, withHooks(quick, slow)...)
	slow.set(http.StatusNoContent, 30*time.Second)
	var accepted []message
	for i := range 100 {
		to := slow
		if i%10 == 9 {
			to = quick
		}
		accepted = append(accepted, s.postTo(to.URL+"/done", fmt.Sprintf("/p/%d", i%5), 1+i))
	}
	posted := time.Now()
	s.allFinal(accepted, "delivered", 30*time.Second)
	for i, m := range accepted {
		if i%10 == 9 {
			s.eventually(m.ID+" is called back", 30*time.Second, func() bool { return len(quick.of(m.ID)) > 0 })
		}
	}
	t.Logf("all was delivered, and the quick receiver told, %s after the last post; the slow one was tried %d times", time.Since(posted).Round(time.Millisecond), slow.tried())
	if slow.tried() == 0 {
		t.Error("the slow receiver was not tried")
	}
	s.clean()
}
