package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/storage/azure"
)

// Finding is the result of one check of the command `handler check`.
type Finding struct {
	Name, Detail string
	Wrong        error    // nil = all is well
	Todo         string   // how to correct it
	Warnings     []string // weaknesses with which Weir still works
}

// checkTimeout bounds each check that needs a connection.
const checkTimeout = 10 * time.Second

// diagnosis checks an App. Parts of the App are nil if its settings are wrong.
type diagnosis struct{ *App }

// Diagnose checks settings, contracts, the host's file, storage and the CMS. It changes nothing in storage,
// and sends the CMS no message.
func Diagnose(ctx context.Context, env func(string) string) []Finding {
	a, found := prepareApp(env, slog.New(slog.DiscardHandler))
	if a.account != nil {
		defer a.account.Close()
	}
	d := diagnosis{a}
	findings := []Finding{{Name: "settings", Wrong: found.settings,
		Todo: "correct it in weir.yaml or in the environment", Warnings: a.settings.warnings()}}
	if a.contracts != nil || found.contracts != nil { // nil if weir.yaml could not be read
		findings = append(findings, Finding{Name: "contracts", Detail: strings.Join(a.settings.contractNames(), ", "),
			Wrong: found.contracts, Todo: "correct it under contracts: in weir.yaml"})
	}
	if found.settings == nil {
		findings = append(findings, d.diagnoseCalendar(time.Now()))
	}
	findings = append(findings, d.diagnoseHost(env), diagnoseHostWatch(os.DirFS("/proc"), os.Getppid()))
	findings = append(findings, d.diagnoseStorage(ctx, found.storage)...)
	return append(findings, d.diagnoseCMS(ctx, found.cms))
}

// diagnoseCalendar reports whether the calendar is open, and when that changes.
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

// diagnoseStorage checks the parts of the account, all at the same time.
func (d diagnosis) diagnoseStorage(ctx context.Context, wrong error) []Finding {
	if d.account == nil {
		return []Finding{{Name: "storage", Wrong: cmp.Or(wrong, errors.New("no account is named")),
			Todo: "set AzureWebJobsStorage (or AzureWebJobsStorage__accountName), " +
				"and WEIR_PREFIX where it is not weir"}}
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	checks := []func(context.Context) Finding{d.diagnoseTable, d.diagnoseQueues, d.diagnoseBlobs, d.diagnoseClock}
	findings := make([]Finding, len(checks))
	var all sync.WaitGroup
	for i, check := range checks {
		all.Go(func() { findings[i] = check(ctx) })
	}
	all.Wait()
	return findings
}

// diagnoseTable reads the table, and compares the number of lanes with the setting.
func (d diagnosis) diagnoseTable(ctx context.Context) Finding {
	f := Finding{Name: "table", Todo: todoStorage}
	recorded, err := lane.ReadLaneCount(ctx, d.account.Table())
	switch want := d.settings.Lanes; {
	case err != nil:
		return addStorageError(f, err)
	case recorded == 0:
		f.Detail = notThereYet
	case recorded != want:
		f.Wrong = fmt.Errorf("storage has %d lanes, and the setting says %d", recorded, want)
		f.Todo = fmt.Sprintf("set lanes: %d, or change storage by handler lanes %d", recorded, want)
	default:
		f.Detail = fmt.Sprintf("%d lanes", recorded)
	}
	return f
}

func (d diagnosis) diagnoseQueues(ctx context.Context) Finding {
	tickets, err := d.account.Tickets().Length(ctx)
	poison, poisonErr := d.account.Poison().Length(ctx)
	return addStorageError(Finding{Name: "queues", Todo: todoStorage,
		Detail: fmt.Sprintf("%d tickets, %d given up by the host", tickets, poison)}, cmp.Or(err, poisonErr))
}

func (d diagnosis) diagnoseBlobs(ctx context.Context) Finding {
	_, err := d.account.Bodies().List(ctx, "none/", "")
	return addStorageError(Finding{Name: "blobs", Todo: todoStorage}, err)
}

func (d diagnosis) diagnoseClock(ctx context.Context) Finding {
	skew, err := d.account.Skew(ctx)
	f := addStorageError(Finding{Name: "clock", Todo: todoStorage,
		Detail: fmt.Sprintf("differs from storage's by about %s", skew.Abs().Round(time.Second))}, err)
	if err == nil && skew.Abs() >= maxClockSkew {
		f.Wrong = fmt.Errorf("storage's clock differs by about %s", skew.Round(time.Second))
		f.Todo = "have this machine's clock set by NTP"
	}
	return f
}

// addStorageError adds the error of a check. A missing table, queue or container is no error, because the first
// start creates it.
func addStorageError(f Finding, err error) Finding {
	switch {
	case azure.Missing(err):
		f.Detail = notThereYet
	case err != nil:
		f.Wrong = firstLine(err)
	}
	return f
}

// firstLine returns an error with only the first line of err, because the SDK's errors have many lines.
func firstLine(err error) error {
	line, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
	return errors.New(strings.TrimSpace(line))
}
