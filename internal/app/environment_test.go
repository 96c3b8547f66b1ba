package app

import (
	"log/slog"

	"weir/internal/diagnosis"
	testsettings "weir/internal/testkit/settings"
)

const minimal = testsettings.Minimal

var newEnvironment = testsettings.NewEnvironment

// prepareApp makes those parts of an App whose settings are valid.
func prepareApp(env func(string) string, log *slog.Logger) (*App, diagnosis.Problems) {
	return prepareAppWith(env, log, appOptions{program: "weir"})
}
