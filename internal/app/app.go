package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"weir/internal/audit"
	"weir/internal/calendar"
	"weir/internal/contract"
	"weir/internal/diagnosis"
	"weir/internal/door"
	"weir/internal/inflight"
	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/limiter"
	"weir/internal/poll"
	"weir/internal/settings"
	"weir/internal/signin"
	"weir/internal/steps"
	"weir/internal/storage/azure"
	"weir/internal/telemetry"
)

// App has the parts of the process that need no connection.
type App struct {
	settings  settings.Settings
	log       *slog.Logger
	budgets   budgets
	contracts *contract.Set
	// connection to the CMS; nil = delivery.url or its headers are wrong
	transport http.RoundTripper
	// makes the attempts of messages and of trials; nil = wrong settings
	sender *steps.Sender
	keeper *signin.Keeper // nil = the settings have no sign-in to the CMS
	// spreads the requests to the CMS; nil = the rate has no limit, or this App does not share it
	limiter     *limiter.Limiter
	account     account    // nil = its settings are wrong or missing
	broken      chan error // gets an error if the account cannot be used any more
	calendar    *calendar.Calendar
	instruments *instruments
	damages     *lane.Damages
	instance    string       // the platform's id of this instance; "" = not on a platform
	signIn      audit.SignIn // the platform's sign-in of operators
	door        *door.Door   // guards the routes; nil = a Functions host does
	// refuses requests that have ended the process twice; nil = all requests run. It is set before
	// storage is open.
	crashGuard *inflight.Guard

	fixedSecrets []string // see Settings.FixedSecrets

	running atomic.Pointer[running] // nil until storage is open
}

// New returns the App of the settings in the environment and weir.yaml. The error has a line for
// each problem. After an error, nothing has to be closed.
func New(env func(string) string, log *slog.Logger) (*App, error) {
	return newWith(env, log, appOptions{program: "weir"})
}

func newWith(env func(string) string, log *slog.Logger, o appOptions) (*App, error) {
	o.sharesRate = true
	a, found := prepareAppWith(env, log, o)
	err := errors.Join(found.Settings, found.Contracts, found.Storage, found.CMS)
	if err != nil {
		a.closeAccount()
	}
	return a, err
}

// appOptions has what differs between the Apps of one process.
type appOptions struct {
	program       string // name of the program, for processes that want the same folder
	withoutSignIn bool   // no sign-in to the CMS: for trials that send no request to the CMS
	sharesRate    bool   // requests to the CMS keep delivery.rate, with those of other processes
	isServer      bool   // the process must have the folder alone, and makes it if it is missing
}

// prepareAppWith makes those parts of an App whose settings are valid, so that `weir check` can
// report the problems of all parts.
func prepareAppWith(env func(string) string, log *slog.Logger, o appOptions) (*App, diagnosis.Problems) {
	s, err := settings.Load(env)
	a := &App{
		settings:     s,
		log:          log,
		broken:       make(chan error, 1),
		budgets:      currentBudgets(),
		instance:     env("WEBSITE_INSTANCE_ID"),
		signIn:       readSignIn(env),
		fixedSecrets: s.FixedSecrets(env),
	}

	a.calendar, _ = calendar.New(s.Calendar) // settings.Load has already returned this error
	storageCalls := &azure.Counter{}
	a.instruments = newInstruments(&s, a.calendar, storageCalls, a.countWaitingEvents)
	a.damages = &lane.Damages{Log: log, OnFound: a.instruments.metrics.FoundDamaged}
	found := diagnosis.Problems{Settings: errors.Join(err, a.budgets.checkMaxBody(int64(s.MaxBody)))}
	if len(s.Contracts) > 0 || err == nil {
		a.contracts, found.Contracts = contract.New(s.ContractDefinitions(),
			contract.Limits{MaxBody: int64(s.MaxBody), Memory: a.budgets.parse})
		found.Contracts = s.Locate(found.Contracts)
	}

	if s.Storage != "" || !s.Identity.IsZero() || s.Data != "" {
		found.Storage = a.openAccount(storageCalls, o)
	}

	if o.sharesRate && a.account != nil {
		a.limiter = a.newLimiter()
	}

	if s.Delivery.URL != "" {
		found.CMS = s.Locate(a.openCMS(o.withoutSignIn))
	}

	if a.transport != nil && (a.contracts != nil || found.Contracts != nil) {
		sender, err := a.compileSender()
		if a.contracts != nil && err == nil {
			a.sender = sender
		}
		found.Contracts = errors.Join(found.Contracts, s.Locate(err))
	}

	return a, found
}

// NewForCommand returns the App of a command. The App logs to the handler "local". The caller must
// call Close.
func NewForCommand(ctx context.Context, env func(string) string, local slog.Handler) (*App, error) {
	setGCPercent(env)
	limitMemory(env, os.DirFS("/"))
	export := telemetry.Open(ctx, env, telemetryBuild(), local)
	a, err := newWith(env, slog.New(export.Log(local)),
		appOptions{program: "a command of weir"})
	if err != nil {
		flushExport(ctx, export)
		return nil, err
	}

	a.startExport(ctx, export)

	return a, nil
}

// Close ends the use of storage, and sends the last spans, metrics and log records.
func (a *App) Close(ctx context.Context) {
	a.closeAccount()
	flushExport(ctx, a.instruments.export)
}

// PollConfig returns the settings of the command `weir poll`.
func (a *App) PollConfig() poll.Config { return a.settings.PollConfig() }

// DefaultPollConfig returns the settings of the command `weir poll` for a weir.yaml without such
// settings.
func DefaultPollConfig() poll.Config {
	s := settings.Default()
	return s.PollConfig()
}

// Lanes returns the number of lanes and the folding of keys in the settings.
func (a *App) Lanes() epochs.Epoch {
	return epochs.Epoch{Lanes: a.settings.Lanes, Fold: a.settings.Fold.Rules}
}

// ClosedUntil reports whether the calendar is closed now, and returns the reason and the end of the
// closed time.
func (a *App) ClosedUntil() (closed bool, reason string, until time.Time) {
	return a.calendar.At(time.Now())
}

// processName returns a name of this process for operators. The name has two parts: the id of the
// instance (or the host name, if there is no such id), and the process id.
func (a *App) processName() string {
	name := a.instance
	if name == "" {
		name, _ = os.Hostname() // after an error, the result has only the process id
	}
	return fmt.Sprintf("%.40s-%d", name, os.Getpid())
}

// countWaitingEvents returns the approximate number of events that this process still has to send
// to receivers of events.
func (a *App) countWaitingEvents() int {
	if r := a.running.Load(); r != nil {
		return r.notifier.Waiting()
	}
	return 0
}
