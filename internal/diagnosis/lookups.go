package diagnosis

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"weir/internal/cms"
	"weir/internal/redact"
	"weir/internal/trial"
	"weir/internal/weir"
)

// Sample is a message from which Check takes values for look-ups. Findings name the message by
// its File.
type Sample struct {
	File string
	Body []byte
}

// CheckLookUps sends the look-up of each contract with steps. The look-up is the first step that
// only reads and that can be sent without the answer of another step and without a remembered id. A
// look-up that needs values of a message is sent only if a sample belongs to the contract.
func (s *System) CheckLookUps(ctx context.Context, samples []Sample) []Finding {
	messages, findings := s.acceptSamples(ctx, samples)
	for _, c := range s.Settings.ContractsWithSteps() {
		f := Finding{Name: "steps"}
		l, found := s.Sender.FindLookUp(c.Name)
		m := messages[c.Name]
		switch {
		case !found:
			f.Detail = c.Name +
				": every step writes or needs another step's answer, so none was sent"
		case m == nil && l.NeedsMessage:
			f.Detail = fmt.Sprintf(
				"%s: %s needs a message, so it was not sent; name a message by --sample FILE",
				c.Name, l.Step)

		default:
			if m == nil {
				m = &weir.Message{Contract: c.Name, ID: trial.NewID(true), AcceptedAt: time.Now()}
			}
			s.sendLookUp(ctx, m, &f)
		}

		findings = append(findings, f)
	}

	return findings
}

// acceptSamples returns a message for each contract that accepts a sample. If a contract accepts
// several samples, the last sample counts. acceptSamples also returns a finding for each sample
// that no contract accepts.
func (s *System) acceptSamples(ctx context.Context, samples []Sample) (map[string]*weir.Message,
	[]Finding) {
	messages := map[string]*weir.Message{}
	var findings []Finding
	for _, sample := range samples {
		m, err := s.Contracts.Accept(ctx, "application/xml", sample.Body)
		if err != nil {
			findings = append(findings,
				Finding{Name: "sample", Wrong: fmt.Errorf("%s: %w", sample.File, err),
					Todo: "see weir check " + sample.File})
			continue
		}

		m.ID, m.AcceptedAt = trial.NewID(true), time.Now()
		messages[m.Contract] = &m
	}

	return messages, findings
}

// sendLookUp sends the look-up of m's contract, and writes the result into f.
func (s *System) sendLookUp(ctx context.Context, m *weir.Message, f *Finding) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	l := &lookUp{transport: s.Transport}
	result := s.Sender.RehearseLookUp(ctx,
		weir.Delivery{Message: m, Attempt: 1, Fence: 1, Hide: s.hideValues(ctx, m)},
		&cms.Rehearsal{Answer: l.askCMS, LeaveOut: l.leaveOut, Judge: l.setAction, IsLive: true})

	switch {
	case l.leftOut != "":
		f.Detail = fmt.Sprintf("%s: %s was left out, because this is false: %s", m.Contract,
			l.step, l.leftOut)
	case l.isGood():
		f.Detail = fmt.Sprintf("%s: %s answered %d in %s", m.Contract, l.step, l.status,
			l.took.Round(time.Millisecond))
	default:
		f.Wrong, f.Todo = fmt.Errorf("%s: %s", m.Contract, result.Reason),
			l.explainAnswer(result.Reason)
	}
}

// hideValues returns a function that hides the redacted values of a sample. A look-up without a
// sample has none.
func (s *System) hideValues(ctx context.Context, m *weir.Message) func(string) string {
	if m.Body == nil {
		return nil
	}
	return redact.MaskOf(ctx, s.Contracts, m).Hide
}

// lookUp sends a look-up, and records the answer.
type lookUp struct {
	transport http.RoundTripper
	step      string        // name of the step
	leftOut   string        // condition of a step that was left out; "" = the step was not left out
	status    int           // status of the answer; 0 = no answer
	took      time.Duration // time until the answer
	action    string        // action for the answer, by the rules of the step
	isPage    bool          // the answer is HTML
}

func (l *lookUp) askCMS(step string, req *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := l.transport.RoundTrip(req)
	l.step, l.took = step, time.Since(began)
	if err == nil {
		l.status = resp.StatusCode
		l.isPage = strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html")
	}

	return resp, err
}

func (l *lookUp) leaveOut(step, condition string) { l.step, l.leftOut = step, condition }

func (l *lookUp) setAction(_, action, _ string) { l.action = action }

func (l *lookUp) isGood() bool { return l.action == "ok" || l.action == "done" }

// explainAnswer returns the usual cause of a bad answer, and the place where the operator can
// correct it.
func (l *lookUp) explainAnswer(reason string) string {
	switch {
	case strings.Contains(reason, "sign-in: "):
		return "see whether delivery.signIn in weir.yaml has the right values"
	case l.status == http.StatusUnauthorized:
		return "the CMS does not accept the credential; see delivery.signIn and delivery.headers"
	case l.status == http.StatusForbidden:
		return "the CMS does not know the credential, or forbids the step; see delivery.signIn, and give the " +
			"user the rights to read and write there"
	case l.status/100 == 3:
		return "the CMS sends the request elsewhere, often to a page for signing in or from http to https; see " +
			"delivery.url and delivery.signIn"
	case l.isPage:
		return "the address leads to a page for people, such as one for signing in or of an error; see " +
			"delivery.url and the address of the step, or write success: body contains '<text of the page>' in " +
			"the step if the CMS answers so"

	case l.status == http.StatusNotFound:
		return "the CMS has nothing at the address; see delivery.url and the address of the step, or add " +
			"404 to expect if it means that the item is not there"
	case l.status == 0:
		return "see whether delivery.url is right, the CMS runs, and this machine may reach it"
	}

	return "see the step in weir.yaml, and the log of the CMS"
}
