package dashboard

import (
	"strings"

	"weir/internal/trial"
)

// preview is the part of a message's page with the requests that the message would make.
type preview struct {
	SignedIn bool
	Steps    []previewStep
	Problem  string // the reason if there are no requests, or if the requests end early
	Needs    string // name of the step whose answer the other steps need; empty = no step needs an answer
	IsCut    bool   // the page shows only the beginning of the bodies
}

// previewStep is the request of a step, or a step that sends no request.
type previewStep struct {
	Name    string
	LeftOut string // the condition, if it is false
	OnlyIf  string // the condition, if it reads a missing answer
	IsAhead bool   // the step comes after the step with the missing answer
	Problem string // the reason if there is no request
	Line    string // method and address
	Headers string
	Body    string
}

// maxLine limits the characters of an address, and of a header.
const maxLine = 2000

// newPreview returns the preview of a trial without answers.
func newPreview(t *trial.Trial) *preview {
	p := &preview{SignedIn: t.SignedIn, Problem: t.Reason}
	left := shownBytes // bytes that the page may still show, of all bodies together
	for i := range t.Steps {
		s := &t.Steps[i]
		shown := previewStep{Name: s.Name, LeftOut: s.LeftOut, OnlyIf: s.OnlyIf, IsAhead: s.Ahead, Problem: s.Problem}
		if s.Request != nil {
			shown.Line = truncateText(maxLine, s.Request.Method+" "+s.Request.Address)
			shown.Headers = joinHeaders(s.Request.Headers)
			shown.Body = strings.ToValidUTF8(s.Request.Body[:min(len(s.Request.Body), left)], "")
			left -= len(shown.Body)
			p.IsCut = p.IsCut || len(shown.Body) < len(s.Request.Body)
		}
		if s.Ahead {
			p.Needs = t.Needs
		}
		p.Steps = append(p.Steps, shown)
	}
	return p
}

// joinHeaders returns a line for each header except the fence: only the holder that sends the message knows the
// fence.
func joinHeaders(headers []trial.Header) string {
	var b strings.Builder
	for _, h := range headers {
		if h.Name != "Weir-Fence" {
			b.WriteString(truncateText(maxLine, h.Name+": "+h.Value) + "\n")
		}
	}
	return b.String()
}
