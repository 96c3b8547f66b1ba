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

// Bodies reads messages with their bodies. NotFound for an edited one says that there is
// none.
type Bodies interface {
	Load(ctx context.Context, id weir.ID) (weir.Message, error)
	LoadEdited(ctx context.Context, id weir.ID) (weir.Message, error)
}

// Difference serves GET /api/messages/{id}/difference: what an edit changed. All fields are
// needed.
type Difference struct {
	Bodies Bodies
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler. The id is the path value "id".
func (f *Difference) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := f.difference(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	httpio.WriteJSON(w, http.StatusOK, struct {
		Difference string `json:"difference"`
	}{text})
}

func (f *Difference) difference(r *http.Request) (string, error) {
	id, err := httpio.MessageID(r)
	if err != nil {
		return "", err
	}
	return Compare(r.Context(), f.Bodies, id)
}

// Compare gives what an edit changed as a unified difference.
func Compare(ctx context.Context, bodies Bodies, id weir.ID) (string, error) {
	edited, err := bodies.LoadEdited(ctx, id)
	if err != nil {
		return "", err
	}
	accepted, err := bodies.Load(ctx, id)
	if err != nil {
		return "", err
	}
	return compare(&accepted, &edited), nil
}

// compare gives a unified diff. Both bodies are laid out alike first, an element a line, for
// many upstreams send all in one line; where they differ in layout alone, they are compared
// as they are.
func compare(accepted, edited *weir.Message) string {
	before, after := indented(accepted), indented(edited)
	if before == after {
		before, after = string(accepted.Body), string(edited.Body)
	}
	return udiff.Unified("accepted", "edited", before, after)
}

// indentMax is the size up to which a body is laid out: it takes many times that in memory.
const indentMax = 4 << 20

// deep is the depth from which on lines are not indented: each would be as long as its depth.
const deep = 32

// indentOf is the number of spaces of a level.
func indentOf(root *etree.Element) int {
	if depth(root) > deep {
		return 0
	}
	return 2
}

func depth(e *etree.Element) int {
	most := 0
	for _, child := range e.Child {
		if c, ok := child.(*etree.Element); ok {
			most = max(most, depth(c))
		}
	}
	return most + 1
}

func indented(m *weir.Message) string {
	text, err := contract.Text(m.ContentType, m.Body)
	if err != nil || len(text) > indentMax {
		return string(m.Body)
	}
	document := etree.NewDocument()
	if err := document.ReadFromString(text); err != nil {
		return text
	}
	document.Indent(indentOf(&document.Element))
	laidOut, err := document.WriteToString()
	if err != nil {
		return text
	}
	return laidOut
}
