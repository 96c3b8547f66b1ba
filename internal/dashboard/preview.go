package dashboard

import (
	"strings"

	"weir/internal/trial"
)

// preview is the part of a message's page with the requests that the message would make.
type preview struct {
	SignedIn bool
	Steps    []previewStep
	Problem  string // why there are no requests, or no more
	Needs    string // name of the step whose answer the others need; empty = there are no others
	IsCut    bool   // the bodies are longer than shown
}

// previewStep is a request, or a step that was left out.
type previewStep struct {
	Name    string
	LeftOut string // the condition, which is false
	OnlyIf  string // the condition, which reads a missing answer
	IsAhead bool   // it comes after the missing answer
	Problem string // why there is no request
	Line    string // method and address
	Headers string
	Body    string
}

// maxLine limits the characters of an address, and of a header.
const maxLine = 2000

// newPreview returns the preview of a trial without answers.
func newPreview(t *trial.Trial) *preview {
	p := &preview{SignedIn: t.SignedIn, Problem: t.Reason}
	left := shownBytes // of all bodies together
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

// joinHeaders returns a line for each header, except for the fence: the holder that sends the message knows it.
func joinHeaders(headers []trial.Header) string {
	var b strings.Builder
	for _, h := range headers {
		if h.Name != "Weir-Fence" {
			b.WriteString(truncateText(maxLine, h.Name+": "+h.Value) + "\n")
		}
	}
	return b.String()
}
