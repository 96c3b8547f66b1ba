package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/testkit/azurite"
)

func TestTwoInstances_EverythingInOrderOnce(t *testing.T) {
	inEachMode(t, testTwoInstancesEverythingInOrderOnce)
}

func testTwoInstancesEverythingInOrderOnce(t *testing.T) {
	s := newSystem(t, 2)
	accepted := s.burst(t.Context(), 10, 20)
	s.allFinal(accepted, "delivered", time.Minute)
	if st := s.clean(); st.Writes != 200 || st.Repeats != 0 {
		t.Errorf("%+v", st)
	}
	s.linearizes(accepted)
}

func TestCMSDown_BurnsNoAttempts(t *testing.T) {
	s := newSystem(t, 1, "max: 5m", "max: 2s")
	s.faults(`{"down":true}`)
	accepted := s.burst(t.Context(), 5, 4)
	s.eventually("the lane probes", time.Minute, func() bool { return s.stats().Failures >= 3 })
	s.faults(`{}`)
	s.allFinal(accepted, "delivered", time.Minute)
	for _, m := range accepted {
		if got := get[message](s, s.weir+"/api/messages/"+m.ID); got.Attempts != 1 {
			t.Errorf("%+v", got)
		}
	}
	s.clean()
	s.linearizes(accepted)
}

func TestStorageRestarted_Every202IsDelivered(t *testing.T) {
	s := newSystem(t, 1, "lease: 30s", "lease: 15s")
	ports := s.storage.Ports()
	posted := make(chan []message, 1)
	go func() { posted <- s.burst(t.Context(), 5, 40) }()
	s.eventually("the lane moves", time.Minute, func() bool { return s.stats().Writes >= 20 })
	if err := s.storage.Stop(); err != nil {
		t.Fatal(err)
	}
	s.eventually("the handler notices", 30*time.Second, func() bool { return s.status(s.weir+"/api/health") == http.StatusServiceUnavailable })
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	var err error
	s.storage, err = azurite.Start(ctx, azurite.Options{Dir: s.dir, BlobPort: ports.Blob, QueuePort: ports.Queue, TablePort: ports.Table})
	if err != nil {
		t.Fatal(err)
	}
	accepted := <-posted
	s.allFinal(accepted, "delivered", 2*time.Minute)
	if st := s.clean(); len(accepted) != 200 || st.Writes-st.Repeats != 200 {
		t.Errorf("%d accepted, %+v", len(accepted), st)
	}
	s.linearizes(accepted)
}

func TestFifthFailure_IsDeadAndOthersGoOn(t *testing.T) {
	s := newSystem(t, 1, "min: 1s, max: 5m", "min: 100ms, max: 200ms")
	s.faults(`{"failPath":"/bad"}`)
	bad, err := s.try("/bad", 1, "bad")
	if err != nil {
		t.Fatal(err)
	}
	others := s.burst(t.Context(), 3, 3)
	s.allFinal(others, "delivered", time.Minute)
	s.allFinal([]message{bad}, "dead", time.Minute)
	s.linearizes(append(others, bad))
	got := get[message](s, bad.Location)
	if got.Attempts != 5 || got.CMSStatus != 500 || !strings.Contains(got.LastError, "the index is locked") {
		t.Errorf("%+v", got)
	}
}

func TestAPI(t *testing.T) { inEachMode(t, testAPI) }

func testAPI(t *testing.T) {
	s := newSystem(t, 1)
	first, err := s.try("/a", 1, "k1")
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.try("/a", 1, "k1")
	if err != nil || !again.Duplicate || again.ID != first.ID || first.Duplicate {
		t.Errorf("repeat: %+v %v", again, err)
	}
	if _, err := s.try("/a", 2, "k1"); err == nil || !strings.Contains(err.Error(), "422") {
		t.Errorf("the same key with another body: %v", err)
	}
	if other, err := s.try("/b", 1, "k1"); err != nil || other.Duplicate {
		t.Errorf("the same key for another ordering key: %+v %v", other, err)
	}
	if !strings.HasPrefix(first.Location, s.weir+"/api/messages/") {
		t.Errorf("Location %q", first.Location)
	}
	s.allFinal([]message{first}, "delivered", time.Minute)
	large := fmt.Sprintf(`<article path="/large" version="1"><title>L</title><!-- %s --></article>`, noise(300<<10))
	for name, c := range map[string]struct {
		method, path, kind, body string
		status                   int
		says                     string
	}{
		"NotXML":          {"POST", "/api/messages", "application/xml", "<a", 400, `"line":1`},
		"Empty":           {"POST", "/api/messages", "application/xml", "", 400, "the body is empty"},
		"TooLarge":        {"POST", "/api/messages", "application/xml", "<a>" + strings.Repeat("x", 1<<20) + "</a>", 413, "1048576"},
		"NotXMLType":      {"POST", "/api/messages", "application/json", "{}", 415, "XML"},
		"BreaksRules":     {"POST", "/api/messages", "application/xml", `<article version="x"/>`, 422, `"rule":"number"`},
		"UnknownID":       {"GET", "/api/messages/AQABL714SFvJDd7dAA", "", "", 404, "problem"},
		"NoID":            {"GET", "/api/messages/nonsense", "", "", 404, "not a message"},
		"Large":           {"POST", "/api/messages", "application/xml", large, 202, `"stage":"queued"`},
		"WrongMethodHost": {"PUT", "/api/messages", "application/xml", "<a/>", 404, ""},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequest(c.method, s.weir+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", c.kind)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != c.status || !strings.Contains(string(body)+resp.Header.Get("Content-Type"), c.says) {
				t.Errorf("%d %s %s", resp.StatusCode, resp.Header.Get("Content-Type"), body)
			}
		})
	}
	s.eventually("the large one is delivered", time.Minute, func() bool {
		for _, r := range s.requests() {
			if r.Path == "/large" && r.Status == http.StatusCreated {
				return true
			}
		}
		return false
	})
}

// noise is text that does not compress well.
func noise(n int) string {
	var b strings.Builder
	x := uint32(1)
	for b.Len() < n {
		x = x*1664525 + 1013904223
		b.WriteByte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"[x>>26])
	}
	return b.String()
}
