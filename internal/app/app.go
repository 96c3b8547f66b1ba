package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"weir/internal/calendar"
	"weir/internal/cms"
	"weir/internal/contract"
	"weir/internal/drain"
	"weir/internal/poll"
	"weir/internal/signin"
	"weir/internal/storage/azure"
	"weir/internal/telemetry"
	"weir/internal/trial"
)

// App has the parts of the process that need no connection.
type App struct {
	settings    Settings
	log         *slog.Logger
	budgets     budgets
	contracts   *contract.Set
	cms         *cms.Client
	sender      sender         // the CMS client, or the sender of steps if a contract has steps; nil = neither exists
	keeper      *signin.Keeper // nil = requests are not signed
	account     *azure.Account
	calendar    *calendar.Calendar
	instruments *instruments
	instance    string // the platform's id of this instance; "" = not on a platform
	hasSignIn   bool   // the platform authenticates users

	running atomic.Pointer[running] // set once, when storage is open
}

// sender makes attempts. It also makes the attempts of trials, which may send no request.
type sender interface {
	drain.Sender
	trial.Sender
}

// New returns the App of the settings. The error has a line for each problem.
func New(env func(string) string, log *slog.Logger) (*App, error) {
	a, found := prepareApp(env, log)
	return a, errors.Join(found.settings, found.contracts, found.storage, found.cms)
}

// problems has the errors of the settings by the part of the App that they concern; nil = none.
type problems struct{ settings, contracts, storage, cms error }

// prepareApp makes the parts of an App for which the settings are valid, so that `weir check` can report all problems.
func prepareApp(env func(string) string, log *slog.Logger) (*App, problems) {
	return prepareAppWith(env, log, false)
}

// prepareAppWith does what prepareApp does. If withoutSignIn is true, the App has no sign-in and cannot send requests
// to the CMS: it serves only trials.
func prepareAppWith(env func(string) string, log *slog.Logger, withoutSignIn bool) (*App, problems) {
	settings, err := loadSettings(env)
	a := &App{settings: settings, log: log, budgets: currentBudgets(), instance: env("WEBSITE_INSTANCE_ID"),
		hasSignIn: strings.EqualFold(env("WEBSITE_AUTH_ENABLED"), "true")}
	a.calendar, _ = calendar.New(settings.Calendar) // loadSettings has reported the error
	storageCalls := &azure.Counter{}
	a.instruments = newInstruments(&settings, a.calendar, storageCalls, a.countWaitingEvents)
	found := problems{settings: errors.Join(err, a.budgets.checkMaxBody(int64(settings.MaxBody)))}
	if len(settings.Contracts) > 0 || err == nil {
		a.contracts, found.contracts = contract.New(settings.contractDefinitions(),
			contract.Limits{MaxBody: int64(settings.MaxBody), Memory: a.budgets.parse})
		found.contracts = settings.addPositions(found.contracts)
	}
	if settings.Storage != "" || !settings.Identity.IsZero() {
		a.account, found.storage = azure.Open(azure.Config{ConnectionString: string(settings.Storage),
			Identity: settings.Identity, Prefix: settings.Prefix, HasFiles: settings.Intake.Files != nil,
			Counter: storageCalls})
	}
	if settings.Delivery.URL != "" {
		found.cms = settings.addPositions(a.newCMS(withoutSignIn))
	}
	if a.cms != nil && a.contracts != nil {
		var err error
		a.sender, err = a.newStepsSender()
		found.contracts = errors.Join(found.contracts, settings.addPositions(err))
	}
	return a, found
}

// NewForCommand returns the App of a command. The App logs to the handler local. The caller must Close the App.
func NewForCommand(ctx context.Context, env func(string) string, local slog.Handler) (*App, error) {
	setGCPercent(env)
	limitMemory(env, os.DirFS("/"))
	export := telemetry.Open(ctx, env, telemetryBuild(), local)
	a, err := New(env, slog.New(export.Log(local)))
	if err != nil {
		flushExport(ctx, export)
		return nil, err
	}
	a.startExport(ctx, export)
	return a, nil
}

// Close sends the last spans, metrics and log records.
func (a *App) Close(ctx context.Context) { flushExport(ctx, a.instruments.export) }

// PollConfig returns the settings of weir poll.
func (a *App) PollConfig() poll.Config { return a.settings.pollConfig() }

// DefaultPollConfig returns the settings of weir poll if weir.yaml has none.
func DefaultPollConfig() poll.Config {
	s := defaultSettings()
	return s.pollConfig()
}

// Lanes returns the setting lanes.
func (a *App) Lanes() int { return a.settings.Lanes }

// ClosedUntil reports whether the calendar is closed now, with the reason and the end.
func (a *App) ClosedUntil() (closed bool, reason string, until time.Time) {
	return a.calendar.At(time.Now())
}

// processName returns a name of this process for operators: the platform's instance or the machine, and the
// process number.
func (a *App) processName() string {
	name := a.instance
	if name == "" {
		name, _ = os.Hostname() // without a name, the result has the process number alone
	}
	return fmt.Sprintf("%.40s-%d", name, os.Getpid())
}

// countWaitingEvents returns the approximate number of events that this process still has to send to their receivers.
func (a *App) countWaitingEvents() int {
	if r := a.running.Load(); r != nil {
		return r.notifier.Waiting()
	}
	return 0
}
