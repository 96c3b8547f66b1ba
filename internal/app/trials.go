package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"weir/internal/cms"
	"weir/internal/contract"
	"weir/internal/diagnosis"
	"weir/internal/redact"
	"weir/internal/settings"
	"weir/internal/trial"
	"weir/internal/weir"
)

// Trials makes attempts for messages that are not stored.
type Trials struct {
	app *App
	// maps a value to the text ${NAME} that replaces the value
	variables map[string]string
	// true = requests without a given answer go to the CMS
	isLive bool
	// called with each answer of the CMS; nil = not called
	record func(step string, a trial.Answer)
}

// OpenTrials reads the settings. Trials need no storage.
//
// The caller of Try can give the answers to the requests of a trial. In a live trial, the other
// requests go to the CMS. So a live trial needs the variables of weir.yaml. Trials that are not
// live need no variables: their requests show ${NAME} in place of each variable's value.
func OpenTrials(env func(string) string, isLive bool) (*Trials, error) {
	if isLive {
		a, err := openForTrials(env, false)
		return &Trials{app: a, isLive: true}, err
	}

	a, found, variables := openWithStandIns(env)
	if err := errors.Join(found.Settings, found.Contracts, found.CMS); err != nil {
		return nil, err
	}

	return &Trials{app: a, variables: variables}, nil
}

// openWithStandIns returns an App without storage and without sign-in, with a stand-in for the
// value of each variable that weir.yaml names. variables maps these stand-ins, and actual values,
// to the texts ${NAME}.
func openWithStandIns(env func(string) string) (a *App, found diagnosis.Problems,
	variables map[string]string) {
	text, err := settings.ReadFile(settings.Path(env))
	if err != nil {
		return nil, diagnosis.Problems{Settings: err}, nil
	}

	names := settings.NamedVariables(text)
	variables = map[string]string{}
	standIn := func(name string) string {
		if !slices.Contains(names, name) {
			return env(name)
		}
		value := standInOf(name)
		variables[value] = "${" + name + "}"
		return value
	}
	if a, found = prepareForTrials(standIn, true); found.IsNone() {
		return a, found, variables
	}

	// Some settings need a number or a duration, and a stand-in is neither. So the second try uses
	// the actual value of each variable that is set, and looks for a stand-in that fits each other
	// one.
	fitting := map[string]string{}
	actual := func(name string) string {
		value := env(name)
		if !slices.Contains(names, name) {
			return value
		}

		if value = cmp.Or(value, fitting[name]); value == "" {
			return standIn(name)
		}

		variables[value] = "${" + name + "}"

		return value
	}

	a, found = prepareForTrials(actual, true)
	for hasFitted := true; hasFitted && !found.IsNone(); {
		hasFitted = false
		for _, name := range names {
			if env(name) != "" || fitting[name] != "" || found.IsNone() {
				continue
			}

			before := findFirstPlace(found)
			for _, fitting[name] = range []string{"1m", "1", "1MiB", "1/s", ""} {
				if a, found = prepareForTrials(actual, true); found.IsNone() ||
					findFirstPlace(found) != before {
					hasFitted = true
					break
				}
			}
		}
	}

	return a, found, variables
}

// findFirstPlace returns the line and the column of the first problem of the settings. The reading
// of weir.yaml ends with the first value of a wrong type. So another place means that the type of
// the former value is right.
func findFirstPlace(found diagnosis.Problems) (place [2]int) {
	for _, p := range settings.ListProblems(found.Settings) {
		if p.Line > 0 {
			return [2]int{p.Line, p.Column}
		}
	}
	return place
}

// standInOf returns a stand-in for a variable's value. The stand-in is valid as an address and as a
// text.
func standInOf(name string) string { return "https://" + name + ".variable.invalid" }

// openForTrials returns an App without storage. If withoutSignIn is true, the App ignores
// delivery.signIn and delivery.tls, so it is only for trials that send no request to the CMS.
func openForTrials(env func(string) string, withoutSignIn bool) (*App, error) {
	a, found := prepareForTrials(env, withoutSignIn)
	return a, errors.Join(found.Settings, found.Contracts, found.CMS)
}

// prepareForTrials is openForTrials with the problems of each part.
func prepareForTrials(env func(string) string, withoutSignIn bool) (*App, diagnosis.Problems) {
	local := func(name string) string {
		switch name {
		case settings.HostPortVariable:
			return ""
		case "AzureWebJobsStorage":
			return "UseDevelopmentStorage=true" // a valid value; no request goes to this account
		case settings.DataVariable:
			return "" // another process may have the folder open
		}

		return env(name)
	}

	a, found := prepareAppWith(local, slog.New(slog.DiscardHandler),
		appOptions{withoutSignIn: withoutSignIn})
	a.closeAccount()
	return a, found
}

// RecordAnswers makes later trials call record with each answer of the CMS.
func (t *Trials) RecordAnswers(record func(step string, a trial.Answer)) { t.record = record }

// Try makes one attempt for a body. Requests get the given answers instead of the CMS's answers. If
// the contract refuses the body, the returned trial has the problems.
func (t *Trials) Try(ctx context.Context, contentType string, body []byte,
	answers trial.Answers) trial.Trial {
	checked, err := t.app.contracts.Check(ctx, contentType, body)
	m := checked.Message
	if err != nil || len(checked.Problems) > 0 {
		return describeRefusal(&m, checked.Problems, err)
	}

	m.ID, m.AcceptedAt = trial.NewID(t.isLive), trialTime
	if t.isLive {
		m.AcceptedAt = time.Now()
	}

	runner := t.app.newTrialRunner(t.isLive, t.variables, t.record)
	mask, hideSecrets := redact.MaskOf(ctx, t.app.contracts, &m), runner.Secrets.Hide
	runner.Secrets.Hide = func(text string) string { return mask.Hide(hideSecrets(text)) }
	tried := runner.RunTrial(ctx,
		weir.Delivery{Message: &m, Fence: 1, Attempt: 1, Hide: mask.Hide}, answers)
	tried.Warnings = diagnosis.WarnLookUps(&t.app.settings, t.app.sender, []string{m.Contract})

	return tried
}

// Check checks a body against the contracts, and returns the message or the problems.
func (t *Trials) Check(ctx context.Context, contentType string,
	body []byte) (contract.Checked, error) {
	return t.app.contracts.Check(ctx, contentType, body)
}

// CompareText returns the values of a body whose text differs from the text that earlier versions
// read.
func (t *Trials) CompareText(ctx context.Context, contentType string,
	body []byte) ([]contract.TextDifference, error) {
	return t.app.contracts.CompareText(ctx, contentType, body, t.app.sender.Selections)
}

// trialTime is the time of acceptance in trials that are not live. A fixed time gives repeated
// trials equal requests.
var trialTime = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// describeRefusal returns the trial of a message that its contract refuses.
func describeRefusal(m *weir.Message, problems []weir.Problem, err error) trial.Trial {
	t := trial.Trial{Contract: m.Contract, Key: m.Key, Version: m.Version, DueAt: m.DueAt,
		Verdict: trial.Refused, Problems: problems}
	var e *weir.Error
	if errors.As(err, &e) {
		t.Reason = e.Message
	}
	return t
}

// newTrialRunner returns a runner of trials. For variables and record, see Trials.
func (a *App) newTrialRunner(isLive bool, variables map[string]string,
	record func(string, trial.Answer)) *trial.Runner {
	r := &trial.Runner{Sender: a.sender, Now: time.Now, Record: record,
		SignsIn:     a.settings.Delivery.SignIn.IsSet(),
		HasContract: a.contractNames().Has, Secrets: trial.Secrets{Hide: a.newTrialMask(variables),
			Headers: slices.Collect(maps.Keys(a.settings.Delivery.Headers))}}

	if base, err := url.Parse(a.settings.Delivery.URL); err == nil {
		for name := range base.Query() {
			if !strings.Contains(base.Query().Get(name), "{") {
				r.Secrets.Params = append(r.Secrets.Params, name)
			}
		}
	}

	if isLive {
		r.Live = a.transport
	}

	return r
}

// newTrialMask returns a function that hides secrets in the texts of a trial. For variables, see
// Trials.
func (a *App) newTrialMask(variables map[string]string) func(string) string {
	placeholders := newPlaceholders(variables)
	base, _ := url.Parse(a.settings.Delivery.URL) // cms.CheckTarget has checked the address
	secrets := cms.NewSecrets(base, a.settings.CMSHeaders(), func() []string {
		return slices.DeleteFunc(a.currentSecrets(),
			func(value string) bool { return variables[value] != "" })
	})

	return func(text string) string { return secrets.Hide(placeholders.Replace(text)) }
}

// newPlaceholders returns a replacer that replaces the variables' values by ${NAME}. If one value
// is the beginning of another value, the replacer takes the longer value.
func newPlaceholders(variables map[string]string) *strings.Replacer {
	const shortest = 4 // many texts contain a shorter value by chance
	var values []string
	for value := range variables {
		if len(value) >= shortest {
			values = append(values, value)
		}
	}

	slices.SortFunc(values, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	var pairs []string
	for _, value := range values {
		for _, form := range []string{value, url.QueryEscape(value), url.PathEscape(value)} {
			pairs = append(pairs, form, variables[value])
		}
	}

	return strings.NewReplacer(pairs...)
}
