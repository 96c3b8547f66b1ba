package diagnosis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"weir/internal/calendar"
	"weir/internal/cms"
	"weir/internal/conceal"
	"weir/internal/contract"
	"weir/internal/lane"
	"weir/internal/settings"
	"weir/internal/signin"
	"weir/internal/steps"
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

// System has the parts of an installation. A part is nil if its settings are wrong or missing.
type System struct {
	Settings  *settings.Settings
	Problems  Problems
	Contracts *contract.Set
	Transport http.RoundTripper
	Sender    *steps.Sender
	Keeper    *signin.Keeper // nil = the settings have no sign-in to the CMS
	Account   Account
	Calendar  *calendar.Calendar
	Secrets   func() []string // returns all secrets that the process knows now
}

// Problems has the errors of the settings, with a field for each part of the system; nil = the part
// has no error.
type Problems struct{ Settings, Contracts, Storage, CMS error }

// IsNone reports whether no part but storage has an error.
func (p Problems) IsNone() bool { return errors.Join(p.Settings, p.Contracts, p.CMS) == nil }

// Check checks the settings, the host, storage and the CMS. It changes nothing in storage, and
// sends no message to the CMS. The CMS gets only the sign-in, and at most one look-up for each
// contract with steps. A look-up is the request of a step that only reads. If a look-up needs
// values of a message, Check takes the values from the samples.
func (s *System) Check(ctx context.Context, env func(string) string, samples []Sample) []Finding {
	ofStorage, ofSettings := settings.SplitStorageProblems(s.Problems.Settings)
	findings := []Finding{{Name: "settings", Wrong: ofSettings,
		Todo:     "correct it in " + s.Settings.FileName + " or in the environment",
		Warnings: s.Settings.ListWarnings()}}
	findings = append(findings, s.checkContracts()...)

	if ofSettings == nil {
		findings = append(findings, s.checkCalendar(time.Now()))
	}

	if ofSettings == nil && len(s.Settings.Upstreams) > 0 {
		findings = append(findings, s.checkUpstreams())
	}

	if ofSettings == nil && hasDoor(s.Settings) {
		findings = append(findings, s.checkDoor(time.Now()))
	}

	if s.Settings.Data == "" { // no host runs on a folder
		findings = append(findings, s.checkHost(env),
			checkHostWatch(os.DirFS("/proc"), os.Getppid()))
	}

	findings = append(findings, s.checkStorage(ctx, cmp.Or(s.Problems.Storage, ofStorage))...)
	ofCMS := s.CheckCMS(ctx)
	findings = append(findings, ofCMS)
	if ofCMS.Wrong == nil && s.Sender != nil && s.Problems.Contracts == nil {
		findings = append(findings, s.CheckLookUps(ctx, samples)...)
	}

	for i := range findings {
		s.HideSecrets(&findings[i])
	}

	return findings
}

// CheckOffline checks the settings and the contracts of a system whose variables have stand-ins. It
// does not check delivery.signIn and delivery.tls. The environment env has no stand-ins.
func (s *System) CheckOffline(env func(string) string) []Finding {
	wrong := errors.Join(s.Problems.Settings, s.Problems.CMS)
	findings := []Finding{{Name: "settings", Wrong: withoutVariables(wrong, env),
		Todo: "correct it in " + s.Settings.FileName}}

	return append(findings, s.checkContracts()...)
}

// checkContracts returns no finding if weir.yaml could not be read.
func (s *System) checkContracts() []Finding {
	wrong, file := s.Problems.Contracts, s.Settings.FileName
	if s.Contracts == nil && wrong == nil {
		return nil
	}

	f := Finding{Name: "contracts", Detail: strings.Join(s.Settings.ContractNames(), ", "),
		Wrong: wrong, Todo: todoFor(wrong, file, "correct it under contracts: in "+file),
		Warnings: WarnLookUps(s.Settings, s.Sender, nil)}

	return slices.Concat([]Finding{f}, describePages(s.Settings), describeDoctypes(s.Settings))
}

// WarnLookUps returns a warning for each look-up of a contract that may find another key's item,
// and for each rule that compares a value which no answer has. If names is not nil, it has the
// contracts to look at. The sender can be nil: then the settings are wrong, and there are no
// warnings.
func WarnLookUps(s *settings.Settings, sender *steps.Sender, names []string) (warnings []string) {
	if sender == nil {
		return nil
	}

	for _, c := range s.ContractsWithSteps() {
		if names == nil || slices.Contains(names, c.Name) {
			warnings = append(warnings, sender.WarnLookUps(c.Name)...)
			warnings = append(warnings, sender.WarnUnselected(c.Name)...)
		}
	}

	return warnings
}

// contractNames returns the names of the contracts in the settings, for readers of stored messages.
func (s *System) contractNames() *lane.Contracts {
	return lane.NewContracts(s.Contracts.FormerNames())
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
	isUnset := func(name string) bool { return env(name) == "" }
	var left []error
	for _, p := range settings.ListProblems(wrong) {
		isOfVariable := !p.IsOfText && p.Line >= 1 && p.Line <= len(lines) &&
			slices.ContainsFunc(settings.NamedVariables(lines[p.Line-1]), isUnset)
		if !isOfVariable {
			left = append(left, p)
		}
	}

	return errors.Join(left...)
}

// HideSecrets hides the secrets of the settings, the proxies and the sign-in in a finding. An error
// of a library can quote an address with its password.
func (s *System) HideSecrets(f *Finding) {
	base, err := url.Parse(s.Settings.Delivery.URL)
	if err != nil {
		base = &url.URL{}
	}

	secrets := cms.NewSecrets(base, s.Settings.CMSHeaders(), s.Secrets)
	f.Detail = secrets.Hide(f.Detail)
	if f.Wrong == nil {
		return
	}

	f.Wrong = conceal.NewError(secrets.Hide(f.Wrong.Error()), f.Wrong)
}

func (s *System) checkCalendar(now time.Time) Finding {
	f := Finding{Name: "calendar", Detail: "always open"}
	format := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	if closed, reason, until := s.Calendar.At(now); closed {
		f.Detail = fmt.Sprintf("closed (%s) until %s", reason, format(until))
	} else if next := s.Calendar.Next(now); !next.IsZero() {
		f.Detail = "open, closes at " + format(next)
	}

	return f
}
