package app

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/settings"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/ticket"
	"weir/internal/wake"
	"weir/internal/weir"
)

// If delivery.instances is ProcessInstance, no method of wake.Waker makes this instance read a
// lane. Ring and Wake enqueue a ticket instead. One ticket is enough for all calls within two
// seconds (holderLingers).
func TestWaker(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		instances string
		readsLane bool
		// wanted number of tickets after 50 calls within a second, by called method
		tickets map[string]int
	}{
		"Any": {settings.AnyInstance, true, map[string]int{"ring": 1, "wake": 0, "offer": 1,
			"abandoned": 1}},
		"Process": {settings.ProcessInstance, false, map[string]int{"ring": 1, "wake": 1,
			"offer": 1, "abandoned": 1}},
	} {
		for called, want := range c.tickets {
			t.Run(name+" "+called, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					account, reads := memory.New(time.Now), atomic.Int64{}
					faults := storagetest.NewFaults()
					faults.Set(
						func(storagetest.Call) storagetest.Fault {
							reads.Add(1)
							return storagetest.Fault{}
						})

					store := &lane.Store{Table: account.Table(), Lanes: 1, Now: time.Now}
					if err := store.Open(t.Context()); err != nil {
						t.Fatal(err)
					}

					store.Table = faults.Table(account.Table())
					a := &App{settings: settings.Default(), log: slog.New(slog.DiscardHandler)}
					a.settings.Delivery.Instances = c.instances
					queue := account.Queue("tickets")
					tickets := ticket.New(a.ticketConfig(store, queue))
					drainer := drain.New(drain.Config{Store: store, Leases: account.Leases(),
						Tickets: tickets, Lease: 15 * time.Second, Now: time.Now, Log: a.log})
					waker := wake.Waker{Drainer: drainer, Tickets: tickets,
						TicketsOnly: a.settings.DeliversByTicket()}
					appender := newAppender(a, store, waker)

					for range 50 {
						map[string]func(){
							"ring": func() { waker.Ring(0) },
							"wake": func() { waker.Wake(0) },
							"offer": func() {
								waker.Offer(0, []weir.Message{{}})
								waker.Filed().Ring(0)
							},
							"abandoned": func() { // by a caller that gave up
								waker.Offer(0, []weir.Message{{}})
								appender.OnWake(0)
							},
						}[called]()

						time.Sleep(20 * time.Millisecond)
					}

					tickets.Wait(t.Context())
					if n, err := queue.Length(t.Context()); n != int64(want) || err != nil {
						t.Errorf("got %d tickets (%v), want %d", n, err, want)
					}

					if reads := reads.Load(); (reads > 0) != c.readsLane {
						t.Errorf(
							"got %d requests to the table by this instance, want at least one: %v",
							reads,
							c.readsLane)
					}

					if err := drainer.Close(t.Context()); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// goneTable is a table that was removed.
type goneTable struct{}

var errGone = &storage.Error{Op: "table", Kind: storage.Unavailable, Index: -1,
	Err: storage.ErrGone}

func (goneTable) Get(context.Context, string, string) (storage.Row, error) {
	return storage.Row{}, errGone
}
func (goneTable) Range(context.Context, storage.Query) (storage.Page, error) {
	return storage.Page{}, errGone
}
func (goneTable) Transact(context.Context, string, []storage.Op) ([]storage.ETag, error) {
	return nil, errGone
}

func TestWatchedTable_EndsTheProcessIfTheTableIsGone(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(storage.Table) error{
		"Get": func(table storage.Table) error {
			_,
				err := table.Get(t.Context(), "p", "k")
			return err
		},
		"Range": func(table storage.Table) error {
			_, err := table.Range(t.Context(), storage.Query{Partition: "p"})
			return err
		},
		"Transact": func(table storage.Table) error {
			_,
				err := table.Transact(t.Context(), "p", nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(&App{}, time.Now())
			for range 3 { // at the second and third call, the process already ends
				if err := call(watchedTable{goneTable{}, s.endWith}); !storage.Is(err,
					storage.Unavailable) {
					t.Errorf("got %v, want Unavailable", err)
				}
			}

			select {
			case err := <-s.fatal:
				if !errors.Is(err, lane.ErrReplaced) {
					t.Errorf("the process ends with %v, want %v", err, lane.ErrReplaced)
				}
			default:
				t.Errorf("the process goes on, want its end with %v", lane.ErrReplaced)
			}
		})
	}

	s := newServer(&App{}, time.Now())
	if _, err := (watchedTable{memory.New(time.Now).Table(), s.endWith}).Get(t.Context(), "p", "k"); !storage.Is(err,
		storage.NotFound) || len(s.fatal) != 0 {
		t.Errorf("a row that does not exist: got %v and %d ends of the process, want NotFound and no end", err,
			len(s.fatal))
	}
}
