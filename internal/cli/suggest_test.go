package cli

import (
	"errors"
	"strings"
	"testing"
)

func TestParseMessageID(t *testing.T) {
	t.Parallel()
	for argument, want := range map[string]string{
		"AQABL714SFvJDd7dAA": "AQABL714SFvJDd7dAA",
		"http://127.0.0.1:7071/api/messages/AQABL714SFvJDd7dAA":            "AQABL714SFvJDd7dAA",
		"https://weir.example/api/messages/AQABL714SFvJDd7dAA?code=s3cret": "AQABL714SFvJDd7dAA",
		"https://weir.example/api/messages/AQABL714SFvJDd7dAA/body":        "AQABL714SFvJDd7dAA",
		"https://weir.example/api/dashboard/messages/AQABL714SFvJDd7dAA":   "AQABL714SFvJDd7dAA",
	} {
		if got, err := parseMessageID(argument); got != want || err != nil {
			t.Errorf("%q: got %q and the error %v, want %q", argument, got, err, want)
		}
	}

	for _, argument := range []string{"", "e1.xml", "/news/1", "..",
		"https://weir.example/elsewhere?code=s3cret",
		"https://weir.example/api/messages/?code=s3cret"} {
		got, err := parseMessageID(argument)
		if usage := (*usageError)(nil); !errors.As(err, &usage) ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: got %q and the error %v, want a usage error without the key",
				argument, got, err)
		}
	}
}

func TestConsole_ChangesNoMessageIfAnIDIsWrong(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	for _, command := range []string{"status", "cancel AQ1", "discard --reason=old AQ1",
		"erase AQ1", "dead replay AQ1",
		"dead show"} {
		f.runCommand(append(strings.Fields(command), "/news/1")...).expectEnd(t, exitUsage, "",
			`"/news/1" is neither a message's id nor its address`)
	}

	if got := f.receivedRequests(); got != "" {
		t.Errorf("got the requests\n%s\nwant none", got)
	}
}

func TestConsole_SuggestsCommands(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"chekc", `unknown command "chekc" for "weir"; did you mean check?`},
		{"stat", `did you mean status?`},
		{"dead lst", `unknown command "lst" for "weir dead"; did you mean list?`},
		{"replay AQ1", `unknown command "replay" for "weir"; did you mean dead replay?`},
		{"retry AQ1", `unknown command "retry" for "weir"; did you mean dead replay?`},
		{"errors", `unknown command "errors" for "weir"; did you mean dead list --errors?`},
		{"quux", `unknown command "quux" for "weir"` + "\n"},
	} {
		s, _, stderr := newTestConsole(newEnvironment(t, minimal))
		if code := s.runCommand(t.Context(), strings.Fields(c.args)); code != exitUsage ||
			!strings.Contains(stderr.String(), c.want) {
			t.Errorf("%s: got code %d and %q, want %d and %q", c.args, code, stderr,
				exitUsage, c.want)
		}
	}
}

func TestConsole_Completion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		s, stdout, stderr := newTestConsole(newEnvironment(t, minimal))
		if code := s.runCommand(t.Context(), []string{"completion", shell}); code != exitOK ||
			stdout.Len() < 1000 {
			t.Errorf("%s: got code %d, %d bytes and %q, want a script", shell, code,
				stdout.Len(), stderr)
		}
	}
}
