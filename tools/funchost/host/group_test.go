package host_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/tools/funchost/host"
)

// newGroupRig returns a rig with a function of each kind: the queue function q, the HTTP function
// fn, and the timer tick, which fires every second.
func newGroupRig(t *testing.T, o rigOptions) *queueRig {
	t.Helper()
	q := newQueueRig(t, map[string]any{"maxPollingInterval": "00:00:00.2"}, o)
	q.writeFile("fn/function.json", httpFunction(""))
	q.writeFile("tick/function.json",
		`{"bindings":[{"type":"timerTrigger","name":"t","schedule":"* * * * * *"}]}`)
	return q
}

// callTo returns the next call to uri, and drops calls to other addresses.
func (r *rig) callTo(uri string) handlerCall {
	r.t.Helper()
	for {
		if c := r.nextCall(); c.URI == uri {
			return c
		}
	}
}

func TestGroups_EachCallGoesToItsInstance(t *testing.T) {
	t.Parallel()
	groups, err := host.ParseGroups("http=2,q=1,tick=1")
	if err != nil {
		t.Fatal(err)
	}

	q := newGroupRig(t, rigOptions{cfg: host.Config{Groups: groups}})
	q.startHost()
	pids := map[int]bool{}
	for n := range 4 {
		q.enqueueTexts(fmt.Sprint(n))
		q.sendRequest("GET", "/api/fn", "")
		c := q.callTo("/api/fn")
		pids[c.PID] = true
		if c.Group != "http" || c.SKU != "FlexConsumption" {
			t.Errorf("HTTP went to group %q, SKU %q; want http, FlexConsumption", c.Group, c.SKU)
		}
	}

	if len(pids) != 2 {
		t.Errorf("HTTP went to %d instances; want 2", len(pids))
	}

	q.awaitEmpty()
	q.enqueueTexts("last")
	if c := q.callTo("/q"); c.Group != "function:q" {
		t.Errorf("a message went to group %q; want function:q", c.Group)
	}

	if c := q.callTo("/tick"); c.Group != "function:tick" {
		t.Errorf("the timer went to group %q; want function:tick", c.Group)
	}
}

func TestGroups_OneByTheEnvironment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env       []string
		listeners string
	}{
		"HTTP": {[]string{"WEBSITE_SKU=FlexConsumption", "FUNCTIONS_TARGET_GROUP=http"}, ""},
		"Queue": {[]string{"WEBSITE_SKU=FlexConsumption", "FUNCTIONS_TARGET_GROUP=function:q"},
			"q"},
		"OtherSKU": {[]string{"WEBSITE_SKU=Dynamic", "FUNCTIONS_TARGET_GROUP=http"}, "q tick"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newGroupRig(t, rigOptions{env: c.env})
			q.startHost()

			if got := q.sendRequest("GET", "/api/fn", ""); got.StatusCode != 200 {
				t.Errorf("HTTP is answered %d; want 200: the real host serves it in each group",
					got.StatusCode)
			}

			q.host.Stop()
			var stopped []string
			for _, f := range []string{"q", "tick"} {
				if strings.Contains(q.out.String(), "Stopped the listener for function '"+f+"'") {
					stopped = append(stopped, f)
				}
			}

			if got := strings.Join(stopped, " "); got != c.listeners {
				t.Errorf("listeners of %q ran; want %q", got, c.listeners)
			}
		})
	}
}

func TestGroups_Wrong(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "0", "http", "http=0", "=1", "http=1,"} {
		if got, err := host.ParseGroups(text); err == nil {
			t.Errorf("ParseGroups(%q) = %v; want an error", text, got)
		}
	}

	r := plainRig(t, rigOptions{cfg: host.Config{Groups: []host.Group{{Name: "function:nothing", Instances: 1}}}})
	if h, err := host.Start(r.cfg); err == nil ||
		!strings.Contains(err.Error(), "function:nothing") {
		t.Errorf("Start: %v; want an error that names the group", err)
		if err == nil {
			h.Stop()
		}
	}
}

func (r *rig) awaitScaledIn(n int) {
	r.t.Helper()
	awaitCondition(r.t, fmt.Sprintf("instance %d is scaled in", n),
		func() bool { return r.instanceStatus(n).State == "scaled in" })
}

func TestIdleKill_EndsAndStartsAgain(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	q := newGroupRig(t, rigOptions{
		cfg: host.Config{Groups: []host.Group{{Name: "http", Instances: 1},
			{Name: "function:q", Instances: 1}},
			IdleKill: 8 * time.Second}, // longer than a start and a poll take on a busy machine
		decide: func(c handlerCall) handlerOrder {
			if c.URI == "/q" {
				<-released
			}
			return handlerOrder{}
		},
	})

	q.startHost()
	q.sendRequest("GET", "/api/fn", "")
	first := q.callTo("/api/fn")
	q.awaitScaledIn(1)
	q.awaitScaledIn(2)
	if err := syscall.Kill(first.PID, 0); err == nil {
		t.Error("the handler of a scaled-in instance runs, want it ended")
	}

	q.enqueueTexts("wake")
	woken := q.callTo("/q")
	if got := q.sendRequest("GET", "/api/fn", ""); got.StatusCode != 200 {
		t.Errorf("a request to a group without instances is answered %d; want 200", got.StatusCode)
	}

	if c := q.callTo("/api/fn"); c.PID == first.PID || c.Group != "http" {
		t.Errorf("answered by %d of group %q; want another process than %d, of http", c.PID,
			c.Group, first.PID)
	}

	q.awaitScaledIn(1) // instance 2 is not scaled in, because its call to /q is still in flight
	if s := q.instanceStatus(2); s.PID != woken.PID || s.State != "running" {
		t.Errorf("with an invocation in flight the instance is %+v; want it to run", s)
	}

	close(released)
	q.awaitEmpty()
	q.awaitScaledIn(2)
}

func TestIdleKill_TimerStartsAgain(t *testing.T) {
	t.Parallel()
	q := newGroupRig(t, rigOptions{cfg: host.Config{Groups: []host.Group{{Name: "function:tick", Instances: 1}},
		IdleKill: 100 * time.Millisecond}})
	q.startHost()
	first := q.callTo("/tick")
	q.awaitScaledIn(1)
	second := q.callTo("/tick")

	// a handler that starts slowly can get several calls before its instance is scaled in
	for range 3 {
		if second.PID == first.PID {
			second = q.callTo("/tick")
		}
	}

	if second.PID == first.PID {
		t.Errorf("the timer ran on in process %d; want another after the first was scaled in",
			first.PID)
	}
}
