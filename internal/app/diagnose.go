package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/internal/cms"
	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/panics"
	"weir/internal/recur"
	"weir/internal/settings"
	"weir/internal/storage"
	"weir/internal/storage/azure"
)

// Finding is the result of one check of the command `weir check`.
type Finding struct {
	Name, Detail string
	Wrong        error    // nil = the check found no problem
	Todo         string   // how to correct the problem
	Warnings     []string // weaknesses with which Weir still works
}

// checkTimeout bounds each of these: all checks of storage together, the check of the CMS, and each
// look-up.
const checkTimeout = 10 * time.Second

// diagnosis checks an App. A field of the App is nil if its settings are wrong or missing.
type diagnosis struct{ *App }

// Diagnose checks the settings, the host, storage and the CMS. It changes nothing in storage, and
// sends no message to the CMS. The CMS gets only the sign-in, and at most one look-up for each
// contract with steps. A look-up is the request of a step that only reads. If a look-up needs
// values of a message, Diagnose takes the values from the samples.
func Diagnose(ctx context.Context, env func(string) string, samples []Sample) []Finding {
	a, found := prepareAppWith(env, slog.New(slog.DiscardHandler),
		appOptions{program: "weir check"})
	defer a.closeAccount()
	d, file := diagnosis{a}, filepath.Base(settings.Path(env))
	var ofStorage error
	ofStorage, found.settings = settings.SplitStorageProblems(found.settings)
	findings := []Finding{{Name: "settings", Wrong: found.settings,
		Todo:     "correct it in " + file + " or in the environment",
		Warnings: a.settings.ListWarnings()}}

	if a.contracts != nil || found.contracts != nil { // both are nil if weir.yaml could not be read
		findings = append(findings,
			Finding{Name: "contracts", Detail: strings.Join(a.settings.ContractNames(), ", "),
				Wrong:    found.contracts,
				Todo:     todoFor(found.contracts, file, "correct it under contracts: in "+file),
				Warnings: a.warnLookUps(nil)})

		findings = append(findings,
			slices.Concat(describePages(&a.settings), describeDoctypes(&a.settings))...)
	}

	if found.settings == nil {
		findings = append(findings, d.diagnoseCalendar(time.Now()))
	}

	if found.settings == nil && len(a.settings.Upstreams) > 0 {
		findings = append(findings, d.diagnoseUpstreams())
	}

	if found.settings == nil && hasDoor(&a.settings) {
		findings = append(findings, d.diagnoseDoor(time.Now()))
	}

	if a.settings.Data == "" { // no host runs on a folder
		findings = append(findings, d.diagnoseHost(env),
			diagnoseHostWatch(os.DirFS("/proc"), os.Getppid()))
	}

	findings = append(findings, d.diagnoseStorage(ctx, cmp.Or(found.storage, ofStorage))...)
	ofCMS := d.diagnoseCMS(ctx, found.cms, file)
	findings = append(findings, ofCMS)
	if ofCMS.Wrong == nil && a.sender != nil && found.contracts == nil {
		findings = append(findings, d.diagnoseLookUps(ctx, samples)...)
	}

	for i := range findings {
		d.hideSecrets(&findings[i])
	}

	return findings
}

// DiagnoseOffline checks the settings and the contracts, without the variables that weir.yaml
// names, without storage and without the CMS. It does not check delivery.signIn and delivery.tls.
func DiagnoseOffline(env func(string) string) []Finding {
	a, found, _ := openWithStandIns(env)
	file := filepath.Base(settings.Path(env))
	findings := []Finding{{Name: "settings",
		Wrong: withoutVariables(errors.Join(found.settings, found.cms), env),
		Todo:  "correct it in " + file}}

	if a != nil && (a.contracts != nil || found.contracts != nil) {
		findings = append(findings,
			Finding{Name: "contracts", Detail: strings.Join(a.settings.ContractNames(), ", "),
				Wrong:    found.contracts,
				Todo:     todoFor(found.contracts, file, "correct it under contracts: in "+file),
				Warnings: a.warnLookUps(nil)})

		findings = append(findings,
			slices.Concat(describePages(&a.settings), describeDoctypes(&a.settings))...)
	}

	return findings
}

// describePages names the contracts whose CMS may answer with a page of HTML that Weir does not
// take for success. weir check sends no message, so it cannot see such an answer.
func describePages(s *settings.Settings) []Finding {
	var names []string
	for _, c := range s.Contracts {
		if !c.Steps.IsSet() && c.Success == "" {
			names = append(names, c.Name)
		}
	}

	if len(names) == 0 {
		return nil
	}

	return []Finding{{Name: "answers",
		Detail: strings.Join(names, ", ") + ": a 2xx answer that is a page of " +
			"HTML is tried again" + cms.PageOfSuccess}}
}

// describeDoctypes names the contracts whose CMS gets the document type declarations of messages.
func describeDoctypes(s *settings.Settings) []Finding {
	var names []string
	for _, c := range s.Contracts {
		if c.PassesDoctype() {
			names = append(names, c.Name)
		}
	}

	if len(names) == 0 {
		return nil
	}

	return []Finding{{Name: "doctype",
		Detail: strings.Join(names, ", ") + ": the CMS gets the document " +
			"type declaration of a message that has one"}}
}

// withoutVariables returns an error without the problems of lines of weir.yaml that name a variable
// which is not set: such a line has a stand-in, whose value can be out of the limits of its
// setting.
func withoutVariables(wrong error, env func(string) string) error {
	if wrong == nil {
		return nil
	}

	text, _ := os.ReadFile(settings.Path(env)) // after an error, wrong has that error
	lines := strings.Split(string(text), "\n")
	var left []error
	for problem := range strings.SplitSeq(wrong.Error(), "\n") {
		_, position, _ := strings.Cut(problem, "[")
		number, _, _ := strings.Cut(position, ":")
		n, err := strconv.Atoi(number)
		isOfVariable := err == nil && n >= 1 && n <= len(lines) &&
			slices.ContainsFunc(settings.NamedVariables(lines[n-1]),
				func(name string) bool { return env(name) == "" })
		if !isOfVariable {
			left = append(left, errors.New(problem))
		}
	}

	return errors.Join(left...)
}

// hideSecrets hides the secrets of the settings, the proxies and the sign-in in a finding. An error
// of a library can quote an address with its password.
func (d diagnosis) hideSecrets(f *Finding) {
	if d.settings.File == nil {
		return // weir.yaml could not be read, so no secret is known
	}

	base, err := url.Parse(d.settings.Delivery.URL)
	if err != nil {
		base = &url.URL{}
	}

	secrets := cms.NewSecrets(base, d.settings.CMSHeaders(), d.currentSecrets)
	f.Detail = secrets.Hide(f.Detail)
	if f.Wrong == nil {
		return
	}

	if text := f.Wrong.Error(); secrets.Hide(text) != text {
		f.Wrong = &settings.ConcealedProblem{Text: secrets.Hide(text), Cause: f.Wrong}
	}
}

func (d diagnosis) diagnoseCalendar(now time.Time) Finding {
	f := Finding{Name: "calendar", Detail: "always open"}
	format := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	if closed, reason, until := d.calendar.At(now); closed {
		f.Detail = fmt.Sprintf("closed (%s) until %s", reason, format(until))
	} else if next := d.calendar.Next(now); !next.IsZero() {
		f.Detail = "open, closes at " + format(next)
	}

	return f
}

const (
	todoStorage = "see whether AzureWebJobsStorage names the right account, its key is valid or the identity " +
		"has the roles, and its network rules let this machine in"
	notThereYet = "not there yet; the first start makes it"
)

func (d diagnosis) diagnoseStorage(ctx context.Context, wrong error) []Finding {
	if errors.Is(wrong, errNoStore) {
		return []Finding{{Name: "storage", Detail: d.settings.Data + ": " + notThereYet}}
	}
	if d.account == nil && d.settings.Data != "" {
		return []Finding{{Name: "storage", Wrong: wrong, Todo: "see docs/without-azure.md"}}
	}

	if d.account == nil {
		return []Finding{{Name: "storage", Wrong: cmp.Or(wrong, errors.New("no account is named")),
			Todo: "set AzureWebJobsStorage (or AzureWebJobsStorage__accountName), " +
				"and WEIR_PREFIX if it is not weir"}}
	}

	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	checks := []func(context.Context) Finding{d.diagnoseTable, d.diagnoseMessages,
		d.diagnoseSchedules, d.diagnoseQueues, d.diagnoseBlobs, d.diagnoseClock}
	if d.settings.Intake.Files != nil {
		checks = append(checks, d.diagnoseInbox)
	}

	findings := make([]Finding, len(checks))
	var all sync.WaitGroup
	for i, check := range checks {
		all.Go(func() {
			err := panics.Catch(func() error { findings[i] = check(ctx); return nil })
			if err != nil {
				findings[i] = Finding{Name: "check", Wrong: err}
			}
		})
	}

	all.Wait()

	return findings
}

func (d diagnosis) diagnoseTable(ctx context.Context) Finding {
	f := Finding{Name: "table", Todo: todoStorage}
	record, err := epochs.Read(ctx, d.account.Table())
	if storage.Is(err, storage.NotFound) || errors.Is(err, epochs.ErrNoFormat) &&
		d.isStorageUnused(ctx) {
		err = nil
	}

	recorded := record.Open
	want := epochs.Epoch{Lanes: d.settings.Lanes, Fold: d.settings.Fold.Rules}
	switch {
	case err != nil:
		return addStorageError(f, err)
	case record.Step.IsMove():
		f.Wrong, f.Todo = lane.CheckNotMoved(record), "docs/without-azure.md#move-to-azure-and-back"
	case recorded.Lanes == 0:
		f.Detail = notThereYet
	case !recorded.HasSameLanes(want) && d.isStorageUnused(ctx):
		f.Detail = fmt.Sprintf(
			"lanes: %s; storage was never used, so the next start takes lanes: %s from %s",
			recorded,
			want, d.settings.FileName)

	case recorded.Fold != want.Fold:
		f.Wrong = fmt.Errorf("storage has lanes: %d and fold: %s, and the settings have lanes: %d and fold: %s",
			recorded.Lanes, recorded.Fold, want.Lanes, want.Fold)
		f.Todo = fmt.Sprintf("set lanes: %d and fold: %s, or change storage by weir lanes %d --fold %s", recorded.Lanes,
			recorded.Fold, want.Lanes, want.Fold.Flag())

	case recorded.Lanes != want.Lanes:
		f.Wrong = fmt.Errorf("the number of lanes is %d in storage, and %d in the setting",
			recorded.Lanes, want.Lanes)
		f.Todo = fmt.Sprintf("set lanes: %d, or change storage by weir lanes %d", recorded.Lanes,
			want.Lanes)

	default:
		f.Detail = fmt.Sprintf("lanes: %s", recorded)
	}

	return f
}

// isStorageUnused reports whether a process takes the number of lanes from its settings at its next
// start.
func (d diagnosis) isStorageUnused(ctx context.Context) bool {
	store := &lane.Store{Table: d.account.Table(), Now: time.Now}
	record, err := epochs.Read(ctx, store.Table)
	if err != nil && !errors.Is(err, epochs.ErrNoFormat) || record.Step != epochs.StepNone {
		return false
	}

	isUnused, err := store.IsUnused(ctx, record)
	return err == nil && isUnused
}

func (d diagnosis) diagnoseSchedules(ctx context.Context) Finding {
	load, err := (&recur.Store{Table: d.account.Table(), Now: time.Now}).ReadLoad(ctx)
	return addStorageError(compareSchedules(load, d.settings.Schedules.Limits()), err)
}

// compareSchedules warns if the load exceeds a limit. It reports no error, because stored schedules
// still run after a limit was lowered.
func compareSchedules(load recur.Load, limits recur.Limits) Finding {
	f := Finding{Name: "schedules", Todo: todoStorage,
		Detail: fmt.Sprintf("%d of at most %d, up to %.3g messages a second of at most %.3g",
			load.Count, limits.Count, load.Rate, limits.Rate)}
	if load.Count > limits.Count || load.Rate > limits.Rate {
		f.Warnings = append(f.Warnings,
			"the stored schedules exceed the limits (schedules.max, schedules.rate); "+
				"they run on, and none can be added")
	}

	return f
}

func (d diagnosis) diagnoseQueues(ctx context.Context) Finding {
	tickets, err := d.account.Tickets().Length(ctx)
	poison, poisonErr := d.account.Poison().Length(ctx)
	return addStorageError(Finding{Name: "queues", Todo: todoStorage,
		Detail: fmt.Sprintf("%d waiting, %d poisoned", tickets, poison)}, cmp.Or(err, poisonErr))
}

func (d diagnosis) diagnoseBlobs(ctx context.Context) Finding {
	_, err := d.account.Bodies().List(ctx, "none/", "")
	return addStorageError(Finding{Name: "blobs", Todo: todoStorage}, err)
}

// maxInboxAge is the age above which weir check warns of a file that waits in the inbox. Weir lets
// an empty file wait for an hour, so maxInboxAge is longer.
const maxInboxAge = 2 * time.Hour

func (d diagnosis) diagnoseInbox(ctx context.Context) Finding {
	page, err := d.account.Inbox().List(ctx, "", "")
	events, eventsErr := d.account.InboxEvents().Length(ctx)
	return addStorageError(describeInbox(page, events, time.Now()), cmp.Or(err, eventsErr))
}

func describeInbox(page storage.FilePage, events int64, now time.Time) Finding {
	count, old := fmt.Sprint(len(page.Files)), 0
	if page.Next != "" {
		count += " and more"
	}

	for _, f := range page.Files {
		if now.Sub(f.ModifiedAt) > maxInboxAge {
			old++
		}
	}

	f := Finding{Name: "inbox", Todo: todoStorage,
		Detail: fmt.Sprintf("files waiting: %s, events: %d", count, events)}

	if old > 0 {
		f.Warnings = append(f.Warnings,
			fmt.Sprintf("files in the inbox for over %.0f hours: %d; docs/files.md has "+
				"the reasons", maxInboxAge.Hours(), old))
	}

	return f
}

func (d diagnosis) diagnoseClock(ctx context.Context) Finding {
	skew, err := d.account.Skew(ctx)
	if azure.Missing(err) {
		return Finding{Name: "clock",
			Detail: "not compared yet; that needs what the first start makes"}
	}

	f := addStorageError(Finding{Name: "clock", Todo: todoStorage,
		Detail: fmt.Sprintf("differs from storage's by about %s", skew.Abs().Round(time.Second))},
		err)

	if err == nil && skew.Abs() >= maxClockSkew {
		f.Wrong = fmt.Errorf("storage's clock differs by about %s", skew.Round(time.Second))
		f.Todo = "have this machine's clock set by NTP"
	}

	return f
}

// addStorageError adds the error of a check to the finding. A missing table, queue or container is
// no problem, because the first start of a process creates it.
func addStorageError(f Finding, err error) Finding {
	switch {
	case azure.Missing(err):
		f.Detail = notThereYet
	case err != nil:
		f.Wrong = firstLine(err)
	}
	return f
}

// firstLine shortens err to its first line, because errors of the Azure SDK have many lines.
func firstLine(err error) error {
	line, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
	return errors.New(strings.TrimSpace(line))
}
