// Package trial shows the requests that a message would cause. A trial is one attempt outside of
// the lanes, made with the code that delivers messages. Each request gets its answer from a file or
// from the CMS, or gets no answer.
package trial

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"weir/internal/cms"
	"weir/internal/conceal"
	"weir/internal/weir"
)

// Verdict is the result of a trial.
type Verdict string

// The results of a trial.
const (
	Delivered   Verdict = "delivered"
	Retry       Verdict = "retry" // the message would be tried again, a limited number of times
	Dead        Verdict = "dead"
	Unavailable Verdict = "unavailable" // the lane would pause
	Open        Verdict = "open"        // the answer to a request is missing
	Refused     Verdict = "refused"     // the contract would refuse the message
	CutOff      Verdict = "cut off"     // the caller ended the trial
	// no request is made, because the settings lack the message's contract
	Waits Verdict = "waits"
)

// Trial is the record of one attempt.
type Trial struct {
	Contract string    `json:"contract,omitempty"`
	Key      string    `json:"key,omitempty"`
	Version  string    `json:"version,omitempty"`
	DueAt    time.Time `json:"dueAt,omitzero"`
	// delivery.signIn adds headers to each request
	SignedIn bool           `json:"signedIn,omitempty"`
	Problems []weir.Problem `json:"problems,omitempty"` // problems of a refused message
	Steps    []Step         `json:"steps,omitempty"`
	Verdict  Verdict        `json:"verdict"`
	Reason   string         `json:"reason,omitempty"`
	Needs    string         `json:"needs,omitempty"` // the step whose answer is missing
	// the id that would be remembered for the key
	Remembers string `json:"remembers,omitempty"`
	// names of steps with more answers in the file than requests
	Unused []string `json:"unused,omitempty"`
	// SelectNothing has the paths of expressions that select nothing in the message: a value may be
	// left out because its path is misspelt.
	SelectNothing []string `json:"selectNothing,omitempty"`
	// MissingMembers has a sentence for each member that an expression reads of an answer, and that
	// the answer lacks.
	MissingMembers []string `json:"missingMembers,omitempty"`
	Warnings       []string `json:"warnings,omitempty"` // weaknesses of the contract's steps
}

// Step is a request of the attempt, a step whose condition is false, or a step after a missing
// answer (Ahead).
type Step struct {
	Name    string   `json:"name"`
	LeftOut string   `json:"leftOut,omitempty"` // the condition, if it is false
	OnlyIf  string   `json:"onlyIf,omitempty"`  // the condition, if it depends on a missing answer
	Ahead   bool     `json:"ahead,omitempty"`   // the step comes after the missing answer
	Request *Request `json:"request,omitempty"`
	Problem string   `json:"problem,omitempty"` // the reason why there is no request
	Status  int      `json:"status,omitempty"`  // status of the answer
	Answer  string   `json:"answer,omitempty"`  // body of the answer, if it came from the CMS
	Millis  int64    `json:"millis,omitempty"`  // time until the CMS answered, in ms
	Action  string   `json:"action,omitempty"`  // ok, done, again, retry, reject or unavailable
	Reason  string   `json:"reason,omitempty"`  // reason of the action; empty for ok and done
}

// Request is a request without secrets.
type Request struct {
	Method  string   `json:"method"`
	Address string   `json:"address"`
	Headers []Header `json:"headers"`
	Body    string   `json:"body,omitempty"`
}

// Header is a header of a request.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Sender makes one attempt, in which the rehearsal answers the requests in place of the CMS.
type Sender interface {
	Rehearse(ctx context.Context, d weir.Delivery, rehearsal *cms.Rehearsal) weir.Result
}

// Runner makes trials. It is safe for concurrent use.
type Runner struct {
	Sender Sender
	// connection to the CMS; nil = answers come only from the file
	Live    http.RoundTripper
	SignsIn bool             // delivery.signIn adds headers, which a trial does not show
	Secrets Secrets          // secrets of the settings
	Now     func() time.Time // measures the time until the CMS answers
	// is called after the trial with each answer of the CMS; nil = no call
	Record func(step string, a Answer)
	// HasContract reports whether the settings have the contract of a message; nil = they have each
	// one. Weir makes no request for a message whose contract is missing.
	HasContract func(name string) bool
}

// maxAnswer limits the bytes of a CMS's answer that the trial shows.
const maxAnswer = 2 << 10

// attempt is a running trial.
type attempt struct {
	*Runner
	ctx      context.Context
	answers  map[string][]Answer
	trial    Trial
	recorded []recording
	// credentials are the secrets in the requests and in the headers of the answers. A step can
	// take a credential from the answer to an earlier step, so the texts of earlier steps can have
	// it, too.
	credentials []string
}

// recording is an answer of the CMS that the caller of the trial records.
type recording struct {
	step   string
	answer Answer
}

// RunTrial makes one attempt with these answers, and returns the record of the attempt.
func (r *Runner) RunTrial(ctx context.Context, d weir.Delivery, answers Answers) Trial {
	if answers.Remembered != "" {
		d.RememberedID = answers.Remembered
	}

	m := d.Message
	a := &attempt{Runner: r, ctx: ctx, answers: maps.Clone(answers.Steps),
		trial: Trial{Contract: m.Contract, Key: m.Key, Version: m.Version, DueAt: m.DueAt,
			SignedIn: r.SignsIn}}

	if r.HasContract != nil && !r.HasContract(m.Contract) {
		a.trial.Verdict = Waits
		a.trial.Reason = "the settings lack its contract " + m.Contract +
			", so no request is made, and the message waits"
		return a.trial
	}

	if a.answers == nil {
		a.answers = map[string][]Answer{}
	}

	result := r.Sender.Rehearse(ctx, d,
		&cms.Rehearsal{Answer: a.answerRequest, LeaveOut: a.addLeftOut, Judge: a.setAction,
			Outline: a.addOutline, IsLive: r.Live != nil, SelectsNothing: a.addEmptyPath,
			MissesMember: a.addMissingMember})

	a.setVerdict(result)
	a.hideCredentials()
	for _, one := range a.recorded {
		a.Record(one.step, one.answer)
	}

	for name, left := range a.answers {
		if len(left) > 0 {
			a.trial.Unused = append(a.trial.Unused, name)
		}
	}

	slices.Sort(a.trial.Unused)

	return a.trial
}

// addEmptyPath notes once that a path of an expression selects nothing.
func (a *attempt) addEmptyPath(path string) {
	if !slices.Contains(a.trial.SelectNothing, path) {
		a.trial.SelectNothing = append(a.trial.SelectNothing, path)
	}
}

// addMissingMember notes once that an answer lacks a member.
func (a *attempt) addMissingMember(sentence string) {
	if sentence = a.Secrets.Hide(sentence); !slices.Contains(a.trial.MissingMembers, sentence) {
		a.trial.MissingMembers = append(a.trial.MissingMembers, sentence)
	}
}

// hideCredentials hides the credentials of all requests and answers in the texts of the trial and
// in the recorded answers.
func (a *attempt) hideCredentials() {
	mask := cms.NewMask(a.credentials...)
	t := &a.trial
	texts := []*string{&t.Reason, &t.Remembers}
	for i := range t.MissingMembers {
		texts = append(texts, &t.MissingMembers[i])
	}

	for i := range t.Steps {
		s := &t.Steps[i]
		texts = append(texts, &s.Answer, &s.Reason, &s.Problem)
		if r := s.Request; r != nil {
			texts = append(texts, &r.Address, &r.Body)
			for j := range r.Headers {
				texts = append(texts, &r.Headers[j].Value)
			}
		}
	}

	for i := range a.recorded {
		answer := &a.recorded[i].answer
		texts = append(texts, &answer.Body)
		for name, value := range answer.Headers {
			answer.Headers[name] = mask.Hide(value)
		}
	}

	for _, text := range texts {
		*text = mask.Hide(*text)
	}
}

func (a *attempt) setVerdict(result weir.Result) {
	t := &a.trial
	if t.Needs != "" {
		t.Verdict = Open
		return
	}

	t.Reason, t.Remembers = a.Secrets.Hide(result.Reason), a.Secrets.Hide(result.RememberedID)
	switch result.Outcome {
	case weir.OutcomeDelivered:
		t.Verdict, t.Reason = Delivered, ""
	case weir.OutcomeRejected:
		t.Verdict = Dead
	case weir.OutcomeUnavailable:
		t.Verdict = Unavailable
	case weir.OutcomeNone:
		t.Verdict = CutOff
	default:
		t.Verdict = Retry
	}
}

// answerRequest records a request, and returns the step's next answer in the file. If the file has
// no more answers for the step, the CMS answers. Without a connection to the CMS, answerRequest
// returns cms.ErrNoAnswer.
func (a *attempt) answerRequest(step string, req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
	}

	a.credentials = append(a.credentials, conceal.RequestSecrets(req)...)
	a.trial.Steps = append(a.trial.Steps, Step{Name: step,
		Request: a.Secrets.newRequest(req.Method, req.URL.String(), req.Header, body)})
	shown := &a.trial.Steps[len(a.trial.Steps)-1]
	if next := a.answers[step]; len(next) > 0 {
		a.answers[step] = next[1:]
		shown.Status = next[0].Status
		return next[0].newResponse(req), nil
	}

	if a.Live == nil {
		a.trial.Needs = step
		return nil, cms.ErrNoAnswer
	}

	return a.askCMS(shown, req)
}

func (a *attempt) askCMS(shown *Step, req *http.Request) (*http.Response, error) {
	began := a.Now()
	resp, err := a.Live.RoundTrip(req)
	shown.Millis = a.Now().Sub(began).Milliseconds()
	if err != nil {
		return nil, err
	}

	shown.Status = resp.StatusCode
	a.credentials = append(a.credentials, conceal.CredentialSecrets(resp.Header)...)
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRecorded))
	rest := resp.Body
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), errorOrRest(err, rest)), rest}

	a.credentials = append(a.credentials,
		conceal.ContentSecrets(resp.Header.Get("Content-Type"), body)...)
	text := a.Secrets.Hide(strings.ToValidUTF8(string(body), "\uFFFD"))
	shown.Answer = strings.ToValidUTF8(text[:min(len(text), maxAnswer)], "")
	if a.Record != nil {
		a.recorded = append(a.recorded, recording{shown.Name, newAnswer(resp, text, a.Secrets)})
	}

	return resp, nil
}

// errorOrRest returns the rest of an answer. If err is not nil, it returns a reader whose reads
// fail with err.
func errorOrRest(err error, rest io.Reader) io.Reader {
	if err == nil {
		return rest
	}
	return readerFunc(func([]byte) (int, error) { return 0, err })
}

type readerFunc func([]byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func (a *attempt) addLeftOut(step, condition string) {
	a.trial.Steps = append(a.trial.Steps,
		Step{Name: step, LeftOut: a.Secrets.Hide(condition), Ahead: a.trial.Needs != ""})
}

func (a *attempt) setAction(step, action, reason string) {
	shown := &a.trial.Steps[len(a.trial.Steps)-1]
	shown.Action = action
	if action != "ok" && action != "done" {
		shown.Reason = strings.TrimPrefix(a.Secrets.Hide(reason), step+": ")
	}
}

func (a *attempt) addOutline(o cms.StepOutline) {
	s := Step{Name: o.Step, OnlyIf: a.Secrets.Hide(o.Condition), Ahead: true,
		Problem: a.Secrets.Hide(o.Problem)}
	if o.Problem == "" {
		s.Request = a.Secrets.newRequest(o.Method, o.Address, o.Header, o.Body)
	}
	a.trial.Steps = append(a.trial.Steps, s)
}

// Secrets has the secrets that a trial does not show.
type Secrets struct {
	Hide    func(string) string // masks the secrets in a text
	Headers []string            // names of headers whose values are secrets
	Params  []string            // names of parameters of the address whose values are secrets
}

// newRequest describes a request without its secrets. It hides the value of each header that
// usually has a credential, also if the settings do not name the header: net/http itself adds
// Authorization for the user info of an address, and a step can take a token from an answer.
func (s Secrets) newRequest(method, address string, header http.Header, body []byte) *Request {
	r := &Request{Method: method, Address: s.Hide(s.hideParams(address)),
		Body: s.Hide(readableBody(body))}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		shownName := http.CanonicalHeaderKey(name)
		for _, value := range header[name] {
			r.Headers = append(r.Headers, Header{shownName, s.hideHeader(name, value)})
		}
	}

	slices.SortStableFunc(r.Headers,
		func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return r
}

// hideHeader returns the value of a header without secrets.
func (s Secrets) hideHeader(name, value string) string {
	isSecret := func(secret string) bool { return strings.EqualFold(secret, name) }
	if value != "" && (conceal.IsCredentialHeader(name) ||
		slices.ContainsFunc(s.Headers, isSecret)) {
		return conceal.Hidden
	}
	return s.Hide(value)
}

// hideParams returns an address without its user info, the parameter code, and the values of
// Secrets.Params. It compares names without regard to case and percent-encoding.
func (s Secrets) hideParams(address string) string {
	address, query, hasQuery := strings.Cut(conceal.HideAddressParts(address), "?")
	if !hasQuery {
		return address
	}

	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		decoded, err := url.QueryUnescape(name)
		if err != nil {
			decoded = name
		}

		isSecret := func(secret string) bool { return strings.EqualFold(secret, decoded) }
		if value != "" && slices.ContainsFunc(s.Params, isSecret) {
			pairs[i] = name + "=" + conceal.Hidden
		}
	}

	return address + "?" + strings.Join(pairs, "&")
}

// readableBody returns a body as text, with indented JSON. If the body is not text, the result has
// only the number of bytes.
func readableBody(body []byte) string {
	var indented bytes.Buffer
	switch {
	case len(body) > 0 && json.Indent(&indented, body, "", "  ") == nil:
		return indented.String()
	case !utf8.Valid(body):
		return fmt.Sprintf("(%d bytes that are not text in UTF-8)", len(body))
	}

	return string(body)
}
