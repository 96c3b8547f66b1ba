package view

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/aymanbagabas/go-udiff"
	"github.com/beevik/etree"

	"weir/internal/contract"
	"weir/internal/httpio"
	"weir/internal/weir"
)

// Bodies reads messages with their bodies. LoadEditedMessage returns the error NotFound if the message was not edited.
type Bodies interface {
	LoadMessage(ctx context.Context, id weir.ID) (weir.Message, error)
	LoadEditedMessage(ctx context.Context, id weir.ID) (weir.Message, error)
}

// Difference serves GET /api/messages/{id}/difference: the changes that an edit made to a body. All fields are needed.
type Difference struct {
	Bodies Bodies
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler. The id is the path value "id".
func (f *Difference) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := f.readDifference(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	httpio.WriteJSON(w, http.StatusOK, struct {
		Difference string `json:"difference"`
	}{text})
}

func (f *Difference) readDifference(r *http.Request) (string, error) {
	id, err := httpio.MessageID(r)
	if err != nil {
		return "", err
	}
	return Compare(r.Context(), f.Bodies, id)
}

// Compare returns the changes that an edit made to a message's body, as a unified diff. If the message was not edited,
// the error is NotFound.
func Compare(ctx context.Context, bodies Bodies, id weir.ID) (string, error) {
	edited, err := bodies.LoadEditedMessage(ctx, id)
	if err != nil {
		return "", err
	}
	accepted, err := bodies.LoadMessage(ctx, id)
	if err != nil {
		return "", err
	}
	return diffBodies(&accepted, &edited), nil
}

// diffBodies indents both bodies before it compares them, because many upstreams send a body as one line. If the
// indented bodies are equal, diffBodies compares the original bodies.
func diffBodies(accepted, edited *weir.Message) string {
	before, after := indentBody(accepted), indentBody(edited)
	if before == after {
		before, after = string(accepted.Body), string(edited.Body)
	}
	return udiff.Unified("accepted", "edited", before, after)
}

// maxIndentSize is the largest size, in bytes, of a body that is indented. Indentation needs a tree of the body's
// elements, which takes many times the memory of the body.
const maxIndentSize = 4 << 20

// maxIndentDepth is the largest result of treeDepth for a body that is indented with spaces. In a deeper body, each
// element has a line of its own, but no spaces in front, because otherwise most of each line would be spaces.
const maxIndentDepth = 32

// indentWidth returns the number of spaces for each level of elements.
func indentWidth(root *etree.Element) int {
	if treeDepth(root) > maxIndentDepth {
		return 0
	}
	return 2
}

func treeDepth(e *etree.Element) int {
	most := 0
	for _, child := range e.Child {
		if c, ok := child.(*etree.Element); ok {
			most = max(most, treeDepth(c))
		}
	}
	return most + 1
}

func indentBody(m *weir.Message) string {
	text, err := contract.Text(m.ContentType, m.Body)
	if err != nil || len(text) > maxIndentSize {
		return string(m.Body)
	}
	document := etree.NewDocument()
	if err := document.ReadFromString(text); err != nil {
		return text
	}
	document.Indent(indentWidth(&document.Element))
	laidOut, err := document.WriteToString()
	if err != nil {
		return text
	}
	return laidOut
}
