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

// text is a message's text, in pieces: what stays as it is, and what each run fills in.
type text []piece

type piece struct {
	fixed []byte
	field string // "DueAt" or "Run"; empty = fixed
}

// parseText reads the template of a message. It may name {{.DueAt}} and {{.Run}}, and
// hold {{"quoted text"}} where the braces themselves are meant; nothing else.
func parseText(message []byte) (text, error) {
	trees, err := parse.Parse("message", string(message), "{{", "}}")
	if err != nil {
		return nil, badTemplate(err.Error())
	}
	if len(trees) > 1 {
		return nil, badTemplate("definitions are not allowed")
	}
	var out text
	tree := trees["message"]
	if tree == nil {
		return nil, nil
	}
	for _, node := range tree.Root.Nodes {
		p, err := pieceOf(node)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func pieceOf(node parse.Node) (piece, error) {
	refused := badTemplate(fmt.Sprintf("%s: only {{.DueAt}} and {{.Run}} are filled in; write {{\"{{\"}} for the braces themselves", node))
	if plain, ok := node.(*parse.TextNode); ok {
		return piece{fixed: plain.Text}, nil
	}
	action, ok := node.(*parse.ActionNode)
	if !ok || len(action.Pipe.Decl) > 0 || len(action.Pipe.Cmds) != 1 || len(action.Pipe.Cmds[0].Args) != 1 {
		return piece{}, refused
	}
	switch arg := action.Pipe.Cmds[0].Args[0].(type) {
	case *parse.FieldNode:
		if len(arg.Ident) == 1 && (arg.Ident[0] == "DueAt" || arg.Ident[0] == "Run") {
			return piece{field: arg.Ident[0]}, nil
		}
	case *parse.StringNode:
		return piece{fixed: escape(arg.Text)}, nil
	}
	return piece{}, refused
}

func badTemplate(message string) error {
	return invalid("the message's template cannot be read", weir.Problem{Path: "message", Rule: "template", Message: message})
}

// render fills in a run's due time and number.
func (t text) render(due time.Time, run int64) []byte {
	var b bytes.Buffer
	for _, p := range t {
		switch p.field {
		case "DueAt":
			b.Write(escape(stamp(due)))
		case "Run":
			b.Write(escape(strconv.FormatInt(run, 10)))
		default:
			b.Write(p.fixed)
		}
	}
	return b.Bytes()
}

// stamp writes a due time, in messages and in idempotency keys alike.
func stamp(due time.Time) string { return due.UTC().Format(time.RFC3339) }

func escape(s string) []byte {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a buffer takes everything
	return b.Bytes()
}
