package schema_test

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/memory"
)

// recorder has the shape of each row, blob, lease and ticket that is written to one storage
// account. A shape is a key or a name with its variable parts replaced, see replaceNumbers.
type recorder struct {
	mu     sync.Mutex
	shapes map[string]map[string]string // types of columns, by shape and column
}

func newRecorder() *recorder { return &recorder{shapes: map[string]map[string]string{}} }

// addRow records the columns of a row under the shape of its key.
func (r *recorder) addRow(partition, key string, columns map[string]any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	shape := "row   " + shapeOf(partition, key)
	if r.shapes[shape] == nil {
		r.shapes[shape] = map[string]string{}
	}

	for name, value := range columns {
		if value == nil {
			continue // storage does not keep a nil value
		}
		r.shapes[shape][name] = mergeTypes(r.shapes[shape][name], typeOf(value))
	}
}

// addName records the shape of a blob's or lease's name, or of a ticket's text.
func (r *recorder) addName(kind, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shapes[fmt.Sprintf("%-5s %s", kind, name)] = map[string]string{}
}

// formatShapes returns all shapes with their columns, in a fixed order.
func (r *recorder) formatShapes() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, shape := range slices.Sorted(maps.Keys(r.shapes)) {
		fmt.Fprintln(&b, shape)
		for _, column := range slices.Sorted(maps.Keys(r.shapes[shape])) {
			fmt.Fprintf(&b, "\t%s %s\n", column, r.shapes[shape][column])
		}
	}

	return b.String()
}

// typeOf returns the type that a value has in storage. If the value is JSON, compressed or not, the
// type also has the names of the JSON fields, because later releases read these fields.
func typeOf(value any) string {
	switch v := value.(type) {
	case string:
		return "string" + jsonFields([]byte(v))
	case int64:
		return "int64"
	case bool:
		return "bool"
	case float64:
		return "double"
	case []byte:
		return "binary" + jsonFields(decompress(v))
	case time.Time:
		return "time"
	}

	return fmt.Sprintf("unknown (%T)", value)
}

// decompress returns the text of a compressed value, or nil if the value is not compressed.
func decompress(packed []byte) []byte {
	text, err := io.ReadAll(flate.NewReader(bytes.NewReader(packed)))
	if err != nil {
		return nil
	}
	return text
}

// jsonFields lists the fields of a JSON object, or of all objects in a JSON array. It returns ""
// for any other text.
func jsonFields(text []byte) string {
	var object map[string]any
	var objects []map[string]any
	if json.Unmarshal(text, &object) == nil {
		objects = append(objects, object)
	} else if json.Unmarshal(text, &objects) != nil || len(objects) == 0 {
		return ""
	}

	fields := map[string]bool{}
	for _, o := range objects {
		for name := range o {
			fields[name] = true
		}
	}

	return " JSON " + strings.Join(slices.Sorted(maps.Keys(fields)), " ")
}

// mergeTypes merges the known type of a column with the type of one more value. Different types are
// joined with |. The result has the JSON fields of both types, because one JSON text can lack
// fields that another has.
func mergeTypes(known, seen string) string {
	knownType, knownFields, _ := strings.Cut(known, " JSON ")
	seenType, seenFields, _ := strings.Cut(seen, " JSON ")
	types := sortedUnion(strings.Split(knownType, "|"), []string{seenType})
	fields := sortedUnion(strings.Fields(knownFields), strings.Fields(seenFields))
	if len(fields) == 0 {
		return strings.Join(types, "|")
	}

	return strings.Join(types, "|") + " JSON " + strings.Join(fields, " ")
}

func sortedUnion(a, b []string) []string {
	all := slices.DeleteFunc(slices.Concat(a, b), func(s string) bool { return s == "" })
	slices.Sort(all)
	return slices.Compact(all)
}

var (
	lanePartition = regexp.MustCompile(`^[0-9]+\.[0-9]+$`)
	date          = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}/`)
	scheduleBlob  = regexp.MustCompile(`^schedules/[^/]+/`)
	jobID         = regexp.MustCompile(`\b[0-9]{13}[0-9a-f]{8}\b`)
	batchID       = regexp.MustCompile(`\b[0-9]{13}[0-9a-f]{16}\b`)
	variablePart  = regexp.MustCompile(`[A-Za-z0-9]+`)
	digitsOnly    = regexp.MustCompile(`^[0-9]+$`)
	hexOnly       = regexp.MustCompile(`^[0-9a-f]+$`)
	base32Only    = regexp.MustCompile(`^[A-Z2-7]+$`)
)

// shapeOf returns the shape of a row: its partition and key, with the variable parts replaced.
func shapeOf(partition, key string) string {
	switch {
	case lanePartition.MatchString(partition):
		partition = "<epoch>.<lane>"
	case partition == "schedules":
		return partition + " | <name>"
	}
	return partition + " | " + replaceNumbers(key)
}

// replaceNumbers replaces the numbers, hashes and random parts of a name by their kind and width,
// such as <19 digits>. The width matters: storage sorts keys as text, so numbers sort by value only
// if all have the same width.
func replaceNumbers(name string) string {
	if found := date.FindString(name); found != "" {
		return "<date>/" + replaceNumbers(name[len(found):])
	}

	if i := jobID.FindStringIndex(strings.ReplaceAll(name, "_", " ")); i != nil {
		return name[:i[0]] + "<13 digits><8 hex>" + name[i[1]:]
	}

	if i := batchID.FindStringIndex(name); i != nil {
		return name[:i[0]] + "<13 digits><16 hex>" + replaceNumbers(name[i[1]:])
	}

	if found := scheduleBlob.FindString(name); found != "" {
		return "schedules/<name>/" + replaceNumbers(name[len(found):])
	}

	return variablePart.ReplaceAllStringFunc(name, func(part string) string {
		n := len(part)
		switch isHash := n == 12 || n == 20 || n == 32; {
		case hexOnly.MatchString(part) && isHash:
			return fmt.Sprintf("<%d hex>", n)
		case digitsOnly.MatchString(part) && n < 8:
			return "<number>"
		case digitsOnly.MatchString(part):
			return fmt.Sprintf("<%d digits>", n)
		case base32Only.MatchString(part) && n >= 8:
			return fmt.Sprintf("<%d base32>", n)
		}

		return part
	})
}

// recordedTable is the table of one process. It records each row that is inserted or changed.
type recordedTable struct {
	storage.Table
	p *process
}

func (t recordedTable) Transact(ctx context.Context, partition string,
	ops []storage.Op) ([]storage.ETag, error) {
	if err := t.p.checkAlive("transact"); err != nil {
		return nil, err
	}

	etags, err := t.Table.Transact(ctx, partition, ops)
	if err != nil {
		return nil, err
	}

	for _, op := range ops {
		if op.Kind != storage.Delete {
			t.p.w.recorder.addRow(partition, op.Key, op.Values)
		}
	}

	return etags, nil
}

func (t recordedTable) Range(ctx context.Context, q storage.Query) (storage.Page, error) {
	if err := t.p.checkAlive("range"); err != nil {
		return storage.Page{}, err
	}
	return t.Table.Range(ctx, q)
}

func (t recordedTable) Get(ctx context.Context, partition, key string) (storage.Row, error) {
	if err := t.p.checkAlive("get"); err != nil {
		return storage.Row{}, err
	}
	return t.Table.Get(ctx, partition, key)
}

// recordedBlobs is the blob storage of one process. It records the name of each blob that is
// written.
type recordedBlobs struct {
	*memory.Blobs
	p *process
}

func (b recordedBlobs) Put(ctx context.Context, name string, data []byte) error {
	if err := b.p.checkAlive("put blob"); err != nil {
		return err
	}
	b.p.w.recorder.addName("blob", replaceNumbers(name))
	return b.Blobs.Put(ctx, name, data)
}

// List sleeps for the time world.slowList before it lists. If the sleep is long, the search for
// forgotten bodies runs out of time before its end.
func (b recordedBlobs) List(ctx context.Context, prefix, marker string) (storage.BlobPage, error) {
	time.Sleep(b.p.w.slowList)
	return b.Blobs.List(ctx, prefix, marker)
}

// Delete refuses to remove the blob world.lockedBlob.
func (b recordedBlobs) Delete(ctx context.Context, name string) error {
	if name == b.p.w.lockedBlob {
		return &storage.Error{Op: "delete blob", Kind: storage.Conflict, Index: -1}
	}
	return b.Blobs.Delete(ctx, name)
}

// recordedLeases has the leases of one process. It records the name of each lease that the process
// requests.
type recordedLeases struct {
	storage.Leases
	p *process
}

func (l recordedLeases) Acquire(ctx context.Context, name, id string, length time.Duration) error {
	if err := l.p.checkAlive("acquire"); err != nil {
		return err
	}
	l.p.w.recorder.addName("lease", replaceNumbers(name))
	return l.Leases.Acquire(ctx, name, id, length)
}

func (l recordedLeases) Renew(ctx context.Context, name, id string) error {
	if err := l.p.checkAlive("renew"); err != nil {
		return err
	}
	return l.Leases.Renew(ctx, name, id)
}

func (l recordedLeases) Release(ctx context.Context, name, id string) error {
	if err := l.p.checkAlive("release"); err != nil {
		return err
	}
	return l.Leases.Release(ctx, name, id)
}

// recordedQueue is the queue of tickets for one process. It records the text of each ticket that
// the process enqueues.
type recordedQueue struct {
	storage.Queue
	p *process
}

func (q recordedQueue) Put(ctx context.Context, text string, delay time.Duration) error {
	if err := q.p.checkAlive("put ticket"); err != nil {
		return err
	}
	q.p.w.recorder.addName("text", replaceNumbers(text))
	return q.Queue.Put(ctx, text, delay)
}

// checkAlive returns an error if the process was killed. Most methods of the recorded types call
// checkAlive first, so that a killed process inserts or changes nothing more.
func (p *process) checkAlive(op string) error {
	if p.dead.Load() {
		return &storage.Error{Op: op, Kind: storage.Unavailable, Index: -1}
	}
	return nil
}
