package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"weir/internal/panics"
	"weir/internal/storage"
)

// atOnce is the number of blobs or files that are read or written at the same time.
const atOnce = 8

// scanBlobs yields the blobs of a container.
func (m Mover) scanBlobs(ctx context.Context, blobs BlobPort) iter.Seq2[storage.BlobInfo, error] {
	return scanPages(func(marker string) (infos []storage.BlobInfo, next string, err error) {
		err = m.retry(ctx, func() error {
			page, err := blobs.List(ctx, "", marker)
			infos, next = page.Infos, page.Next
			return err
		})
		return infos, next, err
	})
}

// scanFiles yields the files of a container. A container that does not exist has none.
func (m Mover) scanFiles(ctx context.Context, files storage.Files) iter.Seq2[storage.File, error] {
	return scanPages(func(marker string) (found []storage.File, next string, err error) {
		err = m.retry(ctx, func() error {
			page, err := files.List(ctx, "", marker)
			found, next = page.Files, page.Next
			return err
		})
		if errors.Is(err, storage.ErrGone) {
			return nil, "", nil
		}

		return found, next, err
	})
}

func scanPages[T any](read func(marker string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for marker := ""; ; {
			found, next, err := read(marker)
			if err != nil {
				var none T
				yield(none, err)
				return
			}

			for _, one := range found {
				if !yield(one, nil) {
					return
				}
			}

			if marker = next; marker == "" {
				return
			}
		}
	}
}

// maxListed is the largest number of files that listFiles returns.
const maxListed = 1000

// listFiles returns the first files of a container, maxListed at most.
func (m Mover) listFiles(ctx context.Context, files storage.Files) (found []storage.File,
	err error) {
	for file, err := range m.scanFiles(ctx, files) {
		if err != nil || len(found) == maxListed {
			return found, err
		}
		found = append(found, file)
	}

	return found, nil
}

// readJob copies or removes a blob or a file, or returns its contents in both stores.
type readJob func() (from, to readContent, err error)

// readContent has what a job read in one store; the zero value = the job read nothing.
type readContent struct {
	content []byte // names itself, and stands for all that was read
	size    int64  // bytes of the blob or file
}

// group runs jobs at the same time, and adds what they read in the order of the jobs.
type group struct {
	sums  [2]*running
	jobs  []readJob
	limit int
}

func (g *group) add(job readJob) error {
	if g.jobs = append(g.jobs, job); len(g.jobs) < g.limit {
		return nil
	}

	return g.flush()
}

func (g *group) flush() error {
	read := make([][2]readContent, len(g.jobs))
	var all errgroup.Group
	for i, job := range g.jobs {
		all.Go(panics.Guard(func() (err error) {
			read[i][0], read[i][1], err = job()
			return err
		}))
	}

	err := all.Wait()

	for _, pair := range read {
		for i, one := range pair {
			if one.content != nil {
				g.sums[i].add(one.content, one.size)
			}
		}
	}

	g.jobs = nil

	return err
}

func (c *comparison) compareBodies(ctx context.Context) error {
	g := &group{sums: c.bodies, limit: atOnce}
	err := mergeByName(c.scanBlobs(ctx, c.From.Bodies), c.scanBlobs(ctx, c.To.Bodies),
		func(i storage.BlobInfo) string { return i.Name },
		func(from, to *storage.BlobInfo) error { return c.compareBody(ctx, g, from, to) })
	if err != nil {
		return err
	}

	return g.flush()
}

func (c *comparison) compareBody(ctx context.Context, g *group, from, to *storage.BlobInfo) error {
	isSame := from != nil && to != nil && from.Marked == to.Marked
	switch {
	case !c.mayWrite && !isSame:
		c.differences++
		return nil
	case !c.mayWrite:
		return g.add(func() (a, b readContent, err error) { return c.readBodies(ctx, from) })
	case isSame:
		return nil // the comparison at the end reads its content
	case from == nil:
		return g.add(func() (a, b readContent, err error) {
			return a, b, c.removeBody(ctx, to.Name)
		})
	}

	return g.add(func() (a, b readContent, err error) { return a, b, c.copyBody(ctx, *from) })
}

// readBodies returns a blob of both stores, each with its name and mark.
func (c *comparison) readBodies(ctx context.Context, info *storage.BlobInfo) (a, b readContent,
	err error) {
	name := info.Name
	ours, err := c.getBody(ctx, c.From.Bodies, name)
	if err != nil {
		return a, b, err
	}

	theirs, err := c.getBody(ctx, c.To.Bodies, name)
	if err == nil && !bytes.Equal(ours, theirs) {
		err = fmt.Errorf("%s: %w", name, errContent)
	}

	mark := "-"
	if info.Marked {
		mark = "+"
	}

	head := appendText(nil, name+mark)

	a = readContent{appendText(head, ours), int64(len(ours))}
	b = readContent{appendText(slices.Clone(head), theirs), int64(len(theirs))}

	return a, b, err
}

var errContent = errors.New("the copy has another content: give the copy up with --undo, and begin anew")

func (c *comparison) getBody(ctx context.Context, blobs BlobPort, name string) (data []byte,
	err error) {
	err = c.retry(ctx, func() (err error) {
		data, err = blobs.Get(ctx, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}

	return data, nil
}

func (c *comparison) removeBody(ctx context.Context, name string) error {
	return c.retry(ctx, func() error {
		err := c.To.Bodies.Delete(ctx, name)
		if storage.Is(err, storage.NotFound) {
			return nil
		}
		return err
	})
}

func (c *comparison) copyBody(ctx context.Context, info storage.BlobInfo) error {
	data, err := c.getBody(ctx, c.From.Bodies, info.Name)
	if err == nil {
		err = c.retry(ctx, func() error { return c.To.Bodies.Put(ctx, info.Name, data) })
	}

	if err == nil && info.Marked {
		err = c.retry(ctx, func() error { return c.To.Bodies.Mark(ctx, info.Name) })
	}

	if err != nil {
		return fmt.Errorf("%s: %w", info.Name, err)
	}

	return nil
}

// compareArchive compares the accepted and the rejected files.
func (c *comparison) compareArchive(ctx context.Context) error {
	if err := c.prepareArchive(ctx); err != nil {
		return err
	}

	for _, pair := range [][2]storage.Files{{c.From.Accepted, c.To.Accepted},
		{c.From.Rejected, c.To.Rejected}} {
		g := &group{sums: c.files, limit: atOnce}
		err := mergeByName(c.scanFiles(ctx, pair[0]), c.scanFiles(ctx, pair[1]),
			func(f storage.File) string { return f.Name },
			func(from, to *storage.File) error { return c.compareFile(ctx, g, pair, from, to) })
		if err == nil {
			err = g.flush()
		}

		if err != nil {
			return err
		}
	}

	return nil
}

// prepareArchive makes the containers of files in the target if the source has files.
func (c *comparison) prepareArchive(ctx context.Context) error {
	for _, files := range []storage.Files{c.From.Accepted, c.From.Rejected} {
		for _, err := range c.scanFiles(ctx, files) {
			if err != nil {
				return err
			}
			return c.retry(ctx, func() error { return c.To.EnsureFiles(ctx) })
		}
	}

	return nil
}

func (c *comparison) compareFile(ctx context.Context, g *group, pair [2]storage.Files, from,
	to *storage.File) error {
	isSame := from != nil && to != nil && from.Size == to.Size &&
		from.ContentType == to.ContentType &&
		maps.Equal(lowerNames(from.Metadata), lowerNames(to.Metadata))
	switch {
	case !c.mayWrite && !isSame:
		c.differences++
		return nil
	case !c.mayWrite:
		return g.add(func() (a, b readContent, err error) {
			return c.readFiles(ctx, pair, *from, *to)
		})
	case isSame:
		return nil
	case from == nil:
		return g.add(func() (a, b readContent, err error) {
			return a, b, c.retry(ctx, func() error {
				err := pair[1].Delete(ctx, to.Name, "")
				if storage.Is(err, storage.NotFound) {
					return nil
				}
				return err
			})
		})
	}

	return g.add(func() (a, b readContent, err error) {
		return a, b, c.retry(ctx, func() error {
			content := &fileReader{mover: c.Mover, ctx: ctx, files: pair[0], file: *from}
			return pair[1].Write(ctx, from.Name, from.ContentType, from.Metadata, content)
		})
	})
}

// lowerNames returns metadata with names in lower case: storage can change their case.
func lowerNames(metadata map[string]string) map[string]string {
	lower := make(map[string]string, len(metadata))
	for name, value := range metadata {
		lower[strings.ToLower(name)] = value
	}

	return lower
}

// readFiles returns the hash of a file of both stores, each with the file's name.
func (c *comparison) readFiles(ctx context.Context, pair [2]storage.Files, from,
	to storage.File) (a, b readContent, err error) {
	var sums [2]readContent
	for i, file := range []storage.File{from, to} {
		sum := newRunning()
		content := &fileReader{mover: c.Mover, ctx: ctx, files: pair[i], file: file}
		size, err := io.Copy(sum.hash, content)
		if err != nil {
			return a, b, fmt.Errorf("%s: %w", file.Name, err)
		}
		sums[i] = readContent{sum.hash.Sum(appendText(nil, file.Name)), size}
	}

	if !bytes.Equal(sums[0].content, sums[1].content) {
		err = fmt.Errorf("%s: %w", from.Name, errContent)
	}

	return sums[0], sums[1], err
}

// fileReader reads a file piece by piece.
type fileReader struct {
	mover Mover
	ctx   context.Context
	files storage.Files
	file  storage.File
	at    int64
}

const filePiece = 4 << 20

// WriteTo implements io.WriterTo, so that io.Copy reads large pieces.
func (r *fileReader) WriteTo(w io.Writer) (n int64, err error) {
	buffer := make([]byte, min(filePiece, r.file.Size))
	for {
		read, err := r.Read(buffer)
		if errors.Is(err, io.EOF) {
			return n, nil
		}

		if err == nil {
			_, err = w.Write(buffer[:read])
		}

		if err != nil {
			return n, err
		}

		n += int64(read)
	}
}

// Read implements io.Reader.
func (r *fileReader) Read(p []byte) (int, error) {
	length := min(r.file.Size-r.at, int64(len(p)), filePiece)
	if length == 0 {
		return 0, io.EOF
	}

	var data []byte
	err := r.mover.retry(r.ctx, func() (err error) {
		data, err = r.files.Read(r.ctx, r.file.Name, r.file.ETag, r.at, length)
		return err
	})

	r.at += int64(len(data))

	return copy(p, data), err
}
