package embedded_test

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"weir/internal/storage"
	"weir/internal/storage/embedded"
)

// The load of BenchmarkAppend: clients that append messages to lanes as receivers do. A lane has
// one transaction under way; messages that wait meanwhile share the next one.
const (
	benchClients = 64
	benchLanes   = 8
	benchBody    = 700 // bytes of a message's row
)

// appendFunc stores messages of a lane from the number first on, in one transaction.
type appendFunc func(lane int, first int64, bodies [][]byte) error

// BenchmarkAppend compares the store with bare commits of bbolt that write the same rows in groups
// that form in the same way. Rounds of both take turns, so that other work on the machine slows
// both. It reports the messages a second and the median time of an append of each, and the
// store's throughput as a share of the bare one.
func BenchmarkAppend(b *testing.B) {
	const messages = 1000 // of a round
	bare, store := &appendRounds{appendTo: newBareAppend(b)},
		&appendRounds{appendTo: newStoreAppend(b)}

	for b.Loop() {
		bare.run(b, messages)
		store.run(b, messages)
	}

	bare.report(b, "bare")
	store.report(b, "store")
	b.ReportMetric(bare.took.Seconds()/store.took.Seconds(), "share")
}

// appendRounds has the figures of the rounds of one store.
type appendRounds struct {
	appendTo appendFunc
	next     [benchLanes]int64
	took     time.Duration
	times    []time.Duration
}

func (r *appendRounds) report(b *testing.B, name string) {
	slices.Sort(r.times)
	b.ReportMetric(float64(len(r.times))/r.took.Seconds(), name+"-messages/s")
	b.ReportMetric(float64(r.times[len(r.times)/2].Microseconds())/1000, name+"-p50-ms")
}

// run lets the clients append a number of messages.
func (r *appendRounds) run(b *testing.B, messages int) {
	type message struct {
		body []byte
		done chan error
	}

	began := time.Now()
	var lanes [benchLanes]chan message
	var appenders, clients sync.WaitGroup
	for lane := range lanes {
		lanes[lane] = make(chan message, benchClients)
		appenders.Go(func() {
			for m := range lanes[lane] {
				batch, bodies := []message{m}, [][]byte{m.body}
				for len(lanes[lane]) > 0 && len(batch) < 40 {
					m := <-lanes[lane]
					batch, bodies = append(batch, m), append(bodies, m.body)
				}

				err := r.appendTo(lane, r.next[lane]+1, bodies)
				r.next[lane] += int64(len(batch))
				for _, m := range batch {
					m.done <- err
				}
			}
		})
	}

	times := make([]time.Duration, messages)
	for client := range benchClients {
		clients.Go(func() {
			done := make(chan error, 1)
			for i := client; i < messages; i += benchClients {
				body, began := randomBytes(benchBody), time.Now()
				lanes[i%benchLanes] <- message{body, done}
				if err := <-done; err != nil {
					b.Error(err)
				}
				times[i] = time.Since(began)
			}
		})
	}

	clients.Wait()
	for _, lane := range lanes {
		close(lane)
	}

	appenders.Wait()
	r.took += time.Since(began)
	r.times = append(r.times, times...)
}

func randomBytes(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.Read(data) // it never fails

	return data
}

func newStoreAppend(b *testing.B) appendFunc {
	b.Helper()
	store, err := embedded.Open(b.TempDir(), embedded.Options{})
	if err != nil {
		b.Fatal(err)
	}

	b.Cleanup(func() { _ = store.Close() })
	table, heads := store.Table(), [benchLanes]storage.ETag{}

	return func(lane int, first int64, bodies [][]byte) error {
		ops := []storage.Op{{Kind: storage.Replace, Key: "!head", IfMatch: heads[lane],
			Values: map[string]any{"Next": first + int64(len(bodies)),
				"Nonce": "0123456789abcdef"}}}
		if heads[lane] == "" {
			ops[0].Kind = storage.Insert
		}

		for i, body := range bodies {
			ops = append(
				ops,
				storage.Op{
					Kind:   storage.Insert,
					Key:    messageRow(first + int64(i)),
					Values: map[string]any{"Body": body},
				},
				storage.Op{Kind: storage.Insert, Key: "i_" + hex.EncodeToString(body[:16]),
					Values: map[string]any{"Seq": first + int64(i), "Key": "news"}},
			)
		}

		etags, err := table.Transact(b.Context(), lanePartition(lane), ops)
		if err == nil {
			heads[lane] = etags[0]
		}

		return err
	}
}

// bareGroup is a transaction that waits for the next commit.
type bareGroup struct {
	lane   int
	first  int64
	bodies [][]byte
	done   chan error
}

func newBareAppend(b *testing.B) appendFunc {
	b.Helper()
	db, err := bolt.Open(filepath.Join(b.TempDir(), "bare.db"), 0o600,
		&bolt.Options{NoStatistics: true,
			PageSize: 4096, NoFreelistSync: true, FreelistType: bolt.FreelistMapType,
			InitialMmapSize: 64 << 30})
	if err != nil {
		b.Fatal(err)
	}

	groups := make(chan bareGroup, benchLanes)
	b.Cleanup(func() {
		close(groups)
		_ = db.Close()
	})

	go func() {
		for g := range groups {
			all := []bareGroup{g}
			for len(groups) > 0 {
				all = append(all, <-groups)
			}

			err := db.Update(func(tx *bolt.Tx) error { return putBare(tx, all) })
			for _, g := range all {
				g.done <- err
			}
		}
	}()

	return func(lane int, first int64, bodies [][]byte) error {
		done := make(chan error, 1)
		groups <- bareGroup{lane, first, bodies, done}
		return <-done
	}
}

func putBare(tx *bolt.Tx, groups []bareGroup) error {
	for _, g := range groups {
		rows, err := tx.CreateBucketIfNotExists([]byte(lanePartition(g.lane)))
		if err != nil {
			return err
		}

		rows.FillPercent = 0.8
		err = rows.Put([]byte("!head"), make([]byte, 60))
		for i, body := range g.bodies {
			if err == nil {
				err = rows.Put([]byte(messageRow(g.first+int64(i))), body)
			}
			if err == nil {
				err = rows.Put(fmt.Appendf(nil, "i_%x", body[:16]), make([]byte, 40))
			}
		}

		if err != nil {
			return err
		}
	}

	return nil
}
