package host_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"weir/tools/funchost/host"
)

// observation is one row of testdata/targets.tsv.
type observation struct {
	method, target string
	forwarding     outcome
	constrained    outcome
	// method and target that YARP, the proxy of newer hosts, sends on; "-" = nothing
	proxied string
}

// outcome is the result of a request: the status of the answer, the called function, and the method
// and target that the handler received. "-" = no function was called, or the handler received
// nothing.
type outcome struct{ status, function, received string }

func readObservations(t *testing.T) []observation {
	t.Helper()
	raw, err := os.ReadFile("testdata/targets.tsv")
	if err != nil {
		t.Fatal(err)
	}

	var out []observation
	for line := range strings.Lines(string(raw)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if strings.HasPrefix(line, "#") || f[0] == "method" {
			continue
		}

		if len(f) != 9 {
			t.Fatalf("%d columns: %q, want 9", len(f), line)
		}

		out = append(out, observation{f[0], f[1], outcome{f[2], f[3], f[4]},
			outcome{f[5], f[6], f[7]}, f[8]})
	}

	if len(out) != 862 {
		t.Fatalf("%d rows; want 862", len(out))
	}

	return out
}

// weirRoutes returns the function.json of each function, by the function's name. The real host ran
// the same functions for the observations in testdata/targets.tsv. The arguments "id", "rest" and
// "path" are the parameters in the routes.
func weirRoutes(id, rest, path string) map[string]string {
	out := map[string]string{}
	for name, v := range map[string][2]string{
		"cancel": {"messages/" + id, `"delete"`}, "move": {"messages/" + id, `"patch"`},
		"status": {"messages/" + id, `"get"`},
		"health": {"health", `"get"`}, "metrics": {"metrics", `"get"`},
		"receive":   {"messages", `"post"`},
		"schedules": {"schedules/" + rest, `"get","put","post","delete"`},
		"view":      {path, `"get"`}, "write": {path, `"post","delete"`},
	} {
		out[name] = httpFunction(fmt.Sprintf(`,"route":%q,"methods":[%s]`, v[0], v[1]))
	}

	return out
}

func TestHost_Targets_Forwarding(t *testing.T) {
	t.Parallel()
	tryTargets(t, weirRoutes("{id}", "{*rest}", "{*path}"),
		func(s observation) outcome { return s.forwarding })
}

func TestHost_Targets_Constrained(t *testing.T) {
	t.Parallel()
	routes := weirRoutes(`{id:regex(^[A-Za-z0-9_-]{{1,64}}$)}`,
		`{*rest:regex(^([A-Za-z0-9_-][A-Za-z0-9._-]{{0,63}}(/[a-z]{{1,16}})?)?$)}`,
		`{*path:regex(^([A-Za-z0-9_-][A-Za-z0-9._-]*/?)*$)}`)
	tryTargets(t, routes, func(s observation) outcome { return s.constrained })
}

func tryTargets(t *testing.T, functions map[string]string, column func(observation) outcome) {
	t.Helper()
	r := newRig(t, rigOptions{functions: functions}).startHost()
	for _, row := range readObservations(t) {
		got, want := r.sendTarget(row.method, row.target), column(row)

		// one row has ?, because the real host's log did not name the function
		if want.function == "?" {
			want.function = "view"
		}

		if got != want {
			t.Errorf("%s %s: %+v; want %+v", row.method, row.target, got, want)
		}
	}
}

// notProxied has the targets that TestHost_Targets_Proxying skips: the fake handler reports no call
// for them. Each value is the reason. The last column of testdata/targets.tsv has other results for
// these targets, because for that column YARP ran without a host and without routes.
var notProxied = map[string]string{
	"//api/health":       "a path that begins with an empty segment matches no route",
	"/admin/host/status": "the host's own address",
	"/":                  "the fake handler answers it as the host's question whether the handler is ready",
}

func TestHost_Targets_Proxying(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{
		hostJSON: map[string]any{
			"extensions": map[string]any{"http": map[string]any{"routePrefix": ""}}},
		functions: map[string]string{"all": httpFunction(`,"route":"{*path}"`)},
		env:       []string{"AzureFunctionsJobHost__customHandler__enableProxyingHttpRequest=true"},
		cfg:       host.Config{HTTP: host.Proxying},
	}).startHost()

	for _, row := range readObservations(t) {
		if notProxied[row.target] != "" {
			continue
		}

		want := outcome{"200", "all", row.proxied}
		if row.proxied == "-" {
			want = row.forwarding
		}

		if got := r.sendTarget(row.method, row.target); got != want {
			t.Errorf("%s %s: %+v; want %+v", row.method, row.target, got, want)
		}
	}
}

// sendTarget sends a target as it is, and returns the outcome. An HTTP client would change some
// targets.
func (r *rig) sendTarget(method, target string) outcome {
	r.t.Helper()
	res := r.sendRaw(method + " " + target +
		" HTTP/1.1\r\nHost: weir.example\r\nConnection: close\r\n\r\n")
	got := outcome{res.Status[:3], "-", "-"}
	select {
	case c := <-r.calls: // a call of the handler is reported before the answer arrives
		got.function, got.received = r.functionOf(c), c.Method+" "+c.URI
	default:
	}

	return got
}

func (r *rig) sendRaw(request string) hostAnswer {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.host.URL(), "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		r.t.Fatal(err)
	}

	method, _, _ := strings.Cut(request, " ")
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		r.t.Fatalf("read the answer to %q: %v", request, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatalf("read the body of the answer to %q: %v", request, err)
	}

	return hostAnswer{res, string(body)}
}

// functionOf finds the function of a call in the host's log, because the call itself does not name
// the function.
func (r *rig) functionOf(c handlerCall) string {
	id := c.Header.Get("X-Azure-Functions-InvocationId")
	before, _, isLogged := strings.Cut(r.out.String(), "Id="+id)
	if !isLogged {
		return "no line for " + id
	}

	// A regular expression over the whole log, once for each call, took most of the time of the
	// tests.
	line := before[strings.LastIndexByte(before, '\n')+1:]
	found := executingLine.FindStringSubmatch(line)
	if found == nil {
		return "another line for " + id + ": " + line
	}

	return found[1]
}

// executingLine is the beginning of the line that the host logs when it calls a function.
var executingLine = regexp.MustCompile(`Executing 'Functions\.(\S+)' \(.*$`)
