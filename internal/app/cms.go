package app

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"weir/internal/cms"
	"weir/internal/lane"
	"weir/internal/limiter"
	"weir/internal/signin"
	"weir/internal/steps"
	"weir/internal/weir"
)

// openCMS sets a.transport to a new connection to the CMS. If withoutSignIn is true, the connection
// uses neither delivery.signIn nor delivery.tls.
func (a *App) openCMS(withoutSignIn bool) error {
	var transport http.RoundTripper = cms.NewTransport(nil)
	if !withoutSignIn {
		var err error
		if transport, err = a.newTransport(); err != nil {
			return err
		}
	}

	if err := cms.CheckTarget(a.settings.Delivery.URL, a.settings.CMSHeaders()); err != nil {
		return err
	}

	a.transport = transport

	return nil
}

// cmsName is the name of the CMS in the row of its rate.
const cmsName = "cms"

// newLimiter returns the limiter of requests to the CMS; nil = the settings have no rate.
func (a *App) newLimiter() *limiter.Limiter {
	d := &a.settings.Delivery
	if d.Rate.Count == 0 {
		return nil
	}

	return limiter.New(limiter.Config{Table: a.account.Table(), CMS: cmsName,
		Rate: limiter.Rate(d.Rate), RetryAfter: d.RetryAfter, Now: time.Now, Log: a.log})
}

// newTransport returns the transport of requests to the CMS. If delivery.signIn is set, the
// transport signs the requests in, and newTransport sets a.keeper.
func (a *App) newTransport() (http.RoundTripper, error) {
	d := &a.settings.Delivery
	config, err := d.TLS.NewConfig()
	if err != nil {
		return nil, weir.NewSettingProblem("delivery.tls", "%v", err)
	}

	var transport http.RoundTripper = cms.NewTransport(config)
	if a.limiter != nil {
		transport = limiter.NewTransport(transport, a.limiter)
	}

	if !d.SignIn.IsSet() {
		return transport, nil
	}

	for name := range d.Headers {
		if strings.EqualFold(name, "Authorization") {
			return nil, weir.NewSettingProblem("delivery.signIn", "delivery.signIn and the "+
				"header Authorization in delivery.headers exclude each other")
		}
	}

	source, err := a.newSignInSource(transport)
	if err != nil {
		return nil, err
	}

	a.keeper = signin.NewKeeper(source, time.Now)
	a.keeper.WarnBy(func(doubt string) { a.log.Warn("cms: lifetime of the sign-in", "err", doubt) })

	return signin.NewTransport(transport, a.keeper), nil
}

func (a *App) newSignInSource(transport http.RoundTripper) (signin.Source, error) {
	d := &a.settings.Delivery
	if !d.SignIn.Steps.IsSet() {
		if d.SignIn.Send.IsSet() || d.SignIn.For.IsSet() || d.SignIn.Cookies {
			return nil, weir.NewSettingProblem("delivery.signIn",
				"send, cookies and for belong to steps")
		}
		return d.SignIn.NewSource(signin.Tools{Transport: transport,
			Azure: a.settings.Identity.NewTokenSource(), Now: time.Now})
	}

	if d.SignIn.Settings.IsSet() {
		return nil, weir.NewSettingProblem("delivery.signIn",
			"has steps and a second way to sign in; keep one of them")
	}

	return steps.NewSignIn(steps.SignInConfig{File: a.settings.File, URL: d.URL,
		Steps: d.SignIn.Steps,
		Send:  d.SignIn.Send, Cookies: d.SignIn.Cookies, For: d.SignIn.For, Transport: transport,
		Timeout: time.Duration(d.Timeout), Now: time.Now})
}

// compileSender returns the sender of messages: it runs the contracts' steps, and sends a single
// request for each message of the other contracts.
func (a *App) compileSender() (*steps.Sender, error) {
	d := &a.settings.Delivery
	contracts := a.settings.ContractsWithSteps()
	switch {
	case len(contracts) > 0:
	case d.On.IsSet():
		return nil, weir.NewSettingProblem("delivery.on",
			"is for the answers to steps, and no contract has steps: write success or "+
				"answers in the contract")

	case a.settings.LookUps.IsSet():
		return nil, weir.NewSettingProblem("lookups",
			"is for the steps of contracts, and no contract has steps: "+
				"remove it, or write - use: NAME in the steps of a contract")
	}

	for i, c := range a.settings.Contracts {
		if c.Steps.IsSet() && c.Success != "" {
			return nil, weir.NewSettingProblem(fmt.Sprintf("contracts[%d].success", i),
				"is for a single request; with steps write success, an expression, in a step")
		}
	}

	cfg := steps.Config{File: a.settings.File, URL: d.URL, Method: d.Method,
		Headers: a.settings.CMSHeaders(),
		Timeout: time.Duration(d.Timeout), Settle: a.settings.SettleTime(), Rules: d.On,
		RetryAfter: d.RetryAfter,
		MaxAnswer:  int64(d.MaxAnswer), LookUps: a.settings.LookUps,
		Contracts: contracts, Messages: a.contracts, Transport: a.transport, Now: time.Now,
		Secrets: a.currentSecrets, CanSignInAnew: d.SignIn.IsRenewable()}

	if a.contracts != nil {
		cfg.SuccessRules, cfg.Answers = a.contracts.SuccessRules(), a.contracts.Answers()
	}

	return steps.New(cfg)
}

// contractNames returns the names of the contracts in the settings, for readers of stored messages.
func (a *App) contractNames() *lane.Contracts {
	return lane.NewContracts(a.contracts.FormerNames())
}

// currentSecrets returns all secrets that this process knows now: those of the settings, of the
// proxies and of the sign-in, and the values of the variables that the steps use.
func (a *App) currentSecrets() []string {
	secrets := slices.Concat(a.fixedSecrets, a.settings.File.Secrets())
	if a.keeper != nil {
		secrets = append(secrets, a.keeper.Secrets()...)
	}
	return secrets
}
