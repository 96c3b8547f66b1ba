package diagnosis

import (
	"errors"
	"strings"
	"testing"

	"weir/internal/settings"
	"weir/internal/weir"
)

func TestTodoFor_NamesTheSettingOfTheProblem(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"delivery.url":                  "delivery.url",
		"delivery.signIn.oauth2":        "delivery.signIn.oauth2",
		"delivery.signIn.steps[0].json": "delivery.signIn.steps",
		"delivery.backoff[1]":           "delivery.backoff",
		"contracts[1].fields[0]":        "contracts[1].fields",
		"lookups.find.get":              "lookups",
	} {
		got := todoFor(&weir.SettingProblem{Path: path}, "weir.yaml", "general")
		if want := "correct " + want + " in weir.yaml, or the variable that it names"; got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}

	url, other := &weir.SettingProblem{Path: "delivery.url"}, &weir.SettingProblem{Path: "lookups"}
	for _, wrong := range []error{nil, errors.New("no setting"), errors.Join(url, other)} {
		if got := todoFor(wrong, "weir.yaml", "general"); got != "general" {
			t.Errorf("%v: got %q, want the general advice", wrong, got)
		}
	}
}

// A stand-in for a variable can break the limits of its setting. What is wrong with the text of the
// file is a problem whatever the variable is.
func TestWithoutVariables(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t, "delivery:\n  url: ${CMS}/{foo}\nlanes: 0\n", "SET", "1")
	ofVariable := &weir.SettingProblem{Message: "of the variable", Line: 2}
	ofText := (&weir.SettingProblem{Message: "of the text", Line: 2}).OfText()
	others := []error{&weir.SettingProblem{Message: "of another line", Line: 3}, errors.New("no line")}

	left := withoutVariables(errors.Join(append(others, ofVariable, ofText)...), env)
	var got []string
	for _, p := range settings.ListProblems(left) {
		got = append(got, p.Message)
	}

	want := "of another line, no line, of the text"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("got %q, want %q", text, want)
	}
}
