package app

import (
	"context"
	"log/slog"
	"path/filepath"

	"weir/internal/diagnosis"
	"weir/internal/settings"
)

// Diagnose checks the settings, the host, storage and the CMS, as far as the settings are right:
// see diagnosis.System.Check.
func Diagnose(ctx context.Context, env func(string) string,
	samples []diagnosis.Sample) []diagnosis.Finding {
	a, found := prepareAppWith(env, slog.New(slog.DiscardHandler),
		appOptions{program: "weir check"})
	defer a.closeAccount()

	return a.newDiagnosis(found).Check(ctx, env, samples)
}

// DiagnoseOffline checks the settings and the contracts, without the variables that weir.yaml
// names, without storage and without the CMS. It does not check delivery.signIn and delivery.tls.
func DiagnoseOffline(env func(string) string) []diagnosis.Finding {
	a, found, _ := openWithStandIns(env)
	if a == nil {
		a = &App{settings: settings.Settings{FileName: filepath.Base(settings.Path(env))}}
	}

	return a.newDiagnosis(found).CheckOffline(env)
}

func (a *App) newDiagnosis(found diagnosis.Problems) *diagnosis.System {
	return &diagnosis.System{Settings: &a.settings, Problems: found, Contracts: a.contracts,
		Transport: a.transport, Sender: a.sender, Keeper: a.keeper, Account: a.account,
		Calendar: a.calendar, Secrets: a.currentSecrets}
}
