package batch

import (
	"archive/zip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/http"
	"slices"
	"strings"

	"weir/internal/contract"
	"weir/internal/filing"
	"weir/internal/weir"
	"weir/internal/wire"
)

type part struct {
	number int // position in the batch, from 1
	// name of the part's file in a zip or in multipart; empty = the batch is one document
	file        string
	line        int // line of the part's start tag in the file; 0 = the part is a whole file
	contentType string
	body        []byte
	err         error // why the part has no body, or why its body is invalid
}

func (p part) newSubmission(upstream string) filing.Submission {
	return filing.Submission{ContentType: p.contentType, Body: p.body,
		Options: filing.Options{Upstream: upstream}}
}

type partReader struct {
	ctx      context.Context
	shift    *shift
	set      *contract.Set
	maxBody  int64
	paths    []*contract.SplitPath
	document *document
	files    fileReader
	zip      *zipFiles // the same files, if they come from a zip
	budget   budget

	file     postedFile
	splitter *contract.Splitter // splitter of the present file; nil = no file is being split
	number   int                // number of the last part that was read; 0 = none
}

// postedFile is one file of a batch. A batch that is one XML document counts as one file.
type postedFile struct {
	name        string
	contentType string
	content     io.Reader
	// why the file cannot be read, for example if it is encrypted; nil = it can be read
	err error
}

// fileReader returns the files of a batch one after the other, and then io.EOF.
type fileReader interface{ nextFile() (postedFile, error) }

// openParts returns a reader of the batch's parts. Between two reads it lets the batches of other
// upstreams work.
func openParts(ctx context.Context, w *work) (*partReader, error) {
	b := &w.batch
	paths, err := compilePaths(b.Split)
	if err != nil {
		return nil, err
	}

	d := &document{ctx: ctx, blobs: w.Blobs, id: b.ID, size: b.Bytes}
	r := &partReader{ctx: ctx, shift: w.shift, set: w.Contracts, maxBody: w.MaxBody, paths: paths,
		document: d, budget: newBudget(paths, b.Bytes)}

	switch b.Format {
	case wire.BatchZip:
		r.zip, err = openZip(d)
		r.files = r.zip
	case wire.BatchMultipart:
		r.files, err = openMultipart(d, w.progress.ContentType)
	default:
		r.files = &oneFile{&postedFile{contentType: w.progress.ContentType, content: d}}
	}

	r.files = withoutLitter{r.files}

	return r, err
}

// pass lets another batch work if this batch's shift is over. Meanwhile this batch keeps little
// memory.
func (r *partReader) pass() error {
	hasPassed, err := r.shift.pass(r.ctx)
	if hasPassed {
		r.document.dropChunks()
		if r.zip != nil {
			r.zip.dropDirectory()
		}
	}

	return err
}

// meteredContent is the content of one file. Its reads belong to the shift of the batch, and use up
// the budget.
type meteredContent struct {
	parts   *partReader
	content io.Reader
}

// Read implements io.Reader.
func (c *meteredContent) Read(p []byte) (int, error) {
	if err := c.parts.pass(); err != nil {
		return 0, err
	}

	n, err := c.content.Read(p)
	if spent := c.parts.budget.spend(countMarks(p[:n])); spent != nil {
		return 0, spent
	}

	return n, err
}

// next returns the next part, and io.EOF after the last part. If the error is a *weir.Error, the
// whole batch is refused. Any other error comes from storage.
func (r *partReader) next() (part, error) {
	for {
		if err := r.pass(); err != nil {
			return part{}, err
		}

		p, found, err := r.nextOfFile()
		if err != nil {
			return part{}, err
		}
		if !found {
			continue
		}

		if r.number++; r.number > maxParts {
			return part{}, malformedError(fmt.Sprintf("the batch has more than %d parts", maxParts))
		}

		p.number, p.file = r.number, r.file.name

		return p, nil
	}
}

// nextOfFile returns the next part of the present file, or found = false if the file has no further
// part. If no file is being split, nextOfFile first opens the next file.
func (r *partReader) nextOfFile() (p part, found bool, err error) {
	if r.splitter == nil {
		if r.file, err = r.files.nextFile(); err != nil {
			return part{}, false, err
		}

		r.file.content = &meteredContent{r, r.file.content}
		if len(r.paths) == 0 || r.file.err != nil {
			p, err = r.readWhole()
			return p, true, err
		}

		if r.splitter, err = r.set.Split(r.file.content, r.file.contentType, r.paths...); err !=
			nil {
			return part{}, false, r.inFile(err)
		}
	}

	one, err := r.splitter.Next()
	switch {
	case errors.Is(err, io.EOF):
		r.splitter = nil
		return part{}, false, nil
	case err != nil:
		return part{}, false, r.inFile(err)
	}

	return part{line: one.Line, contentType: r.splitter.PartType(), body: one.Body, err: one.Err},
		true, nil
}

// readWhole returns the present file as one part.
func (r *partReader) readWhole() (part, error) {
	if r.file.err != nil {
		return part{err: r.file.err}, nil
	}

	body, err := io.ReadAll(io.LimitReader(r.file.content, r.maxBody+1))
	var refused *weir.Error
	switch {
	case errors.As(err, &refused) && refused.Kind == weir.Invalid:
		return part{err: refused}, nil // the file is damaged; the other files can still be read
	case err != nil:
		return part{}, err
	case int64(len(body)) > r.maxBody:
		return part{err: &weir.Error{Kind: weir.TooLarge, Op: "batch",
				Message: fmt.Sprintf("the part is over %d bytes (maxBody in weir.yaml)",
					r.maxBody)}},
			nil
	}

	return part{contentType: r.file.contentType, body: body}, nil
}

// inFile adds the name of the present file to the message of a *weir.Error.
func (r *partReader) inFile(err error) error {
	var refused *weir.Error
	if r.file.name == "" || !errors.As(err, &refused) {
		return err
	}

	named := *refused
	named.Message = "file " + truncateText(r.file.name) + ": " + refused.Message
	return &named
}

func malformedError(message string) error {
	return &weir.Error{Kind: weir.Malformed, Op: "batch", Message: message}
}

// oneFile is the fileReader of a batch that is one document.
type oneFile struct{ left *postedFile }

func (o *oneFile) nextFile() (postedFile, error) {
	if o.left == nil {
		return postedFile{}, io.EOF
	}
	f := *o.left
	o.left = nil
	return f, nil
}

// withoutLitter leaves out the files that macOS adds to archives and folders.
type withoutLitter struct{ fileReader }

func (w withoutLitter) nextFile() (postedFile, error) {
	for {
		f, err := w.fileReader.nextFile()
		if err != nil || !isLitter(f.name) {
			return f, err
		}
	}
}

// isLitter reports whether a file is not the sender's, but one in which macOS or Windows keeps
// properties of other files or of folders. Windows does not distinguish upper and lower case. The
// file drop ignores names with a dot in front as well.
func isLitter(name string) bool {
	names := strings.FieldsFunc(name, func(c rune) bool { return c == '/' || c == '\\' })
	if len(names) == 0 {
		return false
	}

	base := names[len(names)-1]
	return slices.Contains(names, "__MACOSX") || base == ".DS_Store" ||
		strings.HasPrefix(base, "._") ||
		strings.EqualFold(base, "Thumbs.db") || strings.EqualFold(base, "desktop.ini")
}

// multipartFiles is the fileReader of a multipart body.
type multipartFiles struct {
	document *document
	reader   *multipart.Reader
}

func openMultipart(d *document, contentType string) (*multipartFiles, error) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, malformedError("the Content-Type cannot be read")
	}
	return &multipartFiles{d, multipart.NewReader(d, params["boundary"])}, nil
}

func (m *multipartFiles) nextFile() (postedFile, error) {
	p, err := m.reader.NextRawPart() // NextPart would decode quoted-printable, but not base64
	if err != nil {
		return postedFile{}, m.describeError(err)
	}

	name := p.FileName()
	if name == "" {
		name = p.FormName()
	}

	f := postedFile{name: name, contentType: p.Header.Get("Content-Type")}
	if f.err = checkPartHeaders(http.Header(p.Header)); f.err == nil {
		content := &multipartContent{files: m, part: p}
		f.content, f.err = decodeTransfer(p.Header.Get("Content-Transfer-Encoding"), content)
	}

	return f, nil
}

// checkPartHeaders refuses a part with headers of a message, because parts have none, and the
// content of a part in a content coding.
func checkPartHeaders(h http.Header) error {
	if err := filing.CheckNames("a part of a batch has no header ", h); err != nil {
		return err
	}
	return weir.CheckContentEncoding(h["Content-Encoding"]...)
}

// decodeTransfer returns the content of a part without its Content-Transfer-Encoding (RFC 2045,
// section 6).
func decodeTransfer(encoding string, content *multipartContent) (io.Reader, error) {
	switch encoding = strings.ToLower(strings.TrimSpace(encoding)); encoding {
	case "", "7bit", "8bit", "binary":
		return content, nil
	case "quoted-printable":
		return &transferContent{encoding, quotedprintable.NewReader(content), content}, nil
	case "base64":
		return &transferContent{encoding, base64.NewDecoder(base64.StdEncoding, content), content},
			nil
	}

	return nil, &weir.Error{Kind: weir.Unsupported, Op: "batch", Message: fmt.Sprintf(
		"the Content-Transfer-Encoding %.40q is not supported: base64, quoted-printable, 7bit, 8bit and binary are",
		encoding)}
}

// transferContent is the content of a part that had a Content-Transfer-Encoding.
type transferContent struct {
	encoding string
	decoded  io.Reader
	content  *multipartContent // the encoded content
}

// Read implements io.Reader.
func (c *transferContent) Read(p []byte) (int, error) {
	n, err := c.decoded.Read(p)
	switch {
	case c.content.failed != nil:
		return n, c.content.failed
	case err != nil && !errors.Is(err, io.EOF):
		return n, invalidError("the part is not valid " + c.encoding)
	}

	return n, err
}

// describeError turns an error of the multipart reader into storage's error, io.EOF, or an error of
// kind Malformed.
func (m *multipartFiles) describeError(err error) error {
	switch {
	case m.document.failed != nil:
		return m.document.failed
	case errors.Is(err, io.EOF):
		return io.EOF
	}
	return malformedError("the body is not multipart, or it ends early")
}

// multipartContent is the content of one file of a multipart body.
type multipartContent struct {
	files  *multipartFiles
	part   io.Reader
	failed error // error of the last Read, except io.EOF; nil = none
}

// Read implements io.Reader.
func (c *multipartContent) Read(p []byte) (int, error) {
	n, err := c.part.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = c.files.describeError(err)
		c.failed = err
	}
	return n, err
}

// zipFiles is the fileReader of a zip.
type zipFiles struct {
	document *document
	reader   *zip.Reader // has the directory; nil = dropped, see dropDirectory
	next     int         // index of the next file in the directory
	unpacked int64       // number of unpacked bytes read so far, from all files together
}

// maxDirectory is the largest number of bytes that openZip reads for a zip's directory, which stays
// in memory.
const maxDirectory = 8 << 20

func openZip(d *document) (*zipFiles, error) {
	z := &zipFiles{document: d}
	return z, z.loadDirectory()
}

// loadDirectory reads the directory, if it is not in memory.
func (z *zipFiles) loadDirectory() (err error) {
	if z.reader != nil {
		return nil
	}

	d := z.document
	d.mayRead, d.isLimited = maxDirectory, true
	z.reader, err = zip.NewReader(d, d.size)
	d.isLimited = false
	switch {
	case d.failed != nil:
		return d.failed
	case err != nil:
		return malformedError("the body is not a zip that can be read")
	}

	return nil
}

// dropDirectory frees the memory of the directory, which can be 50 MB, until the next file is
// opened.
func (z *zipFiles) dropDirectory() {
	if z.reader != nil {
		z.reader.File = nil // an open file refers to the reader
		z.reader = nil
	}
}

func (z *zipFiles) nextFile() (postedFile, error) {
	if err := z.loadDirectory(); err != nil {
		return postedFile{}, err
	}

	for z.next < len(z.reader.File) {
		f := z.reader.File[z.next]
		z.next++
		if !f.FileInfo().IsDir() {
			return z.openFile(f)
		}
	}

	return postedFile{}, io.EOF
}

// encryptedFlag is the bit of a file's flags that marks an encrypted file; see PKWARE's APPNOTE,
// section 4.4.4.
const encryptedFlag = 1

func (z *zipFiles) openFile(f *zip.File) (postedFile, error) {
	posted := postedFile{name: f.Name, contentType: "application/xml"}
	if f.Flags&encryptedFlag != 0 {
		posted.err = invalidError("the file is encrypted")
		return posted, nil
	}

	content, err := f.Open()
	switch {
	case z.document.failed != nil:
		return postedFile{}, z.document.failed
	case err != nil:
		posted.err = invalidError("the file is damaged, or compressed in another way than deflate")
		return posted, nil
	}

	posted.content = &zipContent{z, content}

	return posted, nil
}

func invalidError(message string) error {
	return &weir.Error{Kind: weir.Invalid, Op: "batch", Message: message}
}

// zipContent is the content of one file of a zip. Read fails if all files together have more than
// maxUnpacked bytes.
type zipContent struct {
	files   *zipFiles
	content io.Reader
}

// Read implements io.Reader.
func (c *zipContent) Read(p []byte) (int, error) {
	n, err := c.content.Read(p)
	c.files.unpacked += int64(n)
	switch {
	case c.files.unpacked > maxUnpacked:
		return 0, malformedError(fmt.Sprintf("the files are over %d bytes when they are unpacked",
			maxUnpacked))
	case c.files.document.failed != nil:
		return 0, c.files.document.failed
	case err != nil && !errors.Is(err, io.EOF):
		return 0, invalidError("the file is damaged")
	}

	return n, err
}
