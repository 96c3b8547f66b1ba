package drain

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/weir"
)

const (
	// ripeBody is the size up to which bodies of released messages are fetched ahead.
	ripeBody = 256 << 10
	// keptBytes bounds the bodies in memory of released messages that wait. The others are
	// fetched while messages are sent.
	keptBytes = 4 << 20
	// keptEntries bounds the messages in memory without their bodies: beyond it each is read
	// again when it is sent.
	keptEntries = 4000
)

// ripe is a message that was read and falls due.
type ripe struct {
	due   lane.DueTime
	entry *lane.Entry
	place int64 // in the log, before which it goes; it may have to give way to what was sent since
}

// ripened is the answer of a read of messages that fall due.
type ripened struct {
	control lane.Control
	asked   time.Time
	entries []ripe
	gone    []lane.DueTime // cancelled or moved
	took    time.Duration
	err     error
}

// ripen begins to read messages that fall due, and looks for their places.
func (r *run) ripen(ctx context.Context, dues []lane.DueTime) {
	answer, low, room := make(chan ripened, 1), r.taken, r.bodyRoom()
	room.bytes /= maxReading // the others have their share
	r.releases.reading = append(r.releases.reading, answer)
	go func() {
		p := ripened{asked: r.Now()}
		p.err = r.readDue(ctx, dues, &room, &p)
		p.took = r.Now().Sub(p.asked)
		if p.err == nil {
			p.err = r.findPlaces(ctx, &p, low)
		}
		answer <- p
		r.wakeRun()
	}()
}

// readDue reads the lane's control rows and the messages, as far as they are scheduled for
// these moments still.
func (r *run) readDue(ctx context.Context, dues []lane.DueTime, room *bodyRoom, p *ripened) error {
	var found map[int64]*lane.Entry
	group, reading := errgroup.WithContext(ctx)
	group.Go(func() (err error) { p.control, err = r.Store.ReadControl(reading, r.lane); return err })
	group.Go(func() (err error) { found, err = r.Store.ReadDueMessages(reading, r.lane, dues); return err })
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
		p.entries = append(p.entries, ripe{due: d, entry: e})
		if e.Message.Size > ripeBody || !room.take(e) {
			e.DropBody()
			continue
		}
		group.Go(func() error { return r.fetchBody(reading, e) })
	}
	return group.Wait()
}

// fetchBody fetches a body ahead. If that fails, the body is fetched when its message is sent.
func (r *run) fetchBody(ctx context.Context, e *lane.Entry) error {
	err := r.Store.LoadBody(ctx, e)
	if storage.Is(err, storage.NotFound) {
		return nil
	}
	return err
}

// findPlaces looks for the places in the log before which messages go. No message from low on was
// sent; 0 = that is not known, and the place is the end of the log.
func (r *run) findPlaces(ctx context.Context, p *ripened, low int64) error {
	end, now := p.control.Head.Next, r.Now()
	for i := range p.entries {
		e := &p.entries[i]
		e.place = end
		if low == 0 || !e.due.At.Before(now) {
			continue
		}
		place, err := r.filedBy(ctx, e.due.At, low, end)
		if err != nil {
			return err
		}
		e.place = min(max(place, e.due.Seq+1), max(end, low))
	}
	return nil
}

// bodyRoom is the room in memory for messages that wait.
type bodyRoom struct{ entries, bytes int }

// bodyRoom returns the room that is left.
func (r *run) bodyRoom() bodyRoom {
	room := bodyRoom{keptEntries, keptBytes}
	for _, b := range r.blocks {
		if b.First != nil {
			room.count(b.First)
		}
		for _, e := range b.Rest {
			room.count(e)
		}
	}
	return room
}

// count takes the room of a message that is in memory already.
func (room *bodyRoom) count(e *lane.Entry) {
	room.entries--
	if e.HasBody() {
		room.bytes -= e.Message.Size
	}
}

// take takes room for a body, and reports whether there was any.
func (room *bodyRoom) take(e *lane.Entry) bool {
	if room.bytes < e.Message.Size {
		return false
	}
	room.bytes -= e.Message.Size
	return true
}

// keep returns the message as far as it may stay in memory: with its body, without, or nil.
func (room *bodyRoom) keep(e *lane.Entry) *lane.Entry {
	if room.entries <= 0 {
		return nil
	}
	room.entries--
	if e.HasBody() && !room.take(e) {
		e.DropBody()
	}
	return e
}

// ripenHeld fetches the message and body of the next retry, one at a time, the earliest first.
// Among versions that supersede the choice needs the whole line, when its time has come. Nothing
// is sent meanwhile, so it fetches only if there is time.
func (r *run) ripenHeld(ctx context.Context) error {
	now := r.Now()
	if stir := r.nextStir(); !stir.IsZero() && stir.Before(now.Add(r.lead.length())) {
		return nil
	}
	b := r.blocks.due(now.Add(lane.DueLead), func(b *lane.KeyBlock) bool {
		return b.First == nil && b.NextAt.After(now) && !r.keyPaused(b.KeyHash, b.NextAt) && !r.isShut(b.KeyHash)
	})
	if b == nil || r.kept() >= keptMost {
		return nil
	}
	line, err := r.Store.ReadHeld(ctx, r.lane, b.ID, 1)
	if err != nil {
		return err
	}
	e, err := r.Store.ReadMessage(ctx, r.lane, line[0].Seq)
	if err != nil {
		return err
	}
	b.First = e
	if e.Message.Size > ripeBody {
		return nil
	}
	return r.fetchBody(ctx, e)
}
