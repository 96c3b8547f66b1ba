package host_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/tools/funchost/host"
)

func plainRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	o.functions = map[string]string{"fn": httpFunction("")}
	return newRig(t, o)
}

func exitWith(code int) func(handlerCall) handlerOrder {
	return func(c handlerCall) handlerOrder {
		if c.URI == "/api/fn?die=" {
			return handlerOrder{Exit: &code, Stderr: "last words\n"}
		}
		return handlerOrder{}
	}
}

// endHandler sends the request that makes the handler exit. If the handler exits before it answers
// a GET, net/http in the host can repeat the GET. By using a GET, endHandler also tests that the
// repeat does not end the next handler.
func (r *rig) endHandler() hostAnswer {
	r.t.Helper()
	return r.sendRequest("GET", "/api/fn?die", "")
}

// replaceHandler makes the handler exit, and waits until a new handler runs.
func (r *rig) replaceHandler() {
	r.t.Helper()
	r.sendRequest("GET", "/api/fn", "") // the answer shows that the handler runs
	old := r.instanceStatus(1).WorkerID
	if got := r.endHandler(); got.StatusCode != 500 {
		r.t.Fatalf("answered %d; want 500", got.StatusCode)
	}

	awaitCondition(r.t, "the handler is restarted",
		func() bool { s := r.instanceStatus(1); return s.State == "running" && s.WorkerID != old })
}

func (r *rig) instanceStatus(n int) host.InstanceStatus { return r.host.Status().Instances[n-1] }

func TestHost_PassesOutputOn(t *testing.T) {
	t.Parallel()
	r := plainRig(t, rigOptions{decide: func(handlerCall) handlerOrder {
		return handlerOrder{Stdout: "one\ntw",
			Stderr: "oh\n"}
	}}).startHost()

	r.sendRequest("GET", "/api/fn", "")
	r.host.Stop()

	for _, want := range []string{"[1] one\n", "[1] tw\n", "[1] stderr: oh\n"} {
		if !strings.Contains(r.out.String(), want) {
			t.Errorf("%q is not in the output", want)
		}
	}
}

func TestHost_ExitCode200_RestartsUncounted(t *testing.T) {
	t.Parallel()
	r := plainRig(t, rigOptions{decide: exitWith(200)}).startHost()
	for range 5 {
		r.replaceHandler()
	}

	if got := r.sendRequest("GET", "/api/fn", ""); got.StatusCode != 200 {
		t.Errorf("answered %d after the restarts, want 200", got.StatusCode)
	}
}

func TestHost_ExitCode0_IsNotRestarted(t *testing.T) {
	t.Parallel()
	r := plainRig(t, rigOptions{decide: exitWith(0)}).startHost()
	r.endHandler()
	awaitCondition(t, "the handler has exited",
		func() bool { return r.instanceStatus(1).State == "exited" })
	if got := r.sendRequest("GET", "/api/fn", ""); got.StatusCode != 500 {
		t.Errorf("answered %d; want 500", got.StatusCode)
	}
}

func TestHost_ThirdErrorEndsIt(t *testing.T) {
	t.Parallel()
	r := plainRig(t, rigOptions{decide: exitWith(3)}).startHost()
	r.replaceHandler()
	r.replaceHandler()
	r.endHandler()
	if err := r.awaitFailure(); !strings.Contains(err.Error(), "code 3: last words") {
		t.Errorf("gave up with %v, want \"code 3: last words\"", err)
	}

	if want := "Exceeded http worker restart retry count. Shutting down Functions Host\n"; !strings.Contains(
		r.out.String(), want) {
		t.Errorf("%q is not in the output", want)
	}
}

func TestStart_UnresolvedSettingLeavesTheFunctionOut(t *testing.T) {
	t.Parallel()
	r := plainRig(t, rigOptions{env: []string{"Store=UseDevelopmentStorage=true"}})
	r.writeFile("process/function.json",
		`{"bindings":[{"type":"queueTrigger","name":"m","queueName":"%NOT_SET%-x",`+
			`"connection":"Store"}]}`)
	r.startHost()
	if got := r.sendRequest("GET", "/api/fn", ""); got.StatusCode != 200 {
		t.Errorf("answered %d; want 200", got.StatusCode)
	}

	for _, want := range []string{"Error indexing method 'Functions.process'",
		"'%NOT_SET%' does not resolve to a value."} {
		if !strings.Contains(r.out.String(), want) {
			t.Errorf("%q is not in the output", want)
		}
	}

	if got := r.sendRequest("POST", "/admin/functions/process", `{}`); got.StatusCode != 404 {
		t.Errorf("a start of the function is answered %d; want 404", got.StatusCode)
	}
}

func TestHost_Development(t *testing.T) {
	t.Parallel()
	for development, want := range map[bool]string{false: "Staging", true: "Development"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			r := plainRig(t, rigOptions{env: []string{"AZURE_FUNCTIONS_ENVIRONMENT=Staging"},
				cfg: host.Config{Development: development}}).startHost()
			r.sendRequest("GET", "/api/fn", "")
			if got := r.nextCall().Environment; got != want {
				t.Errorf("the handler runs in %q; want %q", got, want)
			}
		})
	}
}

func TestHost_ErrorsHalfAnHourApartDoNotAddUp(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	now := time.Now()
	r := plainRig(t, rigOptions{decide: exitWith(3),
		cfg: host.Config{Now: func() time.Time { mu.Lock(); defer mu.Unlock(); return now }}}).startHost()

	for range 4 {
		r.replaceHandler()
		mu.Lock()
		now = now.Add(31 * time.Minute)
		mu.Unlock()
	}
}

func TestHost_KilledHandlerIsRestarted(t *testing.T) {
	t.Parallel()
	r := plainRig(t, rigOptions{}).startHost()
	r.sendRequest("GET", "/api/fn", "")
	old := r.instanceStatus(1)
	if err := syscall.Kill(old.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	awaitCondition(t, "another process runs",
		func() bool { s := r.instanceStatus(1); return s.State == "running" && s.PID != old.PID })
	if r.instanceStatus(1).Port != old.Port {
		t.Errorf("port %d after the restart, want %d", r.instanceStatus(1).Port, old.Port)
	}
}

func TestHost_HandlerThatDiesAtOnce(t *testing.T) {
	t.Parallel()
	r := plainRig(t, rigOptions{env: []string{"FUNCHOST_TEST_DIE=1"}}).startHost()
	if err := r.awaitFailure(); !strings.Contains(err.Error(), "code 7") {
		t.Errorf("gave up with %v, want \"code 7\"", err)
	}
}

func TestHost_MissingHandler(t *testing.T) {
	t.Parallel()
	description := map[string]any{"defaultExecutablePath": "no-such-binary"}
	r := plainRig(t, rigOptions{hostJSON: map[string]any{
		"customHandler": map[string]any{"description": description}}}).startHost()
	if err := r.awaitFailure(); !strings.Contains(err.Error(), "no-such-binary") {
		t.Errorf("gave up with %v, want \"no-such-binary\"", err)
	}
}

func TestHost_HandlerThatNeverListens(t *testing.T) {
	t.Parallel()
	sleeper := map[string]any{"description": map[string]any{"defaultExecutablePath": "sleep",
		"arguments": []string{"60"}}, "initializationTimeout": "00:00:00.2"}
	r := plainRig(t, rigOptions{hostJSON: map[string]any{"customHandler": sleeper}}).startHost()
	if err := r.awaitFailure(); !strings.Contains(err.Error(), "did not answer") {
		t.Errorf("gave up with %v, want \"did not answer\"", err)
	}
}

func TestHost_TimeoutKillsTheProcess(t *testing.T) {
	t.Parallel()
	r := plainRig(t, rigOptions{
		hostJSON: map[string]any{"functionTimeout": "00:00:01"},
		decide: func(c handlerCall) handlerOrder {
			return handlerOrder{Hang: c.URI == "/api/fn?hang="}
		},
	}).startHost()

	for range 3 { // three errors would end the host, but it does not count its own kills as errors
		r.sendRequest("GET", "/api/fn", "")
		first := r.nextCall().PID
		if got := r.sendRequest("GET", "/api/fn?hang", ""); got.StatusCode != 500 {
			t.Fatalf("answered %d; want 500", got.StatusCode)
		}

		r.nextCall()
		awaitCondition(t, "another process runs",
			func() bool { s := r.instanceStatus(1); return s.State == "running" && s.PID != first })
	}
}

func TestHost_StopLeavesNoProcess(t *testing.T) {
	t.Parallel()
	r := plainRig(t, rigOptions{cfg: host.Config{Instances: 2}}).startHost()
	awaitCondition(t, "both run", func() bool {
		return r.instanceStatus(1).State == "running" &&
			r.instanceStatus(2).State == "running"
	})

	pids := []int{r.instanceStatus(1).PID, r.instanceStatus(2).PID}
	r.host.Stop()

	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, os.ErrProcessDone) &&
			!errors.Is(err, syscall.ESRCH) {
			t.Errorf("kill of process %d = %v, want it ended", pid, err)
		}
	}
}

func TestHost_StopWaitsForWorkInFlight(t *testing.T) {
	t.Parallel()
	r := plainRig(t, rigOptions{}).startHost()
	release := make(chan struct{})
	r.decide = func(handlerCall) handlerOrder { <-release; return handlerOrder{Body: "done"} }
	got := make(chan hostAnswer, 1)
	go func() { got <- r.sendRequest("GET", "/api/fn", "") }()
	r.nextCall()
	stopped := make(chan struct{})
	go func() { r.host.Stop(); close(stopped) }()
	awaitCondition(t, "no new connections are taken", func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(r.host.URL(), "http://"))
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})

	close(release)
	if a := <-got; a.StatusCode != 200 || a.body != "done" {
		t.Errorf("answered %d %q, want status 200 and body done", a.StatusCode, a.body)
	}

	<-stopped
}

// A handler must have time to notice the closed socket of the host before the host kills the
// handler.
func TestHost_StopTakes(t *testing.T) {
	t.Parallel()
	const takes = 200 * time.Millisecond
	r := plainRig(t, rigOptions{cfg: host.Config{StopTakes: takes}}).startHost()
	began := time.Now()
	r.host.Stop()
	if took := time.Since(began); took < takes {
		t.Errorf("stopped after %s, want %s at least", took, takes)
	}
}

func TestHost_StopsOneInstance(t *testing.T) {
	t.Parallel()
	r := plainRig(t, rigOptions{cfg: host.Config{Instances: 2}}).startHost()
	awaitCondition(t, "both run", func() bool {
		return r.instanceStatus(1).State == "running" &&
			r.instanceStatus(2).State == "running"
	})

	release, pid := make(chan struct{}), r.instanceStatus(1).PID
	r.decide = func(c handlerCall) handlerOrder {
		if c.URI == "/api/fn?wait=" {
			<-release
		}
		return handlerOrder{Body: strconv.Itoa(c.PID)}
	}

	answers := make(chan hostAnswer, 2)
	for range 2 { // one on each instance
		go func() { answers <- r.sendRequest("GET", "/api/fn?wait", "") }()
		r.nextCall()
	}

	stopped := make(chan int, 1)
	go func() { stopped <- r.sendRequest("POST", "/admin/host/instances/1/stop", "").StatusCode }()
	others := 0
	awaitCondition(t, "requests go to the other instance", func() bool {
		if r.sendRequest("GET", "/api/fn", "").body == strconv.Itoa(pid) {
			others = 0
		}
		others++
		return others > 4
	})

	if s := r.instanceStatus(1); s.State != "running" || s.PID != pid {
		t.Errorf("with a request in flight the instance is %+v; want it to run", s)
	}

	close(release)

	for range 2 {
		if a := <-answers; a.StatusCode != 200 {
			t.Errorf("answered %d; want 200", a.StatusCode)
		}
	}

	if got := <-stopped; got != 200 || r.instanceStatus(1).State != "gone" ||
		r.instanceStatus(2).State != "running" {
		t.Errorf("answered %d, instances %+v, want 200, the first gone and the second running",
			got, r.host.Status().Instances)
	}
}

func TestStart_TakenPort(t *testing.T) {
	t.Parallel()
	r := plainRig(t, rigOptions{}).startHost()
	cfg := r.cfg
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(r.host.URL(), "http://"))
	cfg.Port, _ = strconv.Atoi(port)
	if err := host.Run(context.Background(), cfg); err == nil ||
		!strings.Contains(err.Error(), "port "+port+" is unavailable") {
		t.Errorf("Run = %v; want an error naming port %s", err, port)
	}
}

func TestHost_CrashAndAddInstances(t *testing.T) {
	t.Parallel()
	r := plainRig(t, rigOptions{cfg: host.Config{Instances: 2}}).startHost()
	if got := r.sendRequest(http.MethodDelete, "/admin/host/instances/1", ""); got.StatusCode !=
		200 {
		t.Fatalf("answered %d, want 200", got.StatusCode)
	}

	if s := r.instanceStatus(1); s.State != "gone" || s.PID != 0 {
		t.Errorf("the crashed instance: %+v, want State gone and PID 0", s)
	}

	for range 3 {
		if got := r.sendRequest("GET", "/api/fn", ""); got.StatusCode != 200 {
			t.Errorf("answered %d with one instance left, want 200", got.StatusCode)
		}
	}

	if got := r.sendRequest(http.MethodPost, "/admin/host/instances", ""); got.StatusCode != 201 ||
		len(r.host.Status().Instances) != 3 {
		t.Errorf("answered %d, %d instances, want status 201 and 3 Instances", got.StatusCode,
			len(r.host.Status().Instances))
	}
}

func TestStart_Settings(t *testing.T) {
	t.Parallel()
	key := "WEIR_FUNCHOST_TEST"
	for name, c := range map[string]struct{ file, wantErr, wantOut string }{
		"Values":       {`{"IsEncrypted":false,"Values":{"` + key + `":"sweep"}}`, "", ""},
		"Encrypted":    {`{"Values":{}}`, "IsEncrypted", ""},
		"NotJSON":      {`{`, key, "cannot be read"},
		"MissingValue": {`{"IsEncrypted":false,"Values":{}}`, key, ""},
		"EnvironmentWins": {`{"IsEncrypted":false,"Values":{"PATH":"x","` + key + `":"s"}}`, "",
			"Skipping 'PATH'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{functions: map[string]string{"q": `{"bindings":[{"type":"queueTrigger",` +
				`"direction":"in","name":"m","queueName":"%` + key + `%-x","connection":"C"}]}`},
				env: []string{"C=UseDevelopmentStorage=true", "AzureWebJobs_q_Disabled=1"}})
			r.writeFile("local.settings.json", c.file)
			h, err := host.Start(r.cfg)
			if err == nil {
				h.Stop()
			}

			if (err == nil) != (c.wantErr == "") ||
				err != nil && !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("Start: %v; want %q", err, c.wantErr)
			}

			if !strings.Contains(r.out.String(), c.wantOut) {
				t.Errorf("%q is not in the output %q", c.wantOut, r.out)
			}
		})
	}
}

func TestStart_RefusesFunctions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, want string }{
		"NoTrigger":    {`{"bindings":[]}`, "one trigger"},
		"OtherTrigger": {`{"bindings":[{"type":"blobTrigger","name":"b"}]}`, "blobTrigger"},
		"OtherBinding": {`{"bindings":[{"type":"timerTrigger","name":"t","schedule":"0 * * * * *"},{"type":"queue",` +
			`"direction":"out","name":"q"}]}`, "not supported"},
		"Schedule": {`{"bindings":[{"type":"timerTrigger","name":"t","schedule":"nonsense"}]}`,
			"schedule"},
		"Connection": {`{"bindings":[{"type":"queueTrigger","name":"m","queueName":"q","connection":"Nope"}]}`,
			"Nope"},
		"ScriptFile": {`{"scriptFile":"x","bindings":[{"type":"timerTrigger","name":"t","schedule":"0 * * * * *"}]}`,
			"scriptFile"},
		"Retry": {`{"retry":{},"bindings":[{"type":"timerTrigger","name":"t","schedule":"0 * * * * *"}]}`,
			"retry"},
		"ReservedRoute": {httpFunction(`,"route":"admin/x"`), "reserved"},
		"Route":         {httpFunction(`,"route":"a/{b"`), "route"},
		"AuthLevel":     {httpFunction(`,"authLevel":"nobody"`), "nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{functions: map[string]string{"f": c.file}})
			if _, err := host.Start(r.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Start: %v; want %q", err, c.want)
			}
		})
	}
}

const proxyingEnv = "AzureFunctionsJobHost__customHandler__enableProxyingHttpRequest=true"

func TestHost_Proxying_RepeatsARequestWithoutABody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, method, body string
		mode               host.Mode
		calls, status      int
	}{
		{"GET", "GET", "", host.Proxying, 2, 200},
		{"POST", "POST", "", host.Proxying, 2, 200},
		{"Body", "POST", "x", host.Proxying, 1, 500},
		{"Forwarding", "GET", "", host.Forwarding, 1, 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := plainRig(t, rigOptions{cfg: host.Config{HTTP: c.mode}, env: []string{proxyingEnv}})
			var calls []handlerCall
			r.decide = func(call handlerCall) handlerOrder {
				if calls = append(calls, call); len(calls) == 1 {
					code := 3
					return handlerOrder{Exit: &code}
				}
				return handlerOrder{}
			}

			r.startHost()
			got := r.sendRequest(c.method, "/api/fn", c.body)
			r.mu.Lock()
			defer r.mu.Unlock()

			if got.StatusCode != c.status || len(calls) != c.calls {
				t.Fatalf("answered %d after %d calls, want %d after %d", got.StatusCode, len(calls),
					c.status, c.calls)
			}

			const id = "X-Azure-Functions-Invocationid"
			first, last := calls[0], calls[len(calls)-1]
			if first.Header.Get(id) != last.Header.Get(id) ||
				(first.PID == last.PID) != (c.calls == 1) {
				t.Errorf("got calls of the ids %s and %s in processes %d and %d, want one id and a process for each",
					first.Header.Get(id), last.Header.Get(id), first.PID, last.PID)
			}
		})
	}
}

// A request that ends each process ends the host: two repeats are two more deaths.
func TestHost_Proxying_ARequestThatKillsEndsTheHost(t *testing.T) {
	t.Parallel()
	r := plainRig(t, rigOptions{decide: exitWith(3), cfg: host.Config{HTTP: host.Proxying},
		env: []string{proxyingEnv}}).startHost()
	r.sendRequest("GET", "/api/fn?die=", "") // arrives as it is sent
	if err := r.awaitFailure(); !strings.Contains(err.Error(), "3 errors") {
		t.Errorf("gave up with %v, want 3 errors", err)
	}
}
