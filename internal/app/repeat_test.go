package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/openapi"
	"weir/internal/openapi/openapitest"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/timelimit"
	"weir/internal/upkeep"
)

// memoryAccount is an account in memory. Several processes can use it.
type memoryAccount struct{ *memory.Account }

func (a memoryAccount) Table() storage.Table                        { return a.Account.Table() }
func (a memoryAccount) Bodies() timelimit.BlobPort                  { return a.Account.Blobs() }
func (a memoryAccount) Leases() storage.Leases                      { return a.Account.Leases() }
func (a memoryAccount) LeaseBlobs() upkeep.LeaseBlobs               { return a.Account.Leases() }
func (a memoryAccount) Tickets() timelimit.QueuePort                { return a.Queue("tickets") }
func (a memoryAccount) Poison() timelimit.QueuePort                 { return a.Queue("poison") }
func (a memoryAccount) InboxEvents() timelimit.QueuePort            { return a.Queue("events") }
func (a memoryAccount) Inbox() storage.Files                        { return a.Files("inbox") }
func (a memoryAccount) Accepted() storage.Files                     { return a.Files("accepted") }
func (a memoryAccount) Rejected() storage.Files                     { return a.Files("rejected") }
func (a memoryAccount) Ensure(context.Context) error                { return nil }
func (a memoryAccount) Skew(context.Context) (time.Duration, error) { return 0, nil }
func (a memoryAccount) Close() error                                { return nil }

// host stands for a Functions host with one handler process after the other on the same storage.
type repeatingHost struct {
	t       *testing.T
	account memoryAccount
	cms     *httptest.Server
	store   *lane.Store
	process *running
	end     func()
	calls   int
}

func newRepeatingHost(t *testing.T) *repeatingHost {
	t.Helper()
	cms := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "bad") {
			http.Error(w, "this is bad", http.StatusUnprocessableEntity)
		}
	}))

	t.Cleanup(cms.Close)
	h := &repeatingHost{t: t, account: memoryAccount{memory.New(time.Now)}, cms: cms}
	h.startProcess()
	t.Cleanup(func() { h.end() })

	return h
}

func (h *repeatingHost) startProcess() {
	h.t.Helper()
	settings := "delivery: { url: \"" + h.cms.URL + "\", brake: 0 }\ncontracts:\n" +
		"  - { name: article, root: article, key: ./@path }\n"
	a, err := New(newEnvironment(h.t, settings), slog.New(slog.DiscardHandler))
	if err != nil {
		h.t.Fatal(err)
	}

	a.account = h.account
	store := &lane.Store{Table: h.account.Table(), Bodies: h.account.Bodies(), Lanes: 1,
		Now: time.Now}
	if err := store.Open(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}

	h.store = store
	ctx, stop := context.WithCancel(context.WithoutCancel(h.t.Context()))
	r := newServerRunning(ctx, a, store, nil, func() {})
	h.process = r
	h.end = func() {
		stop()
		err := errors.Join(r.closeBackground(context.Background()),
			r.closeWork(context.Background()), r.closeRecords(context.Background()))
		if err != nil {
			h.t.Error(err)
		}
	}
}

// replaceProcess ends the process, and starts another one on the same storage.
func (h *repeatingHost) replaceProcess() {
	h.t.Helper()
	h.end()
	h.startProcess()
}

// answer is a status with the fields of the body that name the thing that was changed.
type answer struct {
	status int
	body   map[string]any
	text   string
}

func (h *repeatingHost) call(id, method, address, body string, headers ...string) answer {
	r := httptest.NewRequest(method, address, strings.NewReader(body))
	r.Header.Set("X-Azure-Functions-InvocationId", id)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}

	w := httptest.NewRecorder()
	h.process.handler.ServeHTTP(w, r)
	a := answer{status: w.Code, text: w.Body.String()}
	_ = json.Unmarshal(w.Body.Bytes(), &a.body)

	return a
}

// must calls an address once, and returns the field "id" of the answer, which must be a success.
func (h *repeatingHost) must(method, address, body string, headers ...string) string {
	h.t.Helper()
	h.calls++
	a := h.call(fmt.Sprint("setup-", h.calls), method, address, body, headers...)
	if a.status >= 300 {
		h.t.Fatalf("%s %s: got %d %s, want a success", method, address, a.status, a.text)
	}

	id, _ := a.body["id"].(string)

	return id
}

// awaitHolder waits until the holder has granted or refused all requests. Before that, the effect
// of a call that acts again cannot be seen.
func (h *repeatingHost) awaitHolder() {
	h.t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		open, err := h.store.DeliveryState().PendingRequests(h.t.Context(), 0, 10)
		if err == nil && len(open) == 0 {
			return
		}

		if time.Since(began) > 20*time.Second {
			h.t.Fatalf("got the open requests %v, %v after 20 s, want none", open, err)
		}
	}
}

// await reads an address until a condition on the body holds.
func (h *repeatingHost) await(address string, holds func(map[string]any) bool) map[string]any {
	h.t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		a := h.call("read", http.MethodGet, address, "")
		if a.status == 200 && holds(a.body) {
			return a.body
		}

		if time.Since(began) > 20*time.Second {
			h.t.Fatalf("%s: got %d %s after 20 s, want the condition to hold", address,
				a.status, a.text)
		}
	}
}

func (h *repeatingHost) postScheduled() string {
	h.t.Helper()
	return h.must("POST", "/api/messages", `<article path="/later"/>`, "Content-Type",
		"application/xml", "Weir-Deliver-After", "1h")
}

func (h *repeatingHost) postDead(path string) string {
	h.t.Helper()
	id := h.must("POST", "/api/messages", `<article path="`+path+`">bad</article>`, "Content-Type",
		"application/xml")
	h.await("/api/messages/"+id, func(m map[string]any) bool { return m["stage"] == "dead" })
	return id
}

func (h *repeatingHost) putSchedule(name string, isPaused bool) {
	h.t.Helper()
	h.must("PUT", "/api/schedules/"+name, fmt.Sprintf(`{"cron":"@yearly","paused":%t,`+
		`"message":"<article path=\"/s\">{{.Run}} {{.DueAt}}</article>"}`, isPaused),
		"Content-Type",
		"application/json")
}

// countMessages returns the number of messages that were accepted.
func (h *repeatingHost) countMessages() float64 {
	h.t.Helper()
	totals := h.await("/api/lanes", func(map[string]any) bool { return true })["totals"].(map[string]any)
	return totals["accepted"].(float64)
}

// repeatedCalls has each operation whose body may be empty: a proxying host sends such a request
// again if the handler ends before it answers. Each case prepares a state and returns the address
// to call, and a check of the effect.
var repeatedCalls = map[string]func(h *repeatingHost) (address string, check func() string){
	"DELETE /api/messages/{id}":      cancelTwice("/api/messages/%s"),
	"POST /api/messages/{id}/cancel": cancelTwice("/api/messages/%s/cancel"),
	"POST /api/messages/{id}/replay": func(h *repeatingHost) (string, func() string) {
		id := h.postDead("/replayed")
		return "/api/messages/" + id + "/replay", func() string {
			// The message dies again. A second replay would make it wait once more.
			m := h.await("/api/messages/"+id, func(m map[string]any) bool {
				return m["stage"] == "dead" && m["replays"] != nil
			})
			return fmt.Sprint("replays ", m["replays"])
		}
	},
	"POST /api/messages/{id}/discard": func(h *repeatingHost) (string, func() string) {
		id := h.postDead("/discarded")
		return "/api/messages/" + id + "/discard?reason=r", func() string {
			h.await("/api/messages/"+id,
				func(m map[string]any) bool { return m["stage"] == "discarded" })
			return "discarded"
		}
	},
	"POST /api/messages/{id}/reveal": func(h *repeatingHost) (string, func() string) {
		id := h.postDead("/revealed")
		return "/api/messages/" + id + "/reveal", func() string { return "read" }
	},
	"POST /api/messages/{id}/erase": func(h *repeatingHost) (string, func() string) {
		id := h.postDead("/erased")
		return "/api/messages/" + id + "/erase", func() string {
			h.await("/api/messages/"+id,
				func(m map[string]any) bool { return m["erasedAt"] != nil })
			return "erased"
		}
	},
	"DELETE /api/batches/{id}": func(h *repeatingHost) (string, func() string) {
		var parts strings.Builder
		for i := range 2000 {
			fmt.Fprintf(&parts, `<article path="/b/%d"/>`, i)
		}

		id := h.must("POST", "/api/batches?split=/f/article", "<f>"+parts.String()+"</f>",
			"Content-Type", "application/xml")
		return "/api/batches/" + id, func() string { return "asked" }
	},
	"DELETE /api/replays/{id}": func(h *repeatingHost) (string, func() string) {
		h.postDead("/bulk/1")
		h.postDead("/bulk/2")
		id := h.must("POST", "/api/replays", `{"filter":{},"ratePerMinute":1}`, "Content-Type",
			"application/json")
		return "/api/replays/" + id, func() string {
			return fmt.Sprint(h.call("read", "GET", "/api/replays/"+id, "").body["state"])
		}
	},
	"POST /api/schedules/{name}/run": func(h *repeatingHost) (string, func() string) {
		h.putSchedule("run", false)
		before := h.countMessages()
		return "/api/schedules/run/run",
			func() string { return fmt.Sprint("messages ", h.countMessages()-before) }
	},
	"POST /api/schedules/{name}/pause": func(h *repeatingHost) (string, func() string) {
		h.putSchedule("pause", false)
		return "/api/schedules/pause/pause", func() string {
			return fmt.Sprint(h.call("read", "GET", "/api/schedules/pause", "").body["paused"])
		}
	},
	"POST /api/schedules/{name}/resume": func(h *repeatingHost) (string, func() string) {
		h.putSchedule("resume", true)
		return "/api/schedules/resume/resume", func() string {
			return fmt.Sprint(h.call("read", "GET", "/api/schedules/resume", "").body["paused"])
		}
	},
	"DELETE /api/schedules/{name}": func(h *repeatingHost) (string, func() string) {
		h.putSchedule("gone", false)
		return "/api/schedules/gone", func() string {
			return fmt.Sprint(h.call("read", "GET", "/api/schedules/gone", "").status)
		}
	},
}

func cancelTwice(address string) func(h *repeatingHost) (string, func() string) {
	return func(h *repeatingHost) (string, func() string) {
		id := h.postScheduled()
		return fmt.Sprintf(address, id), func() string {
			m := h.await("/api/messages/"+id, func(map[string]any) bool { return true })
			return fmt.Sprint(m["stage"])
		}
	}
}

// oneEffect is the effect of an operation, as its check describes it.
var oneEffect = map[string]string{
	"DELETE /api/messages/{id}": "cancelled", "POST /api/messages/{id}/cancel": "cancelled",
	"POST /api/messages/{id}/replay": "replays 1", "POST /api/messages/{id}/discard": "discarded",
	"POST /api/messages/{id}/reveal": "read", "POST /api/messages/{id}/erase": "erased",
	"DELETE /api/batches/{id}": "asked", "DELETE /api/replays/{id}": "cancelled",
	"POST /api/schedules/{name}/run": "messages 1", "POST /api/schedules/{name}/pause": "true",
	"POST /api/schedules/{name}/resume": "false", "DELETE /api/schedules/{name}": "404",
}

// isSameAnswer reports whether two answers tell a caller the same: both are successes, about the
// same thing.
func isSameAnswer(a, b answer) bool {
	if a.status >= 300 || b.status >= 300 {
		return false
	}

	for _, name := range []string{"id", "run", "name", "deleted", "sequence"} {
		if fmt.Sprint(a.body[name]) != fmt.Sprint(b.body[name]) {
			return false
		}
	}

	return true
}

// The host sends a request twice, with the same invocation id: at the same moment, or again after
// the handler has ended before it answered. The request acts once, and both answers are the same.
func TestRepeatedCalls_ActOnce(t *testing.T) {
	t.Parallel()
	for operation, prepare := range repeatedCalls {
		method, _, _ := strings.Cut(operation, " ")
		t.Run(strings.ReplaceAll(operation, "/", "_")+"/AtOnce", func(t *testing.T) {
			t.Parallel()
			h := newRepeatingHost(t)
			address, check := prepare(h)
			answers := make([]answer, 2)
			var both sync.WaitGroup
			for i := range answers {
				both.Go(func() { answers[i] = h.call("one-call", method, address, "") })
			}

			both.Wait()
			h.awaitHolder()
			h.report(operation, answers[0], answers[1], check())
		})

		t.Run(strings.ReplaceAll(operation, "/", "_")+"/AfterAKill", func(t *testing.T) {
			t.Parallel()
			h := newRepeatingHost(t)
			address, check := prepare(h)
			first := h.call("one-call", method, address, "") // the caller gets no answer
			if operation == "POST /api/messages/{id}/replay" {
				check() // the replay is over, and the message dead again
			}

			h.replaceProcess()
			second := h.call("one-call", method, address, "")
			h.awaitHolder()
			h.report(operation, first, second, check())
		})
	}
}

func (h *repeatingHost) report(operation string, first, second answer, effect string) {
	h.t.Helper()
	if !isSameAnswer(first, second) {
		h.t.Errorf("got %d %s and %d %s, want the same success twice", first.status, first.text,
			second.status, second.text)
	}

	if effect != oneEffect[operation] {
		h.t.Errorf("got the effect %q, want %q", effect, oneEffect[operation])
	}
}

// Another call, with an id of its own, acts again.
func TestRepeatedCalls_AnotherCallActsAgain(t *testing.T) {
	t.Parallel()
	h := newRepeatingHost(t)
	address, check := repeatedCalls["POST /api/schedules/{name}/run"](h)
	for _, id := range []string{"a", "b", "a", "b", "client's, a"} {
		if a := h.call(id, http.MethodPost, address, ""); a.status != http.StatusAccepted {
			t.Fatalf("got %d %s, want 202", a.status, a.text)
		}
	}

	if a := h.call("c", http.MethodPost, address, "", "Idempotency-Key", "k"); a.status !=
		http.StatusAccepted {
		t.Fatalf("got %d %s, want 202", a.status, a.text)
	}

	if a := h.call("d", http.MethodPost, address, "", "Idempotency-Key", "k"); a.status !=
		http.StatusAccepted {
		t.Fatalf("got %d %s, want 202", a.status, a.text)
	}

	if got := check(); got != "messages 3" {
		t.Errorf("got the effect %q of the calls a, b and k, want 3 messages", got)
	}
}

// Each operation that changes something and has no body in the description is in the list of
// repeated calls.
func TestRepeatedCalls_AreAllOperationsWithoutABody(t *testing.T) {
	t.Parallel()
	document, err := openapitest.Read(openapi.Document)
	if err != nil {
		t.Fatal(err)
	}

	var want []string
	for _, operation := range document.Operations() {
		method, _, _ := strings.Cut(operation, " ")
		if (method == http.MethodPost || method == http.MethodDelete) &&
			!document.HasBody(operation) {
			want = append(want, operation)
		}
	}

	var got []string
	for operation := range repeatedCalls {
		got = append(got, operation)
	}

	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got the operations %q, want %q", got, want)
	}
}
