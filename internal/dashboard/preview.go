package dashboard

import (
	"strings"

	"weir/internal/trial"
)

// preview is the part of a message's page that shows the requests which Weir would send for the
// message now.
type preview struct {
	SignedIn bool
	Steps    []previewStep
	Problem  string // the reason why all or some requests are missing
	Needs    string // name of the step whose answer later steps need; "" = no step needs an answer
	IsCut    bool   // the page shows only the beginning of the bodies
}

// previewStep is one step, with or without a request.
type previewStep struct {
	Name    string
	LeftOut string // condition of the step, if the condition is false
	OnlyIf  string // condition of the step, if the condition reads a missing answer
	IsAhead bool   // the step comes after the step with the missing answer
	Problem string // the reason why there is no request
	Line    string // method and address
	Headers string
	Body    string
}

// maxLine limits the characters that the page shows of an address or a header.
const maxLine = 2000

func newPreview(t *trial.Trial) *preview {
	p := &preview{SignedIn: t.SignedIn, Problem: t.Reason}
	left := shownBytes // number of bytes that the page can still show, for all bodies together
	for i := range t.Steps {
		s := &t.Steps[i]
		shown := previewStep{Name: s.Name, LeftOut: s.LeftOut, OnlyIf: s.OnlyIf, IsAhead: s.Ahead,
			Problem: s.Problem}

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

// joinHeaders returns one line for each header. It leaves out the fence, because only the holder
// that sends the message knows the fence.
func joinHeaders(headers []trial.Header) string {
	var b strings.Builder
	for _, h := range headers {
		if h.Name != "Weir-Fence" {
			b.WriteString(truncateText(maxLine, h.Name+": "+h.Value) + "\n")
		}
	}
	return b.String()
}
