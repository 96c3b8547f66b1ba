package storagetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
)

const holder = "0f8fad5b-d9cb-469f-a165-70867728950e"

// ports are the ports of one account. The fields are ports with faults. The methods of Account
// return ports without faults.
type ports struct {
	*memory.Account
	faults *storagetest.Faults
	table  storage.Table
	queue  storage.Queue
	blobs  storagetest.BlobPort
	leases storage.Leases
}

func newPorts(t *testing.T) *ports {
	t.Helper()
	a, f := memory.New(time.Now), storagetest.NewFaults()
	return &ports{
		Account: a, faults: f, table: f.Table(a.Table()), queue: f.Queue(a.Queue("q")),
		blobs: f.Blobs(a.Blobs()), leases: f.Leases(a.Leases()),
	}
}

type write struct {
	prepare func(ctx context.Context, p *ports) error // makes the write possible; can be nil
	do      func(ctx context.Context, p *ports) error
	done    func(ctx context.Context, p *ports) bool // reports whether storage has done the write
}

var writes = map[string]write{
	"table Transact": {
		do: func(ctx context.Context, p *ports) error {
			_, err := p.table.Transact(ctx, "p", []storage.Op{{Kind: storage.Insert, Key: "k"}})
			return err
		},
		done: func(ctx context.Context, p *ports) bool {
			_,
				err := p.Table().Get(ctx, "p", "k")
			return err == nil
		},
	},
	"queue Put": {
		do: func(ctx context.Context, p *ports) error { return p.queue.Put(ctx, "t", 0) },
		done: func(ctx context.Context, p *ports) bool {
			n,
				_ := p.Queue("q").Length(ctx)
			return n == 1
		},
	},
	"queue Get": {
		prepare: func(ctx context.Context, p *ports) error { return p.Queue("q").Put(ctx, "t", 0) },
		do: func(ctx context.Context, p *ports) error {
			_,
				err := p.queue.Get(ctx, 1, time.Hour)
			return err
		},
		done: func(ctx context.Context, p *ports) bool {
			got, _ := p.Queue("q").Get(ctx, 1, time.Second)
			return len(got) == 0
		},
	},
	"blobs Put": {
		do: func(ctx context.Context, p *ports) error {
			return p.blobs.Put(ctx, "n",
				[]byte("x"))
		},
		done: func(ctx context.Context, p *ports) bool {
			_,
				err := p.Blobs().Get(ctx, "n")
			return err == nil
		},
	},
	"blobs Delete": {
		prepare: func(ctx context.Context, p *ports) error { return p.Blobs().Put(ctx, "n", nil) },
		do:      func(ctx context.Context, p *ports) error { return p.blobs.Delete(ctx, "n") },
		done: func(ctx context.Context, p *ports) bool {
			_,
				err := p.Blobs().Get(ctx, "n")
			return err != nil
		},
	},
	"blobs Mark": {
		prepare: func(ctx context.Context, p *ports) error { return p.Blobs().Put(ctx, "n", nil) },
		do:      func(ctx context.Context, p *ports) error { return p.blobs.Mark(ctx, "n") },
		done: func(ctx context.Context, p *ports) bool {
			found, _ := p.Blobs().List(ctx, "", "")
			return len(found.Infos) == 1 && found.Infos[0].Marked
		},
	},
	"leases Acquire": {
		do: func(ctx context.Context, p *ports) error {
			return p.leases.Acquire(ctx, "1.0",
				holder, time.Minute)
		},
		done: func(ctx context.Context, p *ports) bool {
			return p.Leases().Renew(ctx, "1.0", holder) == nil
		},
	},
	"leases Release": {
		prepare: func(ctx context.Context,
			p *ports) error {
			return p.Leases().Acquire(ctx, "1.0", holder, time.Minute)
		},
		do: func(ctx context.Context, p *ports) error {
			return p.leases.Release(ctx,
				"1.0", holder)
		},
		done: func(ctx context.Context, p *ports) bool {
			return p.Leases().Renew(ctx, "1.0", holder) != nil
		},
	},
}

func TestFaults_Writes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fault storagetest.Fault
		kind  storage.Kind
		takes time.Duration // time until the call returns; its context ends after 5 s
		done  bool          // the write is done when the call returns
		later bool          // the write is done after the test has called Faults.Wait
	}{
		"FailBefore": {storagetest.Fault{Kind: storagetest.FailBefore}, storage.Unavailable, 0,
			false, false},
		"FailAfter": {storagetest.Fault{Kind: storagetest.FailAfter}, storage.Ambiguous, 0,
			true, true},
		"Late": {storagetest.Fault{Kind: storagetest.Late, Delay: 9 * time.Second},
			storage.Ambiguous, 0, false, true},
		"LateHeld": {storagetest.Fault{Kind: storagetest.LateHeld}, storage.Ambiguous, 0,
			false, false},
		"Hang": {storagetest.Fault{Kind: storagetest.Hang}, storage.Ambiguous, 5 * time.Second,
			false, false},
		"HangAfter": {storagetest.Fault{Kind: storagetest.HangAfter}, storage.Ambiguous,
			5 * time.Second, true, true},
	}
	for name, test := range tests {
		for op, w := range writes {
			t.Run(name+"/"+op, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					p := newPorts(t)
					if w.prepare != nil {
						requireNoError(t, w.prepare(t.Context(), p))
					}

					p.faults.Once(isOp(op), test.fault)
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					start := time.Now()
					err := w.do(ctx, p)
					if !storage.Is(err, test.kind) || storage.FailedAt(err) != -1 {
						t.Errorf("err = %v, want %v", err, test.kind)
					}

					if took := time.Since(start); took != test.takes {
						t.Errorf("took %v, want %v", took, test.takes)
					}

					// For Late, the write must not be done yet. The test does not check this for
					// "queue Get", because the function "done" of "queue Get" itself dequeues the
					// message.
					if test.done == test.later {
						p.faults.Release()
					} else if w.done(t.Context(), p) && op != "queue Get" {
						t.Errorf("%s was done before its delay was over, want it done later", op)
					}

					p.faults.Wait()

					if got, want := w.done(t.Context(), p), test.later ||
						test.fault.Kind == storagetest.LateHeld; got != want {
						t.Errorf("done = %t, want %t", got, want)
					}
				})
			})
		}
	}
}

func TestFaults_Reads(t *testing.T) {
	t.Parallel()
	reads := map[string]func(context.Context, *ports) error{
		"table Get": func(ctx context.Context, p *ports) error {
			_,
				err := p.table.Get(ctx, "p", "k")
			return err
		},
		"table Range": func(ctx context.Context, p *ports) error {
			_, err := p.table.Range(ctx, storage.Query{Partition: "p"})
			return err
		},
		"queue Length": func(ctx context.Context, p *ports) error {
			_, err := p.queue.(storage.QueueLength).Length(ctx)
			return err
		},
		"blobs Get": func(ctx context.Context, p *ports) error {
			_,
				err := p.blobs.Get(ctx, "n")
			return err
		},
		"blobs List": func(ctx context.Context, p *ports) error {
			_,
				err := p.blobs.List(ctx, "", "")
			return err
		},
	}
	for op, read := range reads {
		for kind := storagetest.FailBefore; kind <= storagetest.HangAfter; kind++ {
			synctest.Test(t, func(t *testing.T) {
				p := newPorts(t)
				p.faults.Once(isOp(op), storagetest.Fault{Kind: kind, Delay: time.Hour})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				start := time.Now()
				if err := read(ctx, p); !storage.Is(err, storage.Unavailable) {
					t.Errorf("%s kind %d: %v, want an error of kind Unavailable", op, kind, err)
				}

				hangs := kind == storagetest.Hang || kind == storagetest.HangAfter
				if took := time.Since(start); (took == 5*time.Second) != hangs {
					t.Errorf("%s kind %d took %v, want 5s only if it hangs", op, kind, took)
				}

				if err := read(t.Context(), p); storage.Is(err, storage.Unavailable) {
					t.Errorf("%s kind %d: broken twice: %v, want no error of kind Unavailable",
						op, kind, err)
				}
			})
		}
	}
}

// isOp matches calls by port and method, for example "queue Put".
func isOp(name string) func(storagetest.Call) bool {
	return func(c storagetest.Call) bool { return c.Port+" "+c.Op == name }
}

func TestFaults_Late(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPorts(t)
		p.faults.Once(isOp("table Transact"),
			storagetest.Fault{Kind: storagetest.Late, Delay: 10 * time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		ops := []storage.Op{{Kind: storage.Insert, Key: "k",
			Values: map[string]any{"B": []byte("as sent")}}}
		_, err := p.table.Transact(ctx, "p", ops)
		if !storage.Is(err, storage.Ambiguous) {
			t.Fatalf("got %v, want an error of kind Ambiguous", err)
		}

		cancel() // does not prevent the write, because the write was sent before
		ops[0].Values["B"].([]byte)[0] = 'X'
		ops[0].Values["C"] = true
		ops[0].Key = "other"
		start := time.Now()
		p.faults.Wait()
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("arrived after %v, want 10s", took)
		}

		row, err := p.table.Get(t.Context(), "p", "k")
		if err != nil || string(row.Values["B"].([]byte)) != "as sent" || len(row.Values) != 1 {
			t.Errorf("got the row %v, %v, want \"as sent\" alone", row, err)
		}
	})
}

func TestFaults_Err(t *testing.T) {
	t.Parallel()
	p := newPorts(t)
	own := &storage.Error{Op: "table transact", Kind: storage.Throttled, RetryAfter: time.Second}
	p.faults.Set(func(storagetest.Call) storagetest.Fault {
		return storagetest.Fault{Kind: storagetest.FailBefore, Err: own}
	})
	if err := p.queue.Put(t.Context(), "t", 0); !errors.Is(err, own) {
		t.Errorf("put: %v, want %v", err, own)
	}

	if _, err := p.table.Get(t.Context(), "p", "k"); !errors.Is(err, own) {
		t.Errorf("get: %v, want %v", err, own)
	}
}

func TestFaults_Once(t *testing.T) {
	t.Parallel()
	p := newPorts(t)
	p.faults.Once(isOp("queue Put"), storagetest.Fault{Kind: storagetest.FailBefore})
	p.faults.Once(isOp("queue Put"), storagetest.Fault{Kind: storagetest.FailAfter})
	kinds := []storage.Kind{storage.Ambiguous, storage.Unavailable}
	for i := range 3 {
		err := p.queue.Put(t.Context(), "t", 0)
		if i < 2 && !storage.Is(err, kinds[i]) || i == 2 && err != nil {
			t.Errorf("put %d: got %v, want two faults, and then none", i, err)
		}
	}

	p.faults.Once(isOp("queue Put"), storagetest.Fault{Kind: storagetest.FailBefore})
	p.faults.Set(nil)
	requireNoError(t, p.queue.Put(t.Context(), "t", 0))
}

func TestFaults_Call(t *testing.T) {
	t.Parallel()
	p := newPorts(t)
	var calls []storagetest.Call
	p.faults.Set(func(c storagetest.Call) storagetest.Fault {
		calls = append(calls, c)
		p.faults.Release() // must not deadlock
		return storagetest.Fault{}
	})

	a := p.faults.As("a").Table(p.Table())
	tags, err := a.Transact(t.Context(), "p", []storage.Op{{Kind: storage.Insert, Key: "k"}})
	if err != nil || len(tags) != 1 || tags[0] == "" {
		t.Fatalf("unbroken: %v, %v, want 1 tag, an ETag and no error", tags, err)
	}

	_, err = p.faults.As("b").Table(p.Table()).Get(t.Context(), "p", "k")
	requireNoError(t, err)
	requireNoError(t, p.leases.Acquire(t.Context(), "1.0", holder, time.Minute))
	requireNoError(t, p.leases.Renew(t.Context(), "1.0", holder))
	want := []storagetest.Call{
		{Actor: "a", Port: "table", Op: "Transact", Partition: "p"},
		{Actor: "b", Port: "table", Op: "Get", Partition: "p", Key: "k"},
		{Port: "leases", Op: "Acquire", Key: "1.0"}, {Port: "leases", Op: "Renew", Key: "1.0"},
	}
	if len(calls) != len(want) {
		t.Fatalf("%d calls, want %v", len(calls), len(want))
	}

	for i, c := range calls {
		w := want[i]
		if c.Actor != w.Actor || c.Port != w.Port || c.Op != w.Op || c.Partition != w.Partition ||
			c.Key != w.Key {
			t.Errorf("call %d: %+v, want %+v", i, c, w)
		}
	}

	if len(calls[0].Ops) != 1 || calls[0].Ops[0].Key != "k" {
		t.Errorf("operations %+v, want 1 Op and Key k", calls[0].Ops)
	}
}

func requireNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A patient table repeats reads that find storage unavailable. It does not repeat other errors, nor
// writes.
func TestPatient(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		op, kind string
		do       func(context.Context, storage.Table) error
		tries    int
	}{
		"Get": {"Get", "away", func(ctx context.Context, table storage.Table) error {
			_, err := table.Get(ctx, "p", "k")
			return err
		}, 4},
		"Range": {"Range", "away", func(ctx context.Context, table storage.Table) error {
			_, err := table.Range(ctx, storage.Query{Partition: "p"})
			return err
		}, 4},
		"Missing": {"Get", "", func(ctx context.Context, table storage.Table) error {
			if _, err := table.Get(ctx, "p", "missing"); !storage.Is(err, storage.NotFound) {
				return fmt.Errorf("got %w, want NotFound", err)
			}
			return nil
		}, 1},
		"Write": {"Transact", "away", func(ctx context.Context, table storage.Table) error {
			ops := []storage.Op{{Kind: storage.Insert, Key: "l", Values: map[string]any{"V": "1"}}}
			if _, err := table.Transact(ctx, "p", ops); !storage.Is(err, storage.Unavailable) {
				return fmt.Errorf("got %w, want Unavailable", err)
			}
			return nil
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPorts(t)
				ops := []storage.Op{{Kind: storage.Insert, Key: "k",
					Values: map[string]any{"V": "1"}}}
				_, err := p.table.Transact(t.Context(), "p", ops)
				requireNoError(t, err)

				tries := 0
				p.faults.Set(func(call storagetest.Call) storagetest.Fault {
					if call.Op != c.op {
						return storagetest.Fault{}
					}

					tries++
					if c.kind == "away" && tries < 4 {
						return storagetest.Fault{Kind: storagetest.FailBefore}
					}

					return storagetest.Fault{}
				})

				requireNoError(t, c.do(t.Context(), storagetest.Patient(p.table)))
				if tries != c.tries {
					t.Errorf("got %d tries, want %d", tries, c.tries)
				}
			})
		})
	}
}

func TestPatient_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPorts(t)
		p.faults.Set(func(storagetest.Call) storagetest.Fault {
			return storagetest.Fault{Kind: storagetest.FailBefore}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()

		if _, err := storagetest.Patient(p.table).Get(ctx, "p", "k"); !storage.Is(err,
			storage.Unavailable) {
			t.Errorf("got %v, want an error of kind Unavailable", err)
		}
	})
}
