package batch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"strings"
	"time"

	"weir/internal/contract"
	"weir/internal/weir"
	"weir/internal/wire"
)

const (
	// MaxBytes is the largest size of a batch, in bytes.
	MaxBytes = 64 << 20
	// maxParts is the largest number of parts of a batch.
	maxParts = 100_000
	// maxUnpacked is the largest total size of a zip's unpacked files, in bytes.
	maxUnpacked = 512 << 20
	// maxProblems is the number of invalid parts whose problems are stored; further invalid parts
	// are only counted.
	maxProblems = 1000
	// maxOfPart is the largest number of problems that are stored for one part. maxText is the
	// largest size of a text or a name in a problem or a reason, in bytes. Longer texts are cut.
	maxOfPart, maxText = 10, 400
	// maxContentType and maxPath are the largest sizes of a Content-Type and of a split path, in
	// bytes. The batch's row must have room for these texts.
	maxContentType, maxPath = 512, 256
	// retention is the time from the acceptance of a batch until RemoveExpired can remove the
	// batch. RemoveExpired removes only final batches.
	retention = 30 * 24 * time.Hour
)

// Spec describes a batch to accept.
type Spec struct {
	ContentType string
	Mode        wire.BatchMode
	// paths of the parts; empty = the contracts' paths for XML, else one part per file
	Split          []string
	IdempotencyKey string // empty = none
	File           string // name of the batch's file in the archive; empty = the batch was posted
	Upstream       string // the upstream that sent the batch; empty = none is known
}

// formatOf returns the format of a batch with this Content-Type. Without a Content-Type the format
// is XML.
func formatOf(contentType string) (wire.BatchFormat, error) {
	kind, params, err := mime.ParseMediaType(contentType)
	switch {
	case len(contentType) > maxContentType:
		return "", &weir.Error{Kind: weir.Unsupported, Op: "batch",
			Message: fmt.Sprintf("the Content-Type is over %d bytes", maxContentType)}
	case contentType == "":
		return wire.BatchXML, nil
	case err != nil:
		return "", &weir.Error{Kind: weir.Unsupported, Op: "batch",
			Message: "the Content-Type cannot be read"}
	case kind == "application/zip" || kind == "application/x-zip-compressed":
		return wire.BatchZip, nil
	case strings.HasPrefix(kind, "multipart/"):
		if params["boundary"] == "" {
			return "", &weir.Error{Kind: weir.Unsupported, Op: "batch",
				Message: "the Content-Type is multipart and has no boundary"}
		}
		return wire.BatchMultipart, nil

	case contract.IsXML(contentType):
		return wire.BatchXML, nil
	}

	return "", &weir.Error{Kind: weir.Unsupported, Op: "batch",
		Message: "the Content-Type must be XML, application/zip or multipart"}
}

// checkStart refuses a document by its first bytes, before any of it is stored. Otherwise the
// sender would get a 202, although it is already certain that no part can be read. It returns a
// reader of the whole document.
func checkStart(set *contract.Set, format wire.BatchFormat, contentType string,
	body io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(body, contract.StartSize)
	head, err := buffered.Peek(contract.StartSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if format == wire.BatchXML {
		return buffered, set.CheckStart(contentType, head)
	}

	isGzip := bytes.HasPrefix(head, []byte("\x1f\x8b"))
	if format == wire.BatchMultipart && !isGzip {
		return buffered, nil // any text may precede the first part
	}

	// MZ: it unpacks itself
	isZip := bytes.HasPrefix(head, []byte("PK")) || bytes.HasPrefix(head, []byte("MZ"))
	if len(head) > 0 && !isZip {
		return nil, &weir.Error{Kind: weir.Unsupported, Op: "batch",
			Message: fmt.Sprintf("the Content-Type is that of %s, and the body is not", format)}
	}

	return buffered, nil
}

func compilePaths(given []string) ([]*contract.SplitPath, error) {
	var paths []*contract.SplitPath
	for _, text := range given {
		p, err := contract.CompileSplitPath(text)
		if err == nil && len(text) > maxPath {
			err = fmt.Errorf("split path %q: it is over %d bytes", truncateText(text), maxPath)
		}

		if err != nil {
			return nil, &weir.Error{Kind: weir.Invalid, Op: "batch", Message: err.Error(),
				Problems: []weir.Problem{{Path: "split", Rule: "path", Message: err.Error()}}}
		}

		paths = append(paths, p)
	}

	return paths, nil
}

// partKey returns the idempotency key of a part.
func partKey(id string, part int) string { return fmt.Sprintf("batch-%s-%d", id, part) }

// randomBytes is the number of random bytes of a batch's id: a client cannot guess the id.
const randomBytes = 8

// describeProblem returns the problem of an invalid part. The line numbers count from the beginning
// of the part's file.
func describeProblem(p part, err *weir.Error) wire.PartProblem {
	out := wire.PartProblem{Part: p.number, File: truncateText(p.file), Line: p.line,
		Message: truncateText(err.Message)}
	for _, problem := range err.Problems[:min(len(err.Problems), maxOfPart)] {
		problem.Path, problem.Message = truncateText(problem.Path), truncateText(problem.Message)
		if p.line > 0 && problem.Line > 0 {
			if problem.Line == 1 {
				// The part's first line also has namespace declarations from elsewhere in the
				// document. So the part's column is not the document's column.
				problem.Column = 0
			}
			problem.Line += p.line - 1
		}

		out.Problems = append(out.Problems, problem)
	}

	return out
}

// truncateText cuts a text that is over maxText bytes, and adds an ellipsis.
func truncateText(text string) string {
	if len(text) > maxText {
		return strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}
