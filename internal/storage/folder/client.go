package folder

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/embedded"
	"weir/internal/storage/timelimit"
)

// client is the store of another process.
type client struct {
	owner     embedded.Owner
	path      string
	transport *http.Transport
}

// dial connects to the process that has a folder.
func dial(ctx context.Context, dir string, owner embedded.Owner) (*client, error) {
	path, err := socketPath(dir)
	if err != nil {
		return nil, err
	}

	c := &client{owner: owner, path: path}
	c.transport = &http.Transport{MaxIdleConnsPerHost: 64,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "unix", path)
			if err != nil {
				err = &notSentError{err}
			}
			return conn, err
		}}
	if _, err := c.do(ctx, "open", false, call{Port: portStore, Method: "Hello"}, nil); err != nil {
		return nil, err
	}

	return c, nil
}

// notSentError is the error of a call that was certainly not sent.
type notSentError struct{ error }

func (e *notSentError) Unwrap() error { return e.error }

// send sends a call, and returns the response. The error is that of a call without a usable answer.
func (c *client) send(ctx context.Context, op string, isWrite bool, one call,
	content io.Reader) (*http.Response, error) {
	if ctx.Err() != nil {
		return nil, newError(op, storage.Unavailable, context.Cause(ctx))
	}

	var body bytes.Buffer
	if err := gob.NewEncoder(&body).Encode(&one); err != nil {
		return nil, newError(op, storage.Other, err)
	}

	all := io.Reader(&body)
	if content != nil {
		all = io.MultiReader(&body, content)
	}

	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://folder"+callPath, all)
	if err != nil {
		return nil, newError(op, storage.Other, err)
	}

	response, err := c.transport.RoundTrip(r)
	if err != nil {
		return nil, lostError(op, isWrite, err)
	}

	if response.StatusCode == http.StatusNotFound {
		err = errors.New("the process that has the folder is another version of Weir")
	} else if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		err = errors.New(string(bytes.TrimSpace(text)))
	}

	if err != nil {
		_ = response.Body.Close()
		return nil, newError(op, storage.Other, err)
	}

	return response, nil
}

// lostError returns the error of a call without an answer. If the call was a write that was sent,
// its result is unknown.
func lostError(op string, isWrite bool, err error) error {
	var notSent *notSentError
	if isWrite && !errors.As(err, &notSent) {
		return newError(op, storage.Ambiguous, err)
	}

	return newError(op, storage.Unavailable, err)
}

func newError(op string, kind storage.Kind, err error) error {
	return &storage.Error{Op: op, Kind: kind, Index: -1, Err: err}
}

// do makes a call.
func (c *client) do(ctx context.Context, op string, isWrite bool, one call,
	content io.Reader) (a answer, err error) {
	response, err := c.send(ctx, op, isWrite, one, content)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()

	if err := gob.NewDecoder(response.Body).Decode(&a); err != nil {
		return a, lostError(op, isWrite, fmt.Errorf("the answer was cut off: %w", err))
	}

	if a.Failure != nil {
		return a, a.Failure.decode()
	}

	return a, nil
}

func (c *client) read(ctx context.Context, one call) (answer, error) {
	return c.do(ctx, one.Port+" "+one.Method, false, one, nil)
}

func (c *client) write(ctx context.Context, one call) (answer, error) {
	return c.do(ctx, one.Port+" "+one.Method, true, one, nil)
}

// Table implements Account.
func (c *client) Table() storage.Table { return timelimit.Table(remoteTable{c}) }

// Tickets implements Account.
func (c *client) Tickets() timelimit.QueuePort { return timelimit.Queue(remoteQueue{c, "tickets"}) }

// Poison implements Account.
func (c *client) Poison() timelimit.QueuePort { return timelimit.Queue(remoteQueue{c, "poison"}) }

// InboxEvents implements Account.
func (c *client) InboxEvents() timelimit.QueuePort {
	return timelimit.Queue(remoteQueue{c, "events"})
}

// Bodies implements Account.
func (c *client) Bodies() timelimit.BlobPort { return timelimit.Blobs(remoteBlobs{c}) }

// Leases implements Account.
func (c *client) Leases() storage.Leases { return timelimit.Leases(remoteLeases{c}) }

// LeaseBlobs implements Account.
func (c *client) LeaseBlobs() LeaseBlobs { return remoteLeaseBlobs{c} }

// Inbox implements Account.
func (c *client) Inbox() storage.Files { return timelimit.Files(remoteFiles{c, "inbox"}) }

// Accepted implements Account.
func (c *client) Accepted() storage.Files { return timelimit.Files(remoteFiles{c, "accepted"}) }

// Rejected implements Account.
func (c *client) Rejected() storage.Files { return timelimit.Files(remoteFiles{c, "rejected"}) }

// Ensure implements Account.
func (c *client) Ensure(context.Context) error { return nil }

// Skew implements Account. Both processes have the clock of this machine.
func (c *client) Skew(context.Context) (time.Duration, error) { return 0, nil }

// Owner implements Account.
func (c *client) Owner() embedded.Owner { return c.owner }

// Close implements Account.
func (c *client) Close() error {
	c.transport.CloseIdleConnections()
	return nil
}

// Partitions implements Account.
func (c *client) Partitions(ctx context.Context, visit func(name string) error) error {
	a, err := c.read(ctx, call{Port: portStore, Method: "Partitions"})
	for _, name := range a.Names {
		if err == nil {
			err = visit(name)
		}
	}

	return err
}

// Backup implements Account.
func (c *client) Backup(ctx context.Context, w io.Writer) error {
	response, err := c.send(ctx, "back up", false, call{Port: portStore, Method: "Backup"}, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(w, response.Body); err != nil {
		return fmt.Errorf("back up: the process that has the folder cut the copy off: %w", err)
	}

	return nil
}

// Check implements Account.
func (c *client) Check(ctx context.Context) (embedded.Report, error) {
	a, err := c.read(ctx, call{Port: portStore, Method: "Check"})
	return a.Report, err
}

// Scrub implements Account.
func (c *client) Scrub(ctx context.Context) error {
	_, err := c.write(ctx, call{Port: portStore, Method: "Scrub"})
	return err
}

type remoteTable struct{ c *client }

func (t remoteTable) Get(ctx context.Context, partition, key string) (storage.Row, error) {
	a, err := t.c.read(ctx, call{Port: portTable, Method: "Get", Partition: partition, Key: key})
	if err != nil {
		return storage.Row{}, err
	}

	return restoreRow(a.Row), nil
}

// restoreRow restores the values that gob sends as nothing.
func restoreRow(row storage.Row) storage.Row {
	if row.Values == nil {
		row.Values = map[string]any{}
	}

	row.WrittenAt = row.WrittenAt.UTC()
	for name, value := range row.Values {
		switch v := value.(type) {
		case []byte:
			if v == nil {
				row.Values[name] = []byte{}
			}
		case time.Time:
			row.Values[name] = v.UTC()
		}
	}

	return row
}

func (t remoteTable) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	a, err := t.c.read(ctx, call{Port: portTable, Method: "Range", Query: q,
		NoColumns: q.Columns != nil && len(q.Columns) == 0})
	if err != nil {
		return storage.Page{}, err
	}

	for i := range a.Page.Rows {
		a.Page.Rows[i] = restoreRow(a.Page.Rows[i])
	}

	return a.Page, nil
}

func (t remoteTable) Transact(ctx context.Context, partition string,
	ops []storage.Op) ([]storage.ETag, error) {
	for i, op := range ops {
		if kind := unencodable(op.Values); kind != "" {
			return nil, &storage.Error{Op: "table transact", Kind: storage.Other, Index: i,
				Err: fmt.Errorf("a %s cannot be stored", kind)}
		}
	}

	a, err := t.c.write(ctx, call{Port: portTable, Method: "Transact", Partition: partition,
		Ops: withoutNil(ops)})
	if err != nil {
		return nil, err
	}

	return a.ETags, nil
}

// unencodable returns the type of a value that no row can have, or "".
func unencodable(values map[string]any) string {
	for _, value := range values {
		switch value.(type) {
		case nil, string, int64, bool, float64, []byte, time.Time:
		default:
			return fmt.Sprintf("%T", value)
		}
	}

	return ""
}

type remoteQueue struct {
	c    *client
	name string
}

func (q remoteQueue) Put(ctx context.Context, text string, delay time.Duration) error {
	_, err := q.c.write(ctx, call{Port: portQueue, Name: q.name, Method: "Put", Text: text,
		Time: delay})
	return err
}

func (q remoteQueue) Get(ctx context.Context, max int,
	hide time.Duration) ([]storage.QueueMessage, error) {
	a, err := q.c.write(ctx, call{Port: portQueue, Name: q.name, Method: "Get", Max: max,
		Time: hide})
	for i := range a.Messages {
		a.Messages[i].InsertedAt = a.Messages[i].InsertedAt.UTC()
	}

	return a.Messages, err
}

func (q remoteQueue) Update(ctx context.Context, m storage.QueueMessage, text string,
	hide time.Duration) (string, error) {
	a, err := q.c.write(ctx, call{Port: portQueue, Name: q.name, Method: "Update", Message: m,
		Text: text, Time: hide})
	return a.Text, err
}

func (q remoteQueue) Delete(ctx context.Context, m storage.QueueMessage) error {
	_, err := q.c.write(ctx, call{Port: portQueue, Name: q.name, Method: "Delete", Message: m})
	return err
}

func (q remoteQueue) Length(ctx context.Context) (int64, error) {
	a, err := q.c.read(ctx, call{Port: portQueue, Name: q.name, Method: "Length"})
	return a.Number, err
}

type remoteBlobs struct{ c *client }

func (b remoteBlobs) Put(ctx context.Context, name string, data []byte) error {
	_, err := b.c.write(ctx, call{Port: portBlobs, Method: "Put", Key: name, Data: data})
	return err
}

func (b remoteBlobs) Get(ctx context.Context, name string) ([]byte, error) {
	a, err := b.c.read(ctx, call{Port: portBlobs, Method: "Get", Key: name})
	if err != nil {
		return nil, err
	}

	return slices.Concat([]byte{}, a.Data), nil
}

func (b remoteBlobs) Delete(ctx context.Context, name string) error {
	_, err := b.c.write(ctx, call{Port: portBlobs, Method: "Delete", Key: name})
	return err
}

func (b remoteBlobs) Mark(ctx context.Context, name string) error {
	_, err := b.c.write(ctx, call{Port: portBlobs, Method: "Mark", Key: name})
	return err
}

func (b remoteBlobs) List(ctx context.Context, prefix, marker string) (storage.BlobPage, error) {
	return b.c.list(ctx, call{Port: portBlobs, Method: "List", Prefix: prefix, Marker: marker})
}

func (c *client) list(ctx context.Context, one call) (storage.BlobPage, error) {
	a, err := c.read(ctx, one)
	for i := range a.Blobs.Infos {
		a.Blobs.Infos[i].ModifiedAt = a.Blobs.Infos[i].ModifiedAt.UTC()
	}

	return a.Blobs, err
}

type remoteFiles struct {
	c    *client
	name string
}

func (f remoteFiles) List(ctx context.Context, prefix, marker string) (storage.FilePage, error) {
	a, err := f.c.read(ctx, call{Port: portFiles, Name: f.name, Method: "List", Prefix: prefix,
		Marker: marker})
	for i := range a.Files.Files {
		a.Files.Files[i].ModifiedAt = a.Files.Files[i].ModifiedAt.UTC()
	}

	return a.Files, err
}

func (f remoteFiles) Read(ctx context.Context, name string, version storage.ETag, offset,
	length int64) ([]byte, error) {
	a, err := f.c.read(ctx, call{Port: portFiles, Name: f.name, Method: "Read", Key: name,
		Version: string(version), Offset: offset, Length: length})
	return a.Data, err
}

// Write implements storage.Files.
func (f remoteFiles) Write(ctx context.Context, name, contentType string,
	metadata map[string]string, body io.Reader) error {
	content := &bodyReader{Reader: body}
	_, err := f.c.do(ctx, "files Write", true,
		call{Port: portFiles, Name: f.name, Method: "Write", Key: name,
			ContentType: contentType, Metadata: metadata}, content)
	if err := content.failed(); err != nil {
		return err
	}

	return err
}

func (f remoteFiles) Delete(ctx context.Context, name string, version storage.ETag) error {
	_, err := f.c.write(ctx, call{Port: portFiles, Name: f.name, Method: "Delete", Key: name,
		Version: string(version)})
	return err
}

type remoteLeases struct{ c *client }

func (l remoteLeases) Acquire(ctx context.Context, name, id string, length time.Duration) error {
	_, err := l.c.write(ctx, call{Port: portLeases, Method: "Acquire", Key: name, ID: id,
		Time: length})
	return err
}

func (l remoteLeases) Renew(ctx context.Context, name, id string) error {
	_, err := l.c.write(ctx, call{Port: portLeases, Method: "Renew", Key: name, ID: id})
	return err
}

func (l remoteLeases) Release(ctx context.Context, name, id string) error {
	_, err := l.c.write(ctx, call{Port: portLeases, Method: "Release", Key: name, ID: id})
	return err
}

type remoteLeaseBlobs struct{ c *client }

func (l remoteLeaseBlobs) List(ctx context.Context, prefix,
	marker string) (storage.BlobPage, error) {
	return l.c.list(ctx, call{Port: portBlobsL, Method: "List", Prefix: prefix, Marker: marker})
}

func (l remoteLeaseBlobs) Delete(ctx context.Context, name string) error {
	_, err := l.c.write(ctx, call{Port: portBlobsL, Method: "Delete", Key: name})
	return err
}
