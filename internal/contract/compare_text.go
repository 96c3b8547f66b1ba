package contract

import (
	"context"
	"time"

	"weir/internal/weir"
)

// TextDifference is a value that earlier versions of Weir read without the text of inner elements.
type TextDifference struct {
	Setting string // name of the setting or function that reads the value
	Path    string
	Line    int // line of the element's start tag, from 1
	// Former is the text directly in the element; Present is its whole text. Both are RedactedMark
	// if the contract redacts the value.
	Former, Present string
}

// CompareText returns the values of a body that its contract, or one of the selections, reads with
// the text of inner elements. The function selectionsOf returns what the steps of a contract read.
// The error is one of Accept. A body that breaks a rule of its contract is compared, too.
func (s *Set) CompareText(ctx context.Context, contentType string, body []byte,
	selectionsOf func(contract string) []Selection) ([]TextDifference, error) {
	weight := min(3*estimateMemory(body), s.limits.Memory)
	if err := s.memory.Acquire(ctx, weight); err != nil {
		return nil, &weir.Error{Kind: weir.Unavailable, Op: "compare",
			Message: "too much is being read at the moment", RetryAfter: time.Second, Err: err}
	}
	defer s.memory.Release(weight)

	charset, err := parseContentType(contentType)
	if err != nil {
		return nil, err
	}

	text, err := decodeBody(body, charset)
	if err != nil {
		return nil, err
	}

	places := &places{}
	one, err := scanWithPlaces(text, s.limits, places, func(qualifiedName) needs {
		return needs{all: true, declarations: true, markup: true}
	})
	if err != nil {
		return nil, err
	}

	c, missed := chooseContract(ctx, s.findCandidates(one.root), one)
	if c == nil {
		return nil, invalidError(missed...)
	}

	var found []TextDifference
	redacted := c.findRedactedPlaces(one.doc)
	for _, reader := range c.listTextReaders(selectionsOf(c.def.Name)) {
		if problems := reader.path.checkNested(one.doc); len(problems) > 0 {
			return nil, invalidError(problems...)
		}

		for _, v := range reader.path.selectPlacedValues(one.doc) {
			d := TextDifference{Setting: reader.setting, Path: reader.path.given, Present: v.text}
			if d.Former = trimSpace(textDirectlyIn(v.element)); v.attribute != "" ||
				d.Former == d.Present {
				continue
			}

			if redacted.hasValue(v) {
				d.Former, d.Present = RedactedMark, RedactedMark
			}

			d.Line, _ = lineColumn(text[:places.spans[v.element].start])
			found = append(found, d)
		}
	}

	return found, nil
}

// textReader is a path, and the setting or function that reads its values.
type textReader struct {
	setting string
	path    *path
}

func (c *compiledContract) listTextReaders(selections []Selection) (readers []textReader) {
	add := func(setting string, p *path) {
		if p != nil {
			readers = append(readers, textReader{setting, p})
		}
	}

	for _, p := range c.key {
		add("key", p)
	}

	add("version", c.version)
	add("deliverAt", c.due)
	for _, f := range c.fields {
		add("fields", f.path)
	}

	for _, f := range c.shown {
		add("show "+f.name, f.path)
	}

	for _, s := range selections {
		if p, err := compileSelection(s); err == nil && s.Form == FormText {
			add("steps", p)
		}
	}

	return readers
}
