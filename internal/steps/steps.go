// Package steps writes a message to a CMS by a chain of requests that the settings define. For
// example, a chain looks an item up, creates or updates the item, and publishes the item.
//
// Each attempt runs the chain from the first step. Weir stores no progress of a chain, except the
// CMS's id of the item (remembered id). To start again is safe, because a look-up shows whether the
// item exists, and no other writer changes the same key at the same time. If the 2xx answer to a
// look-up cannot be read, the look-up fails. Weir never takes such an answer for a missing item.
//
// When Weir reads the settings, this package compiles and type-checks all expressions. Each mistake
// has its line and column.
package steps

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"weir/internal/clock"
	"weir/internal/cms"
	"weir/internal/contract"
	"weir/internal/weir"
)

// Contract is a contract with steps.
type Contract struct {
	Name  string
	Key   contract.KeyPaths
	Path  string // setting that has the steps, such as contracts[0].steps
	Steps Source
}

// Messages reads values from the bodies of messages.
type Messages interface {
	Extract(ctx context.Context, x *contract.Extractor, contentType string, body []byte) (
		[][]string, error)
}

// Config has the settings of a Sender.
type Config struct {
	File *File // nil = no contract has steps
	// base of the steps' addresses; address of single requests, see newSingle
	URL     string
	Method  string            // of single requests
	Headers map[string]string // headers of all requests; a step's own headers replace them
	Timeout time.Duration     // limit for one attempt with all its steps
	// how long the CMS can work on a write without a complete answer; 0 = defaultSettle
	Settle  time.Duration
	LookUps Source // look-ups that contracts share, by name
	// rules for the answers of all steps; a step's own rules come first
	Rules Source
	// name of another header with a delay, beside Retry-After; empty = none
	RetryAfter string
	// bytes that are read of an answer; 0 = defaultMaxAnswer or defaultMaxSingle
	MaxAnswer int64
	Contracts []Contract // those with steps
	Messages  Messages
	// SuccessRules has, by contract without steps, the rule cms.Rules.Success; Answers has, by
	// contract and HTTP status, the outcome that replaces the default one.
	SuccessRules map[string]*regexp.Regexp
	Answers      map[string]map[int]weir.Outcome
	// sends the requests, and can add the credential of the sign-in; nil = no sign-in
	Transport http.RoundTripper
	Secrets   func() []string // returns the current secrets of the sign-in; nil = none
	Now       func() time.Time
	// CanSignInAnew is true if another sign-in can return a different credential. Only then "do:
	// signIn" is allowed in rules.
	CanSignInAnew bool
}

const (
	defaultMaxAnswer = 4 << 20
	defaultMaxSingle = 64 << 10
	defaultSettle    = 3 * time.Second
)

// Sender makes attempts to write messages. It is safe for concurrent use.
type Sender struct {
	cfg     Config
	chains  map[string]*chain // by contract with steps
	single  *chain            // of the contracts without steps
	client  *http.Client
	secrets *cms.Secrets
}

// New compiles the steps of all contracts. The error has a line for each mistake.
func New(cfg Config) (*Sender, error) {
	s := &Sender{cfg: cfg, chains: map[string]*chain{}, single: newSingle(cfg)}
	base, err := url.Parse(cfg.URL)
	switch {
	case err != nil:
		return nil, weir.NewSettingProblem("delivery.url", "cannot be read")
	case len(cfg.Contracts) > 0 && strings.ContainsAny(cfg.URL, "{}"):
		return nil, weir.NewSettingProblem("delivery.url",
			"has a placeholder; with steps write {{ key }} in their addresses")
	}

	if cfg.File == nil {
		s.cfg.File = &File{}
	}

	if cfg.Transport == nil {
		s.cfg.Transport = cms.NewTransport(nil)
	}

	s.client = cms.NewHTTPClient(s.cfg.Transport)
	shared := s.cfg.File.readLookUps(cfg.LookUps)
	for _, con := range cfg.Contracts {
		ch := &chain{keyPaths: con.Key}
		c := &compiler{file: cfg.File, chain: ch, base: base, common: cfg.Rules,
			retryAfter: cfg.RetryAfter,
			timeout:    cfg.Timeout, lookUps: shared, canSignInAnew: cfg.CanSignInAnew}
		ch.steps = c.compileSteps(con.Steps.node, con.Path)
		if ch.extractor, err = contract.NewExtractor(ch.selections); err != nil {
			return nil, err // this cannot happen, because each selection was checked
		}

		s.chains[con.Name] = ch
	}

	shared.checkUses()
	s.secrets = cms.NewSecrets(base, cfg.Headers, s.currentSecrets)

	return s, s.cfg.File.joinMistakes()
}

// currentSecrets returns the values of the variables that the steps use, and the secrets of the
// sign-in.
func (s *Sender) currentSecrets() []string {
	secrets := s.cfg.File.Secrets()
	if s.cfg.Secrets != nil {
		secrets = slices.Concat(secrets, s.cfg.Secrets())
	}
	return secrets
}

// MostRequests returns the largest number of requests of an attempt in which no step is repeated.
func (s *Sender) MostRequests(contract string) int {
	return len(cmp.Or(s.chains[contract], s.single).steps)
}

// Send makes one attempt: it runs the steps of the message's contract, or sends the single request.
func (s *Sender) Send(ctx context.Context, d weir.Delivery) weir.Result {
	return s.sendChain(ctx, d, nil)
}

// sendChain makes one attempt. If rehearsal is nil, the CMS gets the requests.
func (s *Sender) sendChain(ctx context.Context, d weir.Delivery,
	rehearsal *cms.Rehearsal) weir.Result {
	ch := cmp.Or(s.chains[d.Message.Contract], s.single)
	limited, cancel := clock.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	started := s.cfg.Now()
	r := &run{sender: s, chain: ch, ctx: ctx, limited: limited, delivery: d,
		rehearsal: rehearsal, rememberedID: d.RememberedID}
	result := r.runAttempt()
	if !ch.isSingle { // the reasons of expressions have no other place at which secrets are hidden
		result.Reason = r.hideLine(result.Reason)
	}

	result.Unanswered = result.Unanswered || r.busyUntil.After(s.cfg.Now())
	result.RememberedID, result.IsForgotten = r.learnedID, r.isForgotten
	result.StartedAt, result.Duration, result.Steps = started, s.cfg.Now().Sub(started), r.records

	return result
}

// Remembers reports whether a step of the contract has the setting "remember".
func (s *Sender) Remembers(contract string) bool {
	ch := s.chains[contract]
	return ch != nil && ch.remembering.hasSetting
}
