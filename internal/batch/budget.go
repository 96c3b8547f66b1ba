package batch

import (
	"bytes"
	"fmt"
	"io"

	"weir/internal/contract"
	"weir/internal/weir"
	"weir/internal/wire"
)

// The CPU time for a document grows with the number of its tags, and for each tag with the steps of the split paths.
// A zip of 0.5 MB can unpack to 125 million tags. So a batch has a budget of tags: some for each batch, and more for
// each byte that was sent, so that work cannot be bought cheaply.
const (
	freeTags, tagsOfByte = 10_000_000, 2
	// maxTags is the largest budget.
	maxTags = 60_000_000
	// stepsOfTag is the number of path steps that cost as much as a tag.
	stepsOfTag = 64
)

// budget is the rest of the work that one pass over a document may cost.
type budget struct {
	ofTag int64 // work of one tag with the steps of all paths, in steps
	left  int64 // in steps
	total int64 // in tags
}

// newBudget returns the budget of a document with this size in bytes.
func newBudget(paths []*contract.SplitPath, size int64) budget {
	total := min(freeTags+tagsOfByte*size, maxTags)
	steps := int64(0)
	for _, p := range paths {
		steps += int64(p.Steps())
	}
	return budget{ofTag: stepsOfTag + steps, left: stepsOfTag * total, total: total}
}

// countTags counts the tags in a piece of a document. The document may have any encoding: in each, the text of a tag has
// the byte of "<".
func countTags(piece []byte) int64 { return int64(bytes.Count(piece, []byte("<"))) }

// spend takes the work for these tags from the budget. It returns an error if the budget is used up.
func (b *budget) spend(tags int64) error {
	if b.left -= b.ofTag * tags; b.left >= 0 {
		return nil
	}
	return &weir.Error{Kind: weir.TooLarge, Op: "batch", Message: fmt.Sprintf("the documents have more than %d tags, "+
		"which a batch of this size may have with these split paths; send smaller batches, or fewer and shorter paths",
		b.total*stepsOfTag/b.ofTag)}
}

// tagCounter counts the tags of a document while it is received.
type tagCounter struct {
	io.Reader
	tags int64
}

// Read implements io.Reader.
func (c *tagCounter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.tags += countTags(p[:n])
	return n, err
}

// checkTags refuses a received document with too many tags, so that the sender learns it at once. The tags of a zip are
// counted when it is unpacked.
func checkTags(b *wire.Batch, tags int64) error {
	paths, err := compilePaths(b.Split)
	if err != nil {
		return err
	}
	left := newBudget(paths, b.Bytes)
	return left.spend(tags)
}
