package folder

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"weir/internal/panics"
	"weir/internal/storage"
	"weir/internal/storage/embedded"
	"weir/internal/storage/timelimit"
)

const socketName = "weir.sock"

// closeTimeout is the time for the calls of other processes to end when the store closes.
const closeTimeout = 2 * time.Second

// maxSocketPath is the length of the longest path of a socket on all systems, in bytes.
const maxSocketPath = 100

// socketPath returns a path of the socket that is short enough for the system: the path of the
// folder, or the one relative to the present folder.
func socketPath(dir string) (string, error) {
	path, err := filepath.Abs(filepath.Join(dir, socketName))
	if err != nil || len(path) <= maxSocketPath {
		return path, err
	}

	here, err := os.Getwd()
	if err != nil {
		return "", err
	}

	if short, err := filepath.Rel(here, path); err == nil && len(short) <= maxSocketPath {
		return short, nil
	}

	return "", fmt.Errorf("the path %s is longer than %d bytes, which a socket cannot have: take a folder "+
		"with a shorter path, or start the program in the folder above", path, maxSocketPath)
}

// server answers the calls of other processes.
type server struct {
	store    *embedded.Store
	listener net.Listener
	http     http.Server
	path     string
	done     sync.WaitGroup
}

// listen serves the socket of a store. This process has the folder, so a socket that is there is a
// remain of a process that was killed.
func listen(store *embedded.Store) (*server, error) {
	path, err := socketPath(store.Dir())
	if err != nil {
		return nil, err
	}

	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}

	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}

	// The folder is open to its user alone only if Weir made it.
	if runtime.GOOS != "windows" {
		if err := os.Chmod(path, 0o600); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}

	s := &server{store: store, listener: l, path: path}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+callPath, s.handle)
	s.http.Handler = mux
	s.http.ReadHeaderTimeout = 10 * time.Second
	s.done.Go(func() {
		_ = panics.Catch(func() error { return s.http.Serve(l) })
	})

	return s, nil
}

func (s *server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}

	s.done.Wait()

	return err
}

// handle answers one call. After the call, the body has the content of a file that is written.
func (s *server) handle(w http.ResponseWriter, r *http.Request) {
	body := bufio.NewReader(r.Body)
	var c call
	if err := gob.NewDecoder(body).Decode(&c); err != nil {
		http.Error(w, "the call cannot be read", http.StatusBadRequest)
		return
	}

	if c.Port == portStore && c.Method == "Backup" {
		s.backUp(w, r)
		return
	}

	var a answer
	err := panics.Catch(func() error { return s.answer(r.Context(), c, body, &a) })
	a.Failure = encodeError(err)
	_ = gob.NewEncoder(w).Encode(&a) // the caller sees an answer that is cut off
}

// backUp sends the bytes of a back-up. An error after the first byte cuts the answer off.
func (s *server) backUp(w http.ResponseWriter, r *http.Request) {
	out := &startedWriter{Writer: w}
	err := panics.Catch(func() error { return s.store.Backup(r.Context(), out) })
	switch {
	case err != nil && out.hasStarted:
		panic(http.ErrAbortHandler)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// startedWriter knows whether something was written.
type startedWriter struct {
	io.Writer
	hasStarted bool
}

// Write implements io.Writer.
func (w *startedWriter) Write(p []byte) (int, error) {
	w.hasStarted = true

	return w.Writer.Write(p)
}

var errUnknownCall = errors.New("this version does not know the call")

func (s *server) answer(ctx context.Context, c call, content io.Reader, a *answer) error {
	switch c.Port {
	case portTable:
		return answerTable(ctx, s.store.Table(), c, a)
	case portQueue:
		if q := s.queue(c.Name); q != nil {
			return answerQueue(ctx, q, c, a)
		}

	case portBlobs:
		return answerBlobs(ctx, s.store.Bodies(), c, a)
	case portFiles:
		if f := s.files(c.Name); f != nil {
			return answerFiles(ctx, f, c, content, a)
		}

	case portLeases, portBlobsL:
		return answerLeases(ctx, s.store, c, a)
	case portStore:
		return s.answerStore(ctx, c, a)
	}

	return errUnknownCall
}

func (s *server) queue(name string) timelimit.QueuePort {
	switch name {
	case "tickets":
		return s.store.Tickets()
	case "poison":
		return s.store.Poison()
	case "events":
		return s.store.InboxEvents()
	}

	return nil
}

func (s *server) files(name string) storage.Files {
	switch name {
	case "inbox":
		return s.store.Inbox()
	case "accepted":
		return s.store.Accepted()
	case "rejected":
		return s.store.Rejected()
	}

	return nil
}

func answerTable(ctx context.Context, t storage.Table, c call, a *answer) (err error) {
	switch c.Method {
	case "Get":
		a.Row, err = t.Get(ctx, c.Partition, c.Key)
	case "Range":
		if c.NoColumns {
			c.Query.Columns = []string{}
		}
		a.Page, err = t.Range(ctx, c.Query)

	case "Transact":
		a.ETags, err = t.Transact(ctx, c.Partition, c.Ops)
	default:
		err = errUnknownCall
	}

	return err
}

func answerQueue(ctx context.Context, q timelimit.QueuePort, c call, a *answer) (err error) {
	switch c.Method {
	case "Put":
		err = q.Put(ctx, c.Text, c.Time)
	case "Get":
		a.Messages, err = q.Get(ctx, c.Max, c.Time)
	case "Update":
		a.Text, err = q.Update(ctx, c.Message, c.Text, c.Time)
	case "Delete":
		err = q.Delete(ctx, c.Message)
	case "Length":
		a.Number, err = q.Length(ctx)
	default:
		err = errUnknownCall
	}

	return err
}

func answerBlobs(ctx context.Context, b timelimit.BlobPort, c call, a *answer) (err error) {
	switch c.Method {
	case "Put":
		err = b.Put(ctx, c.Key, c.Data)
	case "Get":
		a.Data, err = b.Get(ctx, c.Key)
	case "Delete":
		err = b.Delete(ctx, c.Key)
	case "Mark":
		err = b.Mark(ctx, c.Key)
	case "List":
		a.Blobs, err = b.List(ctx, c.Prefix, c.Marker)
	default:
		err = errUnknownCall
	}

	return err
}

func answerFiles(ctx context.Context, f storage.Files, c call, content io.Reader,
	a *answer) (err error) {
	switch c.Method {
	case "List":
		a.Files, err = f.List(ctx, c.Prefix, c.Marker)
	case "Read":
		a.Data, err = f.Read(ctx, c.Key, storage.ETag(c.Version), c.Offset, c.Length)
	case "Write":
		err = f.Write(ctx, c.Key, c.ContentType, c.Metadata, content)
	case "Delete":
		err = f.Delete(ctx, c.Key, storage.ETag(c.Version))
	default:
		err = errUnknownCall
	}

	return err
}

func answerLeases(ctx context.Context, s *embedded.Store, c call, a *answer) (err error) {
	switch c.Port + " " + c.Method {
	case portLeases + " Acquire":
		err = s.Leases().Acquire(ctx, c.Key, c.ID, c.Time)
	case portLeases + " Renew":
		err = s.Leases().Renew(ctx, c.Key, c.ID)
	case portLeases + " Release":
		err = s.Leases().Release(ctx, c.Key, c.ID)
	case portBlobsL + " List":
		a.Blobs, err = s.LeaseBlobs().List(ctx, c.Prefix, c.Marker)
	case portBlobsL + " Delete":
		err = s.LeaseBlobs().Delete(ctx, c.Key)
	default:
		err = errUnknownCall
	}

	return err
}

func (s *server) answerStore(ctx context.Context, c call, a *answer) (err error) {
	switch c.Method {
	case "Hello":
	case "Partitions":
		err = s.store.Partitions(ctx, func(name string) error {
			a.Names = append(a.Names, name)
			return nil
		})

	case "Check":
		a.Report, err = s.store.Check(ctx)
	case "Scrub":
		err = s.store.Scrub(ctx)
	default:
		err = errUnknownCall
	}

	return err
}
