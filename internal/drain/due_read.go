package drain

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/lane"
	"weir/internal/panics"
	"weir/internal/weir"
)

// maxPrefetchedBody is the size, in bytes, of the largest body that is fetched before its message is due or retried.
const maxPrefetchedBody = 256 << 10

// dueRead is the result of one read of due messages.
type dueRead struct {
	control lane.Control
	askedAt time.Time
	low     int64 // when the read began, all sent messages had lower sequence numbers; 0 = not known
	entries []readyMessage
	gone    []lane.DueTime // due times of messages that were cancelled or rescheduled
	took    time.Duration  // duration of the read, without the search for positions
	err     error
}

// readDue reads due messages, and finds their positions. The parameter low is the present value of
// duePositions.sentBelow: all messages that were sent have lower sequence numbers; 0 = not known.
func readDue(ctx context.Context, scope laneScope, positions *duePositions, dues []lane.DueTime,
	low int64, room *memoryRoom,
) dueRead {
	p := dueRead{askedAt: scope.now(), low: low}
	p.err = p.readMessages(ctx, scope, dues, room)
	p.took = scope.now().Sub(p.askedAt)
	if p.err == nil {
		p.err = positions.findPositions(ctx, &p)
	}
	return p
}

// readMessages reads the lane's control rows, and the messages that still have the given due times. It also
// fetches the messages' bodies, except large bodies and bodies for which there is no room.
func (p *dueRead) readMessages(ctx context.Context, scope laneScope, dues []lane.DueTime, room *memoryRoom) error {
	var found map[int64]*lane.Entry
	group, reading := errgroup.WithContext(ctx)
	group.Go(panics.Guard(func() (err error) {
		p.control, err = scope.store.ReadControl(reading, scope.lane)
		return err
	}))
	group.Go(panics.Guard(func() (err error) {
		found, err = scope.store.DeliveryState().ReadDueMessages(reading, scope.lane, dues)
		return err
	}))
	if err := group.Wait(); err != nil {
		return err
	}
	group, reading = errgroup.WithContext(ctx)
	for _, d := range dues {
		e := found[d.Seq]
		if e == nil || e.Stage != weir.Scheduled || e.DueTime() != d {
			p.gone = append(p.gone, d)
			continue
		}
		p.entries = append(p.entries, readyMessage{due: d, entry: e})
		if e.Message.Size > maxPrefetchedBody || !room.takeBody(e) {
			e.DropBody()
			continue
		}
		group.Go(panics.Guard(func() error { fetchBody(reading, scope.store, e); return nil }))
	}
	return group.Wait()
}

// fetchBody fetches the body of a message before its attempt. It ignores errors, because the attempt reads the body
// again, and one body that storage does not return must not hold up other messages.
func fetchBody(ctx context.Context, store *lane.Store, e *lane.Entry) { _ = store.LoadBody(ctx, e) }
