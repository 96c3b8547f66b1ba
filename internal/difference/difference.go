// Package difference shows the changes that an edit made to the body of a message.
package difference

import (
	"context"
	"fmt"

	"github.com/aymanbagabas/go-udiff"
	"github.com/beevik/etree"

	"weir/internal/contract"
	"weir/internal/weir"
)

// Bodies reads messages with their bodies. LoadEditedMessage returns the error NotFound if the
// message was not edited.
type Bodies interface {
	LoadMessage(ctx context.Context, id weir.ID) (weir.Message, error)
	LoadEditedMessage(ctx context.Context, id weir.ID) (weir.Message, error)
}

// Turns limits the comparisons and previews at the same time; see httpio.Turns.
type Turns interface {
	Take(ctx context.Context, size int64) (done func(), err error)
}

const (
	// maxCompared is the largest size of both bodies together, in bytes. The time and the memory of
	// a comparison grow with the product of the lines and the changes: 1 MiB of short lines that
	// all differ takes 0.2 s of a core.
	maxCompared = 1 << 20
	// compareMemory is the memory of one comparison of maxCompared bytes: the bodies, their trees,
	// their lines and the differences; 36 MiB were measured.
	compareMemory = 40 << 20
)

// Compare returns the changes that an edit made to a message's body, as a unified diff. The error
// is NotFound if the message was not edited, TooLarge if the bodies have more than maxCompared
// bytes together, and Unavailable if there is no turn in time.
func Compare(ctx context.Context, turns Turns, bodies Bodies, id weir.ID) (string, error) {
	done, err := turns.Take(ctx, compareMemory)
	defer done()
	if err != nil {
		return "", err
	}

	edited, err := bodies.LoadEditedMessage(ctx, id)
	if err != nil {
		return "", err
	}

	accepted, err := bodies.LoadMessage(ctx, id)
	if err != nil {
		return "", err
	}

	if size := len(edited.Body) + len(accepted.Body); size > maxCompared {
		return "", &weir.Error{Kind: weir.TooLarge, Op: "difference",
			Message: fmt.Sprintf(
				"the two bodies have %d bytes and may have %d to be compared here; read both with "+
					"/body?which=accepted and /body?which=edited, and compare them yourself", size,
				maxCompared)}
	}

	return diffBodies(&accepted, &edited), nil
}

// diffBodies indents both bodies before it compares them, because many upstreams send a body as one
// line. If the indented bodies are equal, diffBodies compares the original bodies.
func diffBodies(accepted, edited *weir.Message) string {
	before, after := indentBody(accepted), indentBody(edited)
	if before == after {
		before, after = string(accepted.Body), string(edited.Body)
	}
	return udiff.Unified("accepted", "edited", before, after)
}

// maxIndentDepth is the largest result of treeDepth for a body that is indented with spaces. In a
// deeper body, each element has a line of its own, but no spaces in front, because otherwise most
// of each line would be spaces.
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
	if err != nil {
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
