package weir_test

import (
	"testing"

	"weir/internal/weir"
)

func TestSettingProblem_Error(t *testing.T) {
	t.Parallel()
	located := weir.NewSettingProblem("delivery.rate", "%q is not a rate", "x")
	located.File, located.Line, located.Column = "weir.yaml", 3, 7
	for want, p := range map[string]*weir.SettingProblem{
		"lanes is 0":                 weir.NewSettingProblem("lanes", "is %d", 0),
		"calendar: the days":         weir.NewSettingProblem("calendar", "the days"),
		"keys and more":              weir.NewSettingProblem("keys", "keys and more"),
		"notify[1].url: the address": weir.NewSettingProblem("url", "the address").Within("notify[1]."),
		`weir.yaml: [3:7] delivery.rate: "x" is not a rate`: located,
	} {
		if got := p.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
