// Package storagetest has the conformance suite for the ports of package storage, and wrappers that
// inject faults into the ports. Every implementation passes the suite, so that results of
// simulations with package memory also hold for Azure Storage.
package storagetest

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"weir/internal/storage"
)

// QueuePort has all methods of a queue.
type QueuePort = interface {
	storage.Queue
	storage.QueueLength
}

// BlobPort has all methods for blobs.
type BlobPort = interface {
	storage.Blobs
	storage.BlobMarks
}

// QueueHarness provides queues for the suite, and controls the clock of these queues. Open returns
// an empty queue. Advance returns when the clock has advanced by at least d.
type QueueHarness struct {
	Open    func(t *testing.T) QueuePort
	Advance func(d time.Duration)
}

// LeaseHarness provides leases for the suite, and controls the clock of these leases. Open returns
// leases that were never acquired. Advance returns when the clock has advanced by at least d.
type LeaseHarness struct {
	Open    func(t *testing.T) storage.Leases
	Advance func(d time.Duration)
}

// spare is the extra time that tests wait, because storage's clock can be behind the test's clock.
const spare = 300 * time.Millisecond

// runEach runs the tests in parallel, each on a port of its own.
func runEach[P any](t *testing.T, open func(*testing.T) P, tests map[string]func(*testing.T, P)) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func requireNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantKind checks that err is a *storage.Error of this kind.
func wantKind(t *testing.T, what string, err error, kind storage.Kind) {
	t.Helper()
	if !storage.Is(err, kind) {
		t.Errorf("%s: err = %v, want %v", what, err, kind)
	}
}

func insertOp(key string, values map[string]any) storage.Op {
	return storage.Op{Kind: storage.Insert, Key: key, Values: values}
}

func keysOf(rows []storage.Row) []string {
	keys := make([]string, len(rows))
	for i, r := range rows {
		keys[i] = r.Key
	}
	return keys
}

func wantKeys(t *testing.T, what string, rows []storage.Row, want ...string) {
	t.Helper()
	if !slices.Equal(keysOf(rows), want) {
		t.Errorf("%s: rows %q, want %q", what, keysOf(rows), want)
	}
}

// sameValues reports whether got and want have equal names, values and types.
func sameValues(got, want map[string]any) bool {
	if len(got) != len(want) {
		return false
	}

	for name, w := range want {
		g, there := got[name]
		if !there || !sameValue(g, w) {
			return false
		}
	}

	return true
}

func sameValue(got, want any) bool {
	switch w := want.(type) {
	case []byte:
		g, ok := got.([]byte)
		return ok && g != nil && bytes.Equal(g, w)
	case time.Time:
		g, ok := got.(time.Time)
		return ok && g.Equal(w) && g.Location() == time.UTC
	}

	return got == want
}
