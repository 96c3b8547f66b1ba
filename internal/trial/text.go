package trial

import (
	"fmt"
	"strings"
	"time"

	"weir/internal/weir"
)

// FormatText returns the trial as text, for people and for comparison with the text of other
// trials.
func (t *Trial) FormatText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", t.describeMessage())
	if t.SignedIn {
		b.WriteString("delivery.signIn adds its headers to each request\n")
	}

	number := 0
	for i := range t.Steps {
		s := &t.Steps[i]
		b.WriteString("\n")

		switch {
		case s.LeftOut != "":
			fmt.Fprintf(&b, "-- %s is left out, because this is false: %s\n", s.Name, s.LeftOut)
			continue
		case s.Ahead && s.OnlyIf != "":
			fmt.Fprintf(&b, "-- %s, if this is true: %s\n", s.Name, s.OnlyIf)
		case s.Ahead:
			fmt.Fprintf(&b, "-- %s\n", s.Name)
		default:
			number++
			fmt.Fprintf(&b, "%d. %s\n", number, s.Name)
		}

		s.writeText(&b)
	}

	b.WriteString("\n")
	if t.Remembers != "" {
		fmt.Fprintf(&b, "remembers %s\n", t.Remembers)
	}

	fmt.Fprintf(&b, "%s\n", t.describeVerdict())

	return b.String()
}

func (t *Trial) describeMessage() string {
	if t.Contract == "" {
		return "no contract"
	}

	text := "contract " + t.Contract
	for _, part := range [][2]string{{"key", t.Key}, {"version", t.Version}} {
		if part[1] != "" {
			text += ", " + part[0] + " " + part[1]
		}
	}

	if !t.DueAt.IsZero() {
		text += ", due at " + t.DueAt.UTC().Format(time.RFC3339)
	}

	return text
}

func (t *Trial) describeVerdict() string {
	switch {
	case t.Verdict == Open:
		return fmt.Sprintf("open: the next step needs the answer to %s", t.Needs)
	case len(t.Problems) > 0:
		return "refused: " + strings.Join(DescribeProblems(t.Problems), "\nrefused: ")
	case t.Reason != "":
		return fmt.Sprintf("%s: %s", t.Verdict, t.Reason)
	}

	return string(t.Verdict)
}

// DescribeMessage returns one line with the contract, key, version and due time of a message.
func DescribeMessage(m *weir.Message) string {
	t := Trial{Contract: m.Contract, Key: m.Key, Version: m.Version, DueAt: m.DueAt}
	return t.describeMessage()
}

// DescribeProblems returns one line for each problem.
func DescribeProblems(problems []weir.Problem) []string {
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.Message
		if p.Line > 0 {
			lines[i] = fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, p.Message)
		}
	}

	return lines
}

const indent = "   "

func (s *Step) writeText(b *strings.Builder) {
	if s.Problem != "" {
		fmt.Fprintf(b, "%sno request: %s\n", indent, s.Problem)
	}

	if r := s.Request; r != nil {
		fmt.Fprintf(b, "%s%s %s\n", indent, r.Method, r.Address)
		for _, h := range r.Headers {
			fmt.Fprintf(b, "%s%s: %s\n", indent, h.Name, h.Value)
		}

		if r.Body != "" {
			b.WriteString("\n")
			writeIndented(b, r.Body)
		}
	}

	if s.Status == 0 {
		return
	}

	fmt.Fprintf(b, "%s-> %d", indent, s.Status)
	if s.Millis > 0 {
		fmt.Fprintf(b, " in %d ms", s.Millis)
	}

	if s.Action != "" {
		fmt.Fprintf(b, ": %s", s.Action)
	}

	if s.Reason != "" {
		fmt.Fprintf(b, ", because %s", s.Reason)
	}

	b.WriteString("\n")
	if s.Answer != "" {
		writeIndented(b, s.Answer)
	}
}

func writeIndented(b *strings.Builder, text string) {
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		b.WriteString(strings.TrimRight(indent+line, " \r") + "\n")
	}
}
