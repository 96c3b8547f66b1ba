package inbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
	"weir/internal/wire"
)

// keyOf returns the idempotency key of a version of a file. The message or batch of this version
// gets the key.
func keyOf(f storage.File) string {
	sum := sha256.Sum256([]byte(f.Name + "\x00" + string(f.ETag)))
	return "file-" + hex.EncodeToString(sum[:16])
}

// maxArchived is the number of bytes to which the archive cuts a file's name. A blob's name has at
// most 1024 characters, and the name in the archive also contains a folder and problemsSuffix.
const maxArchived = 900

// problemsSuffix is the end of a problems file's name.
const problemsSuffix = ".problems.json"

// archiveName returns the name that a rejected file or a batch's file gets in the archive. The
// folder begins with the time of the last modification, so that the newest file sorts last.
func archiveName(f storage.File) string {
	return f.ModifiedAt.UTC().Format("20060102T150405Z") + "-" + keyOf(f)[len("file-"):][:12] +
		"/" + shortName(f.Name)
}

// messageName returns the name that a message's file gets among the accepted files. EraseMessage
// finds the file by its folders: the day of the message's acceptance, and the message's id.
func messageName(m weir.Message, f storage.File) string {
	return messageFolder(m.Public().String(), m.AcceptedAt) + shortName(f.Name)
}

func messageFolder(id string, acceptedAt time.Time) string {
	return acceptedAt.UTC().Format(dayFormat) + "/" + id + "/"
}

// dayFormat is the beginning of a name in the archive. Names sort by day, so that the walk over an
// archive ends at the first young file.
const dayFormat = "20060102"

func shortName(name string) string {
	if len(name) > maxArchived {
		return strings.ToValidUTF8(name[:maxArchived], "")
	}
	return name
}

func (c *Collector) archiveFile(ctx context.Context, to storage.Files, name string, f storage.File,
	body io.Reader) error {
	return to.Write(ctx, name, f.ContentType, copyMetadata(f.Metadata), body)
}

var (
	metadataName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	metadataValue = regexp.MustCompile(`^[\x20-\x7e]*$`)
)

// copyMetadata returns those metadata that storage accepts in a request. The archived file gets
// them, so that a due time still applies if an operator copies the file back into the inbox.
func copyMetadata(given map[string]string) map[string]string {
	kept := map[string]string{}
	for name, value := range given {
		if metadataName.MatchString(name) && metadataValue.MatchString(value) {
			kept[name] = value
		}
	}
	return kept
}

// rejectFile moves a file to the rejected files, and writes a problems file beside it. If the file
// is removed or overwritten before the copy is complete, rejectFile does nothing. If the reason is
// no *weir.Error, rejectFile returns the reason and does nothing.
func (c *Collector) rejectFile(ctx context.Context, f storage.File, reason error) error {
	var refused *weir.Error
	if !errors.As(reason, &refused) {
		return reason
	}

	err := writePauses.Do(ctx, func() error {
		return c.archiveFile(ctx, c.Rejected, archiveName(f), f, c.newReader(ctx, c.Inbox, f))
	})
	if isChanged(err) {
		return nil // a later run takes the new version, if there is one
	}

	if err == nil {
		err = c.writeProblems(ctx, c.Rejected, archiveName(f), c.describeRefusal(f, refused))
	}

	if err != nil {
		return err
	}

	err = c.removeTaken(ctx, f)
	if err == nil || !endsRun(ctx, err) { // else the next run rejects the file again
		c.Refused(reason)
		c.Logger.Warn("inbox: refused", "subject", shortName(f.Name), "reason", refused.Message)
	}

	return err
}

func (c *Collector) describeRefusal(f storage.File, refused *weir.Error) wire.FileProblems {
	return wire.FileProblems{Name: f.Name, RefusedAt: c.Now().UTC().Truncate(time.Second),
		Detail: refused.Message, Problems: refused.Problems}
}

func (c *Collector) writeProblems(ctx context.Context, to storage.Files, name string,
	problems wire.FileProblems) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // people read the file
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(problems); err != nil {
		return err
	}

	return writePauses.Do(ctx, func() error {
		return to.Write(ctx, name+problemsSuffix, "application/json", nil,
			bytes.NewReader(text.Bytes()))
	})
}

// FinishBatch writes the problems of a batch into a problems file beside the batch's file. If the
// batch was rejected, FinishBatch also moves the batch's file to the rejected files. The parameter
// "name" is the name of the batch's file among the accepted files. After an error, the caller can
// call FinishBatch again.
func (c *Collector) FinishBatch(ctx context.Context, b wire.Batch, name string) error {
	problems := wire.FileProblems{Name: name[strings.Index(name, "/")+1:], RefusedAt: b.UpdatedAt,
		Detail: b.Reason, Batch: b.ID, Parts: b.Problems}
	switch {
	case b.State != wire.BatchRejected && b.Invalid == 0:
		return nil
	case b.State != wire.BatchRejected:
		problems.Detail = "some parts are invalid, and were not filed"
		return c.writeProblems(ctx, c.Accepted, name, problems)
	}

	if err := c.writeProblems(ctx, c.Rejected, name, problems); err != nil {
		return err
	}

	return c.moveToRejected(ctx, name)
}

// moveToRejected moves the file of a rejected batch from the accepted files to the rejected files.
// If the file does not exist, for example because retention has removed it, moveToRejected does
// nothing.
func (c *Collector) moveToRejected(ctx context.Context, name string) error {
	found, err := findExact(ctx, c.Accepted, name)
	if err != nil || found == nil {
		return err
	}

	if err := c.archiveFile(ctx, c.Rejected, name, *found, c.newReader(ctx, c.Accepted, *found)); err != nil {
		return err
	}

	err = c.Accepted.Delete(ctx, name, "")
	if storage.Is(err, storage.NotFound) {
		return nil
	}

	return err
}

// findExact returns the file with exactly this name; nil = no file has it.
func findExact(ctx context.Context, files storage.Files, name string) (*storage.File, error) {
	// the wanted name sorts before all longer names with this prefix
	page, err := files.List(ctx, name, "")
	if err != nil || len(page.Files) == 0 || page.Files[0].Name != name {
		return nil, err
	}
	return &page.Files[0], nil
}

// isChanged reports whether err means that a file was removed or overwritten after it was listed.
func isChanged(err error) bool {
	return storage.Is(err, storage.NotFound) || storage.Is(err, storage.Precondition)
}

// chunkSize is the number of bytes of each chunk of a file, except the last one.
const chunkSize = 1 << 20

// reader reads a version of a file chunk by chunk.
type reader struct {
	ctx   context.Context
	files storage.Files
	file  storage.File
	at    int64  // position of the next chunk in the file
	chunk []byte // unread bytes of the present chunk
}

func (c *Collector) newReader(ctx context.Context, files storage.Files, f storage.File) io.Reader {
	return &reader{ctx: ctx, files: files, file: f}
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if len(r.chunk) == 0 {
		length := min(chunkSize, r.file.Size-r.at)
		if length == 0 {
			return 0, io.EOF
		}

		chunk, err := r.files.Read(r.ctx, r.file.Name, r.file.ETag, r.at, length)
		if err != nil {
			return 0, err
		}

		r.chunk, r.at = chunk, r.at+length
	}

	n := copy(p, r.chunk)
	r.chunk = r.chunk[n:]
	return n, nil
}
