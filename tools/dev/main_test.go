package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A second system in one folder would damage the first system's data and truncate the first
// system's log.
func TestRunSystem_RefusesASecondInOneFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("build", 0o755); err != nil {
		t.Fatal(err)
	}

	logPath := filepath.Join("build", "run.log")
	if err := os.WriteFile(logPath, []byte("the first system's log\n"), 0o644); err != nil {
		t.Fatal(err)
	}

	first, err := lockFolder()
	if err != nil {
		t.Fatalf("got %v for the first system, want the lock", err)
	}

	err = runSystem(t.Context(), devOptions{port: 1, cmsPort: 2, storagePort: 3})
	if err == nil || !strings.Contains(err.Error(),
		"the system of this folder is running already") {
		t.Errorf("got %v for the second system, want that one is running already", err)
	}

	if text, err := os.ReadFile(logPath); err != nil || string(text) != "the first system's log\n" {
		t.Errorf("got %q, %v as the log, want it unchanged", text, err)
	}

	if err := first.Close(); err != nil {
		t.Fatal(err)
	}

	third, err := lockFolder()
	if err != nil {
		t.Fatalf("got %v after the first system ended, want the lock", err)
	}

	third.Close()
}

func TestDescribeDemo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "In another terminal: make demo. "},
		{[]string{"--port", "7081", "--cms-port", "7082"},
			"In another terminal: make demo PORT=7081 CMS_PORT=7082. "},
		{[]string{"--storage-port", "11000"}, "In another terminal: make demo. "},
		{[]string{"--cms", "https://cms.example/api"}, ""},
	} {
		o, err := parseFlags(c.args)
		if err != nil {
			t.Fatalf("%v: got %v, want no error", c.args, err)
		}

		if got := o.describeDemo(); got != c.want {
			t.Errorf("%v: got %q, want %q", c.args, got, c.want)
		}
	}
}

func TestDescribeEnd(t *testing.T) {
	t.Parallel()
	const record = `{"time":"t","level":"ERROR","msg":"handler: not started","err":"my.yaml: [14:5] unknown field"}`
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"Silent": {nil, "it printed nothing"},
		"Host":   {[]string{"Now listening", "port 7071 is taken"}, "port 7071 is taken"},
		"Handler": {[]string{"Now listening",
			"exceeded the restart limit: 3 errors of the handler of instance 1, " +
				"the last: handler exited with code 1: " + record, "The host has stopped."},
			"my.yaml: [14:5] unknown field"},
		"CutRecord": {[]string{`the last: {"time":"t","err":"my.ya`},
			`the last: {"time":"t","err":"my.ya`},
	} {
		if got := describeEnd(c.lines); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestRestarts(t *testing.T) {
	t.Parallel()
	var seen restarts
	var got []string
	for _, line := range []string{
		"Worker process started and initialized. (instance 1, pid 7, port 1)",
		"Worker error 1 of instance 1: handler exited with code -1: some words",
		"another line",
		"Worker process started and initialized. (instance 1, pid 8, port 1)",
		"Worker process started and initialized. (instance 2, pid 9, port 2)",
	} {
		if text := seen.notice(line); text != "" {
			got = append(got, text)
		}
	}

	if want := "The handler ended (killed by a signal) and was started again."; len(got) != 1 ||
		got[0] != want {
		t.Errorf("got %q, want only %q", got, want)
	}
}

func TestParseFindings(t *testing.T) {
	t.Parallel()
	found := parseFindings([]byte(`{"name":"settings","ok":false,"wrong":["a","b"],"todo":"do"}
no JSON
{"name":"contracts","ok":true,"detail":"news, delete"}
`))
	if len(found) != 2 || len(found[0].Wrong) != 2 || found[1].Detail != "news, delete" {
		t.Errorf("got %+v, want two findings", found)
	}
}

func TestOptions_Texts(t *testing.T) {
	t.Parallel()
	o := devOptions{port: 7071, cms: "https://cms.example/a'b", prefix: "mine",
		connection: "AccountKey=k;", contracts: "news"}
	if got, want := o.commandLine(
		"check"), `AzureWebJobsStorage='AccountKey=k;' WEIR_PREFIX='mine' `+
		`WEIR_CMS_URL='https://cms.example/a'\''b' build/weir check`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}

	if got := o.describeSample(); !strings.Contains(got, "news") ||
		strings.Contains(got, "<article") {
		t.Errorf("got %s, want the name of the contract, and no message that it refuses", got)
	}

	o.hasSample = true
	if got := o.describeSample(); !strings.Contains(got, sampleMessage) {
		t.Errorf("got %s, want the sample", got)
	}

	for cause, want := range map[string]string{
		"the number of lanes differs from storage's": "build/weir lanes N",
		"the folding of keys differs from storage's": "build/weir lanes --fold RULES"} {
		if err := o.explainLanes(errors.New(cause)); !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want the command %s", err, want)
		}
	}
}

// A host that answers stays up, although Weir cannot work yet, and the checks that fail are named.
func TestDescribeFailing(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"status":"failing","checks":{"queue":{"ok":true},"lanes":{"ok":false,"detail":"being changed"},
			"clock":{"ok":false,"detail":"3s"}}}`: "clock: 3s; lanes: being changed",
		`no JSON`: "",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/api/checks" {
				w.Write([]byte(body))
			}
		}))

		got, err := describeFailing(t.Context(), server.URL+"/api")
		server.Close()
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%s: got %q, %v, want %q", body, got, err, want)
		}
	}
}
