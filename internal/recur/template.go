package recur

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strconv"
	"text/template/parse"
	"time"

	"weir/internal/weir"
)

// template is a message text, split into fixed text and fields.
type template []segment

type segment struct {
	fixed []byte
	field string // "DueAt" or "Run"; empty = fixed
}

// parseTemplate parses a message text. The text may contain the actions {{.DueAt}}, {{.Run}} and,
// for literal braces, {{"quoted text"}}. All other actions are errors.
func parseTemplate(message []byte) (template, error) {
	trees, err := parse.Parse("message", string(message), "{{", "}}")
	if err != nil {
		return nil, newTemplateError(err.Error())
	}
	if len(trees) > 1 {
		return nil, newTemplateError("definitions are not allowed")
	}

	var out template
	tree := trees["message"]
	if tree == nil {
		return nil, nil
	}

	for _, node := range tree.Root.Nodes {
		p, err := parseSegment(node)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}

	return out, nil
}

func parseSegment(node parse.Node) (segment, error) {
	refused := newTemplateError(fmt.Sprintf("%s: only {{.DueAt}} and {{.Run}} are filled in; "+
		"write {{\"{{\"}} for the braces themselves", node))
	if plain, ok := node.(*parse.TextNode); ok {
		return segment{fixed: plain.Text}, nil
	}

	action, ok := node.(*parse.ActionNode)
	if !ok || len(action.Pipe.Decl) > 0 || len(action.Pipe.Cmds) != 1 ||
		len(action.Pipe.Cmds[0].Args) != 1 {
		return segment{}, refused
	}

	switch arg := action.Pipe.Cmds[0].Args[0].(type) {
	case *parse.FieldNode:
		if len(arg.Ident) == 1 && (arg.Ident[0] == "DueAt" || arg.Ident[0] == "Run") {
			return segment{field: arg.Ident[0]}, nil
		}
	case *parse.StringNode:
		return segment{fixed: escapeXML(arg.Text)}, nil
	}

	return segment{}, refused
}

func newTemplateError(message string) error {
	return newInvalidError("the message's template cannot be read",
		weir.Problem{Path: "message", Rule: "template", Message: message})
}

func (t template) renderRun(due time.Time, run int64) []byte {
	var b bytes.Buffer
	for _, p := range t {
		switch p.field {
		case "DueAt":
			b.Write(escapeXML(formatDue(due)))
		case "Run":
			b.Write(escapeXML(strconv.FormatInt(run, 10)))
		default:
			b.Write(p.fixed)
		}
	}

	return b.Bytes()
}

// formatDue formats a due time, for messages and idempotency keys.
func formatDue(due time.Time) string { return due.UTC().Format(time.RFC3339) }

func escapeXML(s string) []byte {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a write to a buffer never fails
	return b.Bytes()
}
