package steps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"time"

	"weir/internal/clock"
	"weir/internal/cms"
	"weir/internal/conceal"
	"weir/internal/signin"
	"weir/internal/weir"
)

// SignInConfig has the settings of a sign-in by requests.
type SignInConfig struct {
	File    *File
	URL     string // base of the addresses that begin with / or ?
	Steps   Source
	Send    Source // headers with the credential, for the requests of messages
	Cookies bool   // true = the requests of messages get the cookies of the answers
	// the credential's lifetime: a duration, or an expression; see parseLife. Not set = 10 minutes
	For       Source
	Transport http.RoundTripper
	Timeout   time.Duration // limit for each request
	Now       func() time.Time
}

// SignIn fetches credentials by a chain of requests.
type SignIn struct {
	cfg     SignInConfig
	base    *url.URL
	steps   []*step
	headers []header
	life    time.Duration
	// an expression for the lifetime that the CMS names; nil = life is the lifetime
	named   *template
	secrets *cms.Secrets
}

const defaultLife = 10 * time.Minute

// NewSignIn compiles a sign-in. The error has a line for each mistake.
func NewSignIn(cfg SignInConfig) (*SignIn, error) {
	base, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, weir.NewSettingProblem("delivery.url", "cannot be read")
	}

	f := cfg.File
	s := &SignIn{cfg: cfg, base: base, life: defaultLife,
		secrets: cms.NewSecrets(base, nil, f.Secrets)}
	c := &compiler{file: f, base: base, timeout: cfg.Timeout}
	const path = "delivery.signIn"
	s.steps = c.compileSteps(cfg.Steps.node, path+".steps")
	names := &scope{earlier: s.steps}
	if cfg.Send.IsSet() {
		at := placeOf(cfg.Send.node, path+".send")
		s.headers = c.readHeaders(pair{"send", cfg.Send.node, at}, names)
	} else if !cfg.Cookies {
		f.addMistake(placeOf(cfg.Steps.node, path+".steps"),
			"the sign-in yields nothing; write send: with a header, "+
				"such as { Authorization: \"Bearer {{ step1.json.token }}\" }, or cookies: true")
	}

	if cfg.For.IsSet() {
		s.compileLife(cfg.For, path+".for", names)
	}

	return s, f.joinMistakes()
}

// compileLife compiles the setting "for".
func (s *SignIn) compileLife(life Source, path string, names *scope) {
	f := s.cfg.File
	text, _ := readText(life.node)
	if d, err := time.ParseDuration(text); err == nil {
		if problem := checkLife(d); problem != "" {
			f.addMistake(placeOf(life.node, path), "%q: %s", text, problem)
		}
		s.life = d
		return
	}

	s.named = f.compileTemplate(life.node, path, names)
	if !s.named.isSingle() {
		f.addMistake(placeOf(life.node, path),
			"%q is neither a duration such as 15m nor an expression of seconds, or of a time, such as "+
				"{{ step1.json.expires_in }}", text)
	}
}

// Fetch implements signin.Source. Answers can have secrets. So an error of Fetch quotes only two
// parts of an answer: the status, and the text that the step's setting "say" selects.
func (s *SignIn) Fetch(ctx context.Context) (signin.Credential, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return signin.Credential{}, err
	}

	began := s.cfg.Now()
	r := &signInRun{SignIn: s, client: cms.NewHTTPClient(s.cfg.Transport), env: map[string]any{}}
	r.client.Jar = jar
	env := r.env
	budget := newWork(ctx, 0)
	addWork(env, budget)
	addFunctions(env, budget)

	for _, st := range s.steps {
		a, err := r.sendStep(ctx, st)
		if err != nil {
			return signin.Credential{}, fmt.Errorf("%s: %w", st.name, err)
		}
		env[st.name] = a
	}

	c := signin.Credential{ExpiresAt: began.Add(s.life)}
	if c.Headers, err = evaluateHeaders(s.headers, env); err != nil {
		return c, errors.New("send cannot be evaluated with the answers")
	}

	if s.cfg.Cookies {
		if c.Cookies = jar.Cookies(s.base); len(c.Cookies) == 0 {
			return c, errors.New("the answers have no cookie")
		}
	}

	s.setLife(&c, began, env)

	return c, nil
}

// signInRun is one run of a sign-in.
type signInRun struct {
	*SignIn
	client *http.Client
	env    map[string]any
	// learned are the secrets that the requests and answers have added to those of the settings,
	// such as a cookie.
	learned []string
}

// sendStep sends one request of the sign-in, and checks the answer.
func (r *signInRun) sendStep(ctx context.Context, st *step) (*answer, error) {
	r.env[workName].(*work).renew()
	p, err := st.prepareRequest(r.env, nil)
	if err != nil {
		return nil, errors.New("the request cannot be made of the answers before it")
	}

	limited, cancel := clock.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	var sent *http.Request
	resp, failure := cms.Exchange(ctx, limited, r.client,
		func(ctx context.Context) (*http.Request, error) {
			req, err := p.newRequest(ctx)
			if err == nil {
				sent = req
				maps.Copy(req.Header, p.headers)
				r.learned = append(r.learned, conceal.RequestSecrets(req)...)
				r.learned = append(r.learned, conceal.ContentSecrets(p.contentType, p.content)...)
			}

			return req, err
		})
	if resp == nil {
		return nil, errors.New(r.hide(failure.Reason))
	}
	defer resp.Body.Close()
	for _, cookie := range append(r.client.Jar.Cookies(sent.URL), resp.Cookies()...) {
		r.learned = append(r.learned, cookie.Value)
	}

	a, _ := readBody(resp, defaultMaxAnswer)
	a.parseParts(st.needs)
	if problem := st.findUnreadable(a); problem != "" && st.isExpected(a.Status) {
		return nil, fmt.Errorf("%d, but %s", a.Status, problem)
	}

	return a, r.checkAnswer(st, a)
}

// checkAnswer returns an error if the step does not expect the answer's status, or if the step's
// condition "success" is not true.
func (r *signInRun) checkAnswer(st *step, a *answer) error {
	own := maps.Clone(r.env)
	addOwn(own, a)
	var problem string
	if !st.isExpected(a.Status) {
		problem = fmt.Sprintf("%d %s", a.Status, http.StatusText(a.Status))
	} else if st.success != nil {
		if holds, err := st.success.evaluateCondition(own); err != nil || !holds {
			problem = fmt.Sprintf("%d, but the answer does not fit success: %s", a.Status,
				st.success.source)
		}
	}

	if problem == "" {
		return nil
	}

	if words := r.evaluateSay(st, own); words != "" {
		problem = fmt.Sprintf("%d: %s", a.Status, words)
	}

	return errors.New(problem)
}

// evaluateSay returns the text of the step's setting "say" without secrets. If the step has no
// "say", or if "say" cannot be evaluated, the text is empty.
func (r *signInRun) evaluateSay(st *step, env map[string]any) string {
	if st.say == nil {
		return ""
	}

	text, err := st.say.evaluateText(env)
	if err != nil {
		return ""
	}

	return cms.SingleLine(r.hide(text))
}

// hide returns a text without the secrets that are known now.
func (r *signInRun) hide(text string) string { return r.secrets.Hide(text, r.learned...) }
