package settings

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"weir/internal/weir"
)

// A problem has its setting and its place as fields, however it was found: by the YAML parser, by
// the decoder of a value, by the search for unknown keys, or by a rule.
func TestLoad_ProblemsHavePlaces(t *testing.T) {
	t.Parallel()
	type place struct {
		path         string
		line, column int
	}

	for name, c := range map[string]struct {
		text string
		want []place
	}{
		"Rule":     {minimal + "lanes: 0\n", []place{{"lanes", 5, 8}}},
		"TwoRules": {minimal + "lanes: 0\nlease: 1s\n", []place{{"lanes", 5, 8}, {"lease", 6, 8}}},
		"Group":    {minimal + "poll: { idle: 0s }\n", []place{{"poll.idle", 5, 15}}},
		// the file lacks the setting, so the place is that of the group
		"Parent": {minimal + "tls: { key: a }\nupstreams: [{ rate: 1/s }]\n",
			[]place{{"upstreams[0].name", 6, 13}, {"tls", 5, 6}}},
		"Decoder":   {minimal + "retention: soon\n", []place{{"retention", 5, 12}}},
		"WrongType": {minimal + "schedules: { max: many }\n", []place{{"schedules.max", 5, 19}}},
		"Unknown":   {minimal + "lames: 3\n", []place{{"", 5, 1}}},
		"Syntax":    {minimal + "lanes: [\n", []place{{"", 5, 8}}},
		"InAList": {strings.Replace(minimal, "delivery: {", "delivery: { backoff: [1s, 2d],", 1),
			[]place{{"delivery.backoff[1]", 2, 27}}},
		"OfAContract": {strings.Replace(minimal, "./@path }", "./@path, retryFor: 91d }", 1),
			[]place{{"contracts[0].retryFor", 4, 61}}},
		"OfAReceiver": {minimal + "notify: [{ url: \"https://x.example/\", secret: " +
			"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw, events: [message.dead, x] }]\n",
			[]place{{"notify[0].events[1]", 5, 110}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Load(newEnvironment(t, c.text))
			var got []place
			for _, p := range ListProblems(err) {
				got = append(got, place{p.Path, p.Line, p.Column})
				if p.File != "weir.yaml" {
					t.Errorf("%v: got the file %q, want weir.yaml", p, p.File)
				}
			}

			if !slices.Equal(got, c.want) {
				t.Errorf("got %v (%v), want %v", got, err, c.want)
			}
		})
	}
}

func TestListProblems_OfOtherErrors(t *testing.T) {
	t.Parallel()
	first, second := weir.NewSettingProblem("lanes", "is 0"), errors.New("no file")
	got := ListProblems(errors.Join(errors.Join(first), second))
	if len(got) != 2 || got[0] != first || got[1].Message != "no file" || got[1].Path != "" {
		t.Errorf("got %+v, want the problem of lanes, and a problem without a path", got)
	}

	if got := ListProblems(nil); got != nil {
		t.Errorf("got %v of no error, want none", got)
	}
}
