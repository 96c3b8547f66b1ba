package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/lane/rows"
	"weir/internal/lane/transfer"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is one of the two stores, with the faults of the process that copies.
type place struct {
	name    string
	account *memory.Account
}

func newPlace(name string) place { return place{name, memory.New(time.Now)} }

func (p place) store(faults *storagetest.Faults) transfer.Store {
	f := faults.As(p.name)
	nothing := func(context.Context) error { return nil }
	return transfer.Store{Name: p.name, Table: f.Table(p.account.Table()), Partitions: p.account,
		Bodies: f.Blobs(p.account.Blobs()), Leases: f.Leases(p.account.Leases()),
		Inbox:    f.Files(p.account.Files("inbox")),
		Accepted: f.Files(p.account.Files("accepted")),
		Rejected: f.Files(p.account.Files("rejected")),
		Ensure:   nothing, EnsureFiles: nothing}
}

func newMover(from, to place, faults *storagetest.Faults) transfer.Mover {
	return transfer.Mover{From: from.store(faults), To: to.store(faults), Lease: 15 * time.Second,
		Now: time.Now, Progress: func(string) {}, Log: lanetest.Quiet}
}

func move(t *testing.T, from, to place) (transfer.Report, error) {
	t.Helper()
	return newMover(from, to, storagetest.NewFaults()).Run(t.Context())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fill puts messages with small and large bodies into a store, and rows and files of other
// packages.
func fill(t *testing.T, p place) *lane.Store {
	t.Helper()
	store := &lane.Store{Table: p.account.Table(), Bodies: p.account.Blobs(), Lanes: 3,
		Now: time.Now}
	must(t, store.Open(t.Context()))
	appender := lane.NewAppender(store, lanetest.Quiet)
	for i := range 12 {
		body := fmt.Sprintf("<a>%d</a>", i)
		if i%4 == 0 {
			body = randomText(200_000)
		}

		m := weir.Message{Contract: "article", Key: fmt.Sprintf("/%d", i%5),
			ContentType: "application/xml", Body: []byte(body), Size: len(body)}
		if i%3 == 0 {
			m.DueAt = time.Now().Add(time.Duration(i) * time.Hour)
		}

		_, err := appender.Append(t.Context(), m, fmt.Sprint("idem", i))
		must(t, err)
	}

	insert := func(partition, key string, values map[string]any) {
		_, err := p.account.Table().Transact(t.Context(), partition,
			[]storage.Op{{Kind: storage.Upsert, Key: key, Values: values}})
		must(t, err)
	}

	insert("audit", "a", map[string]any{"Bytes": []byte{0, 1}, "Float": 1.5, "Bool": true,
		"Empty": "", "Time": time.Now().UTC().Truncate(100)})
	insert(rows.MetaPartition, rows.ForgottenKey,
		map[string]any{"Day": "2026-01-01", "Marker": "of the source"})
	insert(rows.MetaPartition, "upkeep_bodies", map[string]any{"Marker": "of the source"})
	for i := range 250 {
		insert("schedules", fmt.Sprintf("s%03d", i), map[string]any{"N": int64(i)})
	}

	must(t, p.account.Files("accepted").Write(t.Context(), "f", "text/xml",
		map[string]string{"k": "v"}, strings.NewReader("<f/>")))

	return store
}

func randomText(n int) string {
	text := make([]byte, n)
	for i := range text {
		text[i] = byte('a' + rand.IntN(26))
	}

	return string(text)
}

// content has everything in a store, by place and name.
type content map[string]any

func read(t *testing.T, p place) content {
	t.Helper()
	all := content{}
	must(t, p.account.Partitions(t.Context(), func(name string) error {
		for row, err := range rows.Scan(t.Context(), p.account.Table(),
			storage.Query{Partition: name}) {
			must(t, err)
			all[name+"|"+row.Key] = row.Values
		}
		return nil
	}))

	page, err := p.account.Blobs().List(t.Context(), "", "")
	must(t, err)

	for _, info := range page.Infos {
		data, err := p.account.Blobs().Get(t.Context(), info.Name)
		must(t, err)
		all["blob|"+info.Name] = fmt.Sprint(info.Marked, string(data))
	}

	return all
}

// ownColumns has the columns that a move changes, by the key of their rows.
var ownColumns = map[string][]string{"!head": {"Touched"}, "!tail": {"Fence", "Nonce", "Commit"},
	"lanes": {"Used"}}

// wantMoved checks that the target has what the source had before the move, except what is
// storage's own.
func wantMoved(t *testing.T, before content, to place) {
	t.Helper()
	got := read(t, to)
	for name, want := range before {
		values, isRow := want.(map[string]any)
		if isRow {
			delete(values, "Marker")
			for _, v := range []map[string]any{values, asRow(got[name])} {
				for _, column := range ownColumns[name[strings.Index(name, "|")+1:]] {
					delete(v, column)
				}
			}
		}

		if !reflect.DeepEqual(got[name], want) {
			t.Errorf("%s: got %.200v, want %.200v", name, got[name], want)
		}

		delete(got, name)
	}

	for name, value := range got {
		t.Errorf("the target has %s, want nothing more: %.200v", name, value)
	}
}

func asRow(v any) map[string]any {
	values, _ := v.(map[string]any)
	return values
}

// wantNotServed checks that no process can open a store.
func wantNotServed(t *testing.T, p place) {
	t.Helper()
	store := &lane.Store{Table: p.account.Table(), Bodies: p.account.Blobs(), Lanes: 3,
		Now: time.Now}
	if err := store.Open(t.Context()); !errors.Is(err, lane.ErrMoved) {
		t.Errorf("open %s: got %v, want ErrMoved", p.name, err)
	}
}

func wantServed(t *testing.T, p place) *lane.Store {
	t.Helper()
	store := &lane.Store{Table: p.account.Table(), Bodies: p.account.Blobs(), Lanes: 3,
		Now: time.Now}
	if err := store.Open(t.Context()); err != nil {
		t.Errorf("open %s: got %v, want no error", p.name, err)
	}

	return store
}

func TestRun_MovesEverything(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		from, to := newPlace("folder"), newPlace("azure")
		fill(t, from)
		before := read(t, from)
		r, err := move(t, from, to)
		must(t, err)

		if r.Bodies.Count != 3 || r.Files.Count != 1 || r.Rows.Count < 280 ||
			len(r.Rows.Hash) != 64 {
			t.Errorf("got %+v, want 3 bodies, 1 file and all rows", r)
		}

		if want := storedBytes(t, from); r.Files.Bytes != int64(len("<f/>")) ||
			r.Bodies.Bytes != want {
			t.Errorf("got %d bytes of files and %d of bodies, want 4 and %d", r.Files.Bytes,
				r.Bodies.Bytes, want)
		}

		wantMoved(t, before, to)
		wantNotServed(t, from)
		wantServed(t, to)
		if _, err := move(t, from, to); !errors.Is(err, lane.ErrMoved) {
			t.Errorf("a second copy: got %v, want ErrMoved", err)
		}

		if err := newMover(from, to, storagetest.NewFaults()).Undo(t.Context()); !errors.Is(err,
			transfer.ErrTooLate) {
			t.Errorf("undo: got %v, want ErrTooLate", err)
		}

		back := newPlace("folder 2")
		_, err = move(t, to, back)
		must(t, err)
		wantMoved(t, before, back)
		wantServed(t, back)
	})
}

// storedBytes returns the bytes of all blobs of a store.
func storedBytes(t *testing.T, p place) (sum int64) {
	t.Helper()
	page, err := p.account.Blobs().List(t.Context(), "", "")
	must(t, err)
	for _, info := range page.Infos {
		data, err := p.account.Blobs().Get(t.Context(), info.Name)
		must(t, err)
		sum += int64(len(data))
	}

	return sum
}

// killAt lets a process die before its call number n: this call and all later ones are never done.
func killAt(n int, cancel func()) (faults *storagetest.Faults, calls func() int) {
	var mu sync.Mutex
	count := 0
	faults = storagetest.NewFaults()
	faults.Set(func(storagetest.Call) storagetest.Fault {
		mu.Lock()
		defer mu.Unlock()
		count++
		if count >= n {
			cancel()
			return storagetest.Fault{Kind: storagetest.FailBefore}
		}

		return storagetest.Fault{}
	})

	return faults, func() int {
		mu.Lock()
		defer mu.Unlock()
		return count
	}
}

// A copy is killed before each of its calls, and continued. At each moment at most one of the two
// stores can be opened, and at the end the target has everything once.
func TestRun_KilledAtAnyCall(t *testing.T) {
	t.Parallel()
	for n, isOver := 1, false; !isOver; n++ {
		if testing.Short() && n > 10 && n%7 != 0 {
			continue
		}

		t.Run(fmt.Sprint(n), func(t *testing.T) {
			lanetest.SimulateHere(t, func(t *testing.T) {
				from, to := newPlace("folder"), newPlace("azure")
				fill(t, from)
				before := read(t, from)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				faults, calls := killAt(n, cancel)
				_, err := newMover(from, to, faults).Run(ctx)
				isOver = err == nil && calls() < n
				wantOneServed(t, from, to)

				if !isOver {
					_, err = move(t, from, to)
				}

				if err != nil && !errors.Is(err, lane.ErrMoved) {
					t.Fatalf("the second run: %v", err)
				}

				wantMoved(t, before, to)
				wantNotServed(t, from)
				wantServed(t, to)
			})
		})
	}
}

// wantOneServed checks that at most one of two stores can be opened. An empty store does not count.
func wantOneServed(t *testing.T, from, to place) {
	t.Helper()
	open := 0
	for _, p := range []place{from, to} {
		record, err := epochs.Read(t.Context(), p.account.Table())
		if err == nil && lane.CheckNotMoved(record) == nil {
			open++
		}
	}

	if open > 1 {
		t.Errorf("both stores can be opened, want one at most")
	}
}

// A copy that was killed is given up before each of its calls: the source goes on, and the half
// copy is never opened.
func TestUndo_KilledAtAnyCall(t *testing.T) {
	t.Parallel()
	for n, isOver := 1, false; !isOver; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			lanetest.SimulateHere(t, func(t *testing.T) {
				from, to := newPlace("folder"), newPlace("azure")
				fill(t, from)
				killed, kill := context.WithCancel(t.Context())
				defer kill()
				half, _ := killAt(120, kill)
				if _, err := newMover(from, to, half).Run(killed); err == nil {
					t.Fatal("the copy was not killed")
				}

				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				faults, calls := killAt(n, cancel)
				isOver = newMover(from, to, faults).Undo(ctx) == nil && calls() < n
				must(t, newMover(from, to, storagetest.NewFaults()).Undo(t.Context()))
				wantServed(t, from)
				wantNotServed(t, to)
				if _, err := move(t, from, to); !errors.Is(err, transfer.ErrNotEmpty) {
					t.Errorf("a copy to the half copy: got %v, want ErrNotEmpty", err)
				}
			})
		})
	}
}

// A copy is killed after the source has nothing any more, and before the target can be used. It can
// no longer be given up: the same command opens the target, and each refusal says so.
func TestRun_KilledBeforeTheTargetIsOpened(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		from, to := newPlace("folder"), newPlace("azure")
		fill(t, from)
		before := read(t, from)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		faults := storagetest.NewFaults()
		faults.Set(func(c storagetest.Call) storagetest.Fault {
			record, err := epochs.Read(context.Background(), from.account.Table())
			if err != nil || record.Step != epochs.StepLeft {
				return storagetest.Fault{}
			}
			cancel()
			return storagetest.Fault{Kind: storagetest.FailBefore}
		})

		if _, err := newMover(from, to, faults).Run(ctx); err == nil {
			t.Fatal("the copy was not killed")
		}

		const remedy = "run the same"
		err := newMover(from, to, storagetest.NewFaults()).Undo(t.Context())
		if !errors.Is(err, transfer.ErrTooLate) || !strings.Contains(err.Error(), remedy) {
			t.Errorf("undo: got %v, want ErrTooLate with %q", err, remedy)
		}

		for _, p := range []place{from, to} {
			wantNotServed(t, p)
			record, err := epochs.Read(t.Context(), p.account.Table())
			must(t, err)
			if err := lane.CheckNotMoved(record); !strings.Contains(fmt.Sprint(err), remedy) {
				t.Errorf("%s: got %v, want an error with %q", p.name, err, remedy)
			}
		}

		_, err = move(t, from, to)
		must(t, err)
		wantMoved(t, before, to)
		wantServed(t, to)
	})
}

// A transaction of a killed copy that storage does later changes nothing in the target that is in
// use.
func TestRun_LateTransactionsDoNothing(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		from, to := newPlace("folder"), newPlace("azure")
		fill(t, from)
		killed, kill := context.WithCancel(t.Context())
		faults := storagetest.NewFaults()
		faults.Once(func(c storagetest.Call) bool {
			isMatch := c.Actor == "azure" && c.Op == "Transact" && c.Partition == "1.1" &&
				len(c.Ops) > 2
			if isMatch {
				kill()
			}
			return isMatch
		}, storagetest.Fault{Kind: storagetest.LateHeld})

		if _, err := newMover(from, to, faults).Run(killed); err == nil {
			t.Fatal("the copy was not killed")
		}

		_, err := move(t, from, to)
		must(t, err)
		store := wantServed(t, to)
		appendOne(t, store)
		head := read(t, to)["1.1|!head"]
		faults.Release()
		faults.Wait()
		if got := read(t, to)["1.1|!head"]; !reflect.DeepEqual(got, head) {
			t.Errorf("after the late transaction: got head %v, want %v", got, head)
		}
	})
}

// appendOne appends a message to the lane 1.
func appendOne(t *testing.T, store *lane.Store) {
	t.Helper()
	for i := 0; ; i++ {
		key := fmt.Sprint("/new/", i)
		if store.LaneOf(key) != 1 {
			continue
		}

		_, err := lane.NewAppender(store, lanetest.Quiet).Append(t.Context(),
			weir.Message{Contract: "article", Key: key, Body: []byte("<n/>"), Size: 4}, "")
		must(t, err)

		return
	}
}

func TestRun_Refuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(t *testing.T, from, to place)
		want    string
	}{
		"EmptySource": {func(*testing.T, place, place) {}, "nothing is stored there"},
		"UsedTarget": {func(t *testing.T, from, to place) { fill(t, from); fill(t, to) },
			"azure: it is not empty"},
		"OtherRowInTarget": {func(t *testing.T, from, to place) {
			fill(t, from)
			_, err := to.account.Table().Transact(t.Context(), "p",
				[]storage.Op{{Kind: storage.Insert, Key: "k"}})
			must(t, err)
		}, "azure: it is not empty"},
		"BodyInTarget": {func(t *testing.T, from, to place) {
			fill(t, from)
			must(t, to.account.Blobs().Put(t.Context(), "b", nil))
		}, "azure: it is not empty"},
		"FileInInbox": {func(t *testing.T, from, _ place) {
			fill(t, from)
			must(t, from.account.Files("inbox").Write(t.Context(), "new.xml", "", nil,
				strings.NewReader("<a/>")))
		}, "the inbox has the file new.xml:"},
		"ManyFilesInInbox": {func(t *testing.T, from, _ place) {
			fill(t, from)
			for i := range 1001 {
				must(t, from.account.Files("inbox").Write(t.Context(), fmt.Sprintf("%04d", i), "", nil,
					strings.NewReader("<a/>")))
			}
		}, "the inbox has at least 1000 files, such as 0000:"},
		"ChangeOfLanes": {func(t *testing.T, from, _ place) {
			fill(t, from)
			_, err := epochs.Update(t.Context(), from.account.Table(),
				func(r *epochs.Record) error {
					r.Step = epochs.StepDrain
					return nil
				})

			must(t, err)
		}, "finish `weir lanes` first"},
		"OtherTarget": {func(t *testing.T, from, _ place) {
			fill(t, from)
			ctx, cancel := context.WithCancel(t.Context())
			faults, _ := killAt(120, cancel)
			if _, err := newMover(from, newPlace("elsewhere"), faults).Run(ctx); err == nil {
				t.Fatal("the copy was not killed")
			}
		}, "being copied to another store"},
		"RunningProcess": {func(t *testing.T, from, _ place) {
			fill(t, from)
			const id = "0f8fad5b-d9cb-469f-a165-70867728950e"
			leases := from.account.Leases()
			must(t, leases.Acquire(t.Context(), "lane-1.2", id, time.Minute))
			ticker, ended := time.NewTicker(20*time.Second), t.Context().Done()
			go func() {
				for {
					select {
					case <-ticker.C:
						_ = leases.Renew(context.Background(), "lane-1.2", id)
					case <-ended:
						return
					}
				}
			}()
		}, "lane 2: folder: a process still works on it"},
	} {
		t.Run(name, func(t *testing.T) {
			lanetest.Simulate(t, func(t *testing.T) {
				from, to := newPlace("folder"), newPlace("azure")
				c.prepare(t, from, to)
				_, err := move(t, from, to)
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want an error with %q", err, c.want)
				}
			})
		})
	}
}

// An account without the containers of files has none: the copy does not wait for them.
func TestRun_WithoutContainersOfFiles(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		from, to := newPlace("azure"), newPlace("folder")
		fill(t, from)
		faults := storagetest.NewFaults()
		faults.Set(func(c storagetest.Call) storagetest.Fault {
			if c.Actor == "azure" && c.Port == "files" {
				return storagetest.Fault{Kind: storagetest.FailBefore,
					Err: &storage.Error{Op: c.Op, Kind: storage.Unavailable, Index: -1,
						Err: storage.ErrGone}}
			}
			return storagetest.Fault{}
		})

		began := time.Now()
		r, err := newMover(from, to, faults).Run(t.Context())
		if took := time.Since(began); err != nil || r.Files.Count != 0 || took > time.Second {
			t.Errorf("got %+v, %v after %s, want no files and no wait", r, err, took)
		}
	})
}

// If a process changes the source during the copy, the comparison finds it, and the next run copies
// it.
func TestRun_FindsAChangeOfTheSource(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		from, to := newPlace("folder"), newPlace("azure")
		fill(t, from)
		m := newMover(from, to, storagetest.NewFaults())
		m.Progress = func(text string) {
			if text == "Comparing." {
				_, err := from.account.Table().Transact(t.Context(), "audit",
					[]storage.Op{{Kind: storage.Delete, Key: "a"},
						{Kind: storage.Insert, Key: "b"}})
				must(t, err)
			}
		}
		if _, err := m.Run(t.Context()); !errors.Is(err, transfer.ErrChanged) {
			t.Errorf("got %v, want ErrChanged", err)
		}

		wantNotServed(t, to)
		before := read(t, from)
		_, err := move(t, from, to)
		must(t, err)
		got := read(t, to)
		if _, isThere := got["audit|b"]; !isThere || got["audit|a"] != nil ||
			len(got) != len(before) {
			t.Errorf("got %d rows and bodies, want the %d of the source", len(got), len(before))
		}
	})
}
