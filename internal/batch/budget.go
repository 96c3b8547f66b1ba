package batch

import (
	"bytes"
	"fmt"
	"io"

	"weir/internal/contract"
	"weir/internal/weir"
	"weir/internal/wire"
)

// The CPU time for a document grows with the number of its tags and attributes, and for each tag
// with the steps of the split paths. A zip of 0.5 MB can unpack to 125 million tags. So a batch has
// a budget of marks, which are tags and attributes: some for each batch, and more for each byte
// that was sent, so that work cannot be bought cheaply. A mark costs about 0.2 µs for a pass over
// the document.
const (
	freeMarks, marksOfByte = 10_000_000, 2
	// maxMarks is the largest budget.
	maxMarks = 60_000_000
	// stepsOfMark is the number of path steps that cost as much as a mark.
	stepsOfMark = 64
)

// budget is the rest of the work that one pass over a document may cost.
type budget struct {
	ofMark int64 // work of one mark with the steps of all paths, in steps
	left   int64 // in steps
	most   int64 // largest number of marks
}

// newBudget returns the budget of a document with this size in bytes.
func newBudget(paths []*contract.SplitPath, size int64) budget {
	steps := int64(0)
	for _, p := range paths {
		steps += int64(p.Steps())
	}
	all, ofMark := stepsOfMark*min(freeMarks+marksOfByte*size, maxMarks), stepsOfMark+steps
	return budget{ofMark: ofMark, left: all, most: all / ofMark}
}

// countMarks counts the tags and attributes in a piece of a document. The document may have any
// encoding: in each, the text of a tag has the byte of "<", and that of an attribute the byte of
// "=".
func countMarks(piece []byte) int64 {
	return int64(bytes.Count(piece, []byte("<")) + bytes.Count(piece, []byte("=")))
}

// spend takes the work for these marks from the budget. It returns an error if the budget is used
// up.
func (b *budget) spend(marks int64) error {
	if b.left -= b.ofMark * marks; b.left >= 0 {
		return nil
	}
	return &weir.Error{Kind: weir.TooLarge, Op: "batch",
		Message: fmt.Sprintf("the documents have more than "+
			"%d tags and attributes, which a batch of this size may have with these split paths; send smaller "+
			"batches, or fewer and shorter paths", b.most)}
}

// markCounter counts the tags and attributes of a document while it is received.
type markCounter struct {
	io.Reader
	marks int64
}

// Read implements io.Reader.
func (c *markCounter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.marks += countMarks(p[:n])
	return n, err
}

// checkMarks refuses a received document with too many tags and attributes, so that the sender
// learns it at once. Those of a zip are counted when it is unpacked.
func checkMarks(b *wire.Batch, marks int64) error {
	paths, err := compilePaths(b.Split)
	if err != nil {
		return err
	}
	left := newBudget(paths, b.Bytes)
	return left.spend(marks)
}
