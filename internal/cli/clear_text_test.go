package cli

import (
	"strings"
	"testing"
)

// The command "check" prints the warnings about the settings. A warning does not make the check of
// the settings fail.
func TestCheck_PrintsWarnings(t *testing.T) {
	t.Parallel()
	text := strings.Replace(minimal, "http://127.0.0.1:7072", "http://cms.invalid", 1)
	for _, args := range [][]string{{"check"}, {"check", "--json"}} {
		s, stdout, _ := newTestConsole(newEnvironment(t, text))
		s.runCommand(t.Context(), args)
		want := "settings  ok\nsettings  warning: delivery.url is http"
		if len(args) > 1 {
			want = `{"name":"settings","ok":true,"warnings":["delivery.url is http`
		}

		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%v: got %s, want %s", args, stdout, want)
		}
	}
}

func TestWarnClearTextKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address, key string
		want         bool
	}{
		{"http://weir.example", "s3cret", true}, {"http://weir.example", "", false},
		{"https://weir.example", "s3cret", false},
		{"http://127.0.0.1:7071", "s3cret", false}, {"http://[::1]:7071", "s3cret", false},
		{"http://localhost:7071", "s3cret", false},
	} {
		got := warnClearTextKey(c.address, c.key)
		if (got != "") != c.want || strings.Contains(got, "s3cret") {
			t.Errorf("%s with key %t: got %q, want a warning: %t", c.address, c.key != "",
				got, c.want)
		}
	}
}
