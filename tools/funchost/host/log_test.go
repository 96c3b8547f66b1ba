package host_test

import (
	"maps"
	"strings"
	"testing"

	"weir/tools/funchost/host"
)

// logOnce runs one message through a queue function, and then stops the host. The handler writes to
// stdout and stderr, and answers with "status". The argument "levels" has the entries of
// logging.logLevel in host.json.
func logOnce(t *testing.T, status int, levels ...string) *queueRig {
	t.Helper()
	var env []string
	for _, level := range levels {
		env = append(env, "AzureFunctionsJobHost__logging__logLevel__"+level)
	}

	q := newQueueRig(t, map[string]any{"maxDequeueCount": 1},
		rigOptions{env: env, decide: func(handlerCall) handlerOrder {
			return handlerOrder{Status: status, Stdout: "to stdout\n", Stderr: "to stderr\n"}
		}})

	q.startHost()
	q.enqueueTexts("x")
	q.awaitEmpty()
	q.host.Stop()

	return q
}

func TestLog_LinesOfAMessage(t *testing.T) {
	t.Parallel()
	q := logOnce(t, 200)
	logged := q.host.Logged()
	for category, want := range map[string]int64{"Function.q": 3, "Host.Function.Console": 2} {
		if got := logged[category].Lines; got != want {
			t.Errorf("%d lines of %s; want %d", got, category, want)
		}
	}

	if got, want := logged["Host.Function.Console"].Bytes, int64(len("to stdout")+len("to stderr")); got != want {
		t.Errorf("%d bytes of the handler's output; want %d", got, want)
	}

	out := q.out.String()
	requests, answers := strings.Count(out, "Request ["), strings.Count(out, "Response [")+
		strings.Count(out, "Error response [")

	// the stop can cut off one answer
	if open := requests - answers; open < 0 || open > 1 || answers < 2 {
		t.Errorf("%d requests, %d answers; want a line of each, for a get and a delete at least",
			requests, answers)
	}

	if got := logged["Azure.Core"].Lines; got != int64(requests+answers) {
		t.Errorf("%d lines of Azure.Core; want the %d printed", got, requests+answers)
	}

	for _, want := range []string{
		"Executing 'Functions.q' (Reason='New queue message detected on '",
		"Trigger Details: MessageId: ", "Executed 'Functions.q' (Succeeded, Id="} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in the output", want)
		}
	}
}

func TestLog_HostJSONFilters(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		levels []string
		want   map[string]int64
	}{
		"Warnings": {200, []string{"Function=Warning", "Azure.Core=Warning"},
			map[string]int64{"Host.Function.Console": 2}},
		// Only the line on stderr is an error.
		"Default": {200, []string{"default=Error"}, map[string]int64{"Host.Function.Console": 1}},
		"Longest": {200, []string{"default=None", "Function=None", "function.Q=Information"},
			map[string]int64{"Function.q": 3}},
		"Failure": {500, []string{"default=Error"},
			map[string]int64{"Host.Function.Console": 1, "Function.q": 1}},
		"None": {500, []string{"default=None"}, map[string]int64{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := map[string]int64{}
			q := logOnce(t, c.status, c.levels...)
			for category, n := range q.host.Logged() {
				got[category] = n.Lines
			}

			if !maps.Equal(got, c.want) {
				t.Errorf("lines by category: %v; want %v", got, c.want)
			}

			if printed := strings.Contains(q.out.String(),
				"to stdout"); printed != (c.want["Host.Function.Console"] == 2) {
				t.Errorf("the handler's line is printed: %t, want %v", printed,
					c.want["Host.Function.Console"] == 2)
			}
		})
	}
}

func TestStart_WrongLogLevel(t *testing.T) {
	t.Parallel()
	levels := map[string]any{"Function": "Loud"}
	r := plainRig(t, rigOptions{hostJSON: map[string]any{"logging": map[string]any{"logLevel": levels}}})
	if _, err := host.Start(r.cfg); err == nil ||
		!strings.Contains(err.Error(), "logging.logLevel.Function") {
		t.Errorf("Start: %v; want an error that names the setting", err)
	}
}
