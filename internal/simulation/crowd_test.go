package simulation_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
)

// In some runs many messages, the crowd, become due at one time, long after the faults. In these
// runs storage is as slow as a real account, and a partition writes a limited number of rows a
// second. The checker checks that the crowd is sent as fast as the CMS answers, and that no other
// message waits for the crowd.

// drawCrowd draws a crowd for one run in a hundred.
func (s *settings) drawCrowd(d *dice) {
	if d.drawBelow("crowd", 100) != 0 {
		return
	}

	s.crowd, s.lanes, s.messages, s.trouble = 150+d.drawBelow("crowd of", 250),
		1+d.drawBelow("lanes of a crowd", 2),
		15, 20*time.Second
	s.storage = d.drawBetween("storage", 2*time.Millisecond, 12*time.Millisecond)
	s.row = d.drawBetween("row", time.Millisecond, 3*time.Millisecond)
	s.rate, s.atOnce, s.swift, s.operators, s.bulk, s.pauses, s.every, s.scheduled = 0, 0, false,
		0, 0, 0, 0, 0
	s.forgets, s.erasers, s.runs = 0, 0, 0
}

// crowdAt returns the due time of the crowd in a lane; zero = the run has no crowd.
func (w *world) crowdAt(number int) time.Time {
	if w.crowd == 0 {
		return time.Time{}
	}
	return w.started.Add(w.trouble + recovered + 3*time.Minute + time.Duration(number)*time.Microsecond).UTC()
}

// sendCrowd posts the crowd about two minutes before its due time, so that each instance knows of
// the crowd by then. Several messages of the crowd can have the same key. Around the due time
// sendCrowd also posts messages without a due time.
func (w *world) sendCrowd(ctx context.Context) {
	file := func(i int, key string, at time.Time, due bool) {
		s := w.newSubmission(i)
		s.key, s.idem = key, fmt.Sprint("idem", i)
		s.message.Key, s.message.Contract, s.message.Supersede, s.message.Version, s.message.Skip =
			key, "article",
			false, "", false
		if due {
			s.message.DueAt = w.crowdAt(lane.Of(key, w.lanes))
		}

		w.check.expectSubmission(s)
		w.upstream.Go(func() {
			time.Sleep(time.Until(at))
			w.sendUntilAccepted(ctx, fmt.Sprint(i), s)
			w.changeMessage(ctx, s)
		})
	}

	moment := w.crowdAt(0)
	for i := range w.crowd {
		file(w.messages+i, fmt.Sprint("c", w.dice.drawBelow("crowd key", w.crowd)),
			moment.Add(-2*time.Minute+w.dice.drawBetween("crowd filed", 0, 20*time.Second)), true)
	}

	for i := range w.countPlain() {
		file(w.messages+w.crowd+i, fmt.Sprint("plain", i),
			moment.Add(w.dice.drawBetween("plain filed", -time.Second, 5*time.Second)), false)
	}
}

// countPlain returns the number of messages without a due time that are posted around the due time
// of the crowd.
func (w *world) countPlain() int { return min(w.crowd, 50) }

// drawSlowTrip draws the time in which a request gets to slow storage, or in which an answer comes
// back. The time is log-normal, as measured with real accounts.
func (w *world) drawSlowTrip(name string) time.Duration {
	normal := math.Sqrt(-2*math.Log(1-w.dice.drawFloat(name+" far"))) * math.Cos(
		2*math.Pi*w.dice.drawFloat(name+" turn"))
	return time.Duration(float64(w.storage) / 2 * math.Exp(0.45*normal))
}

// rowTurns lets the writes of a partition take turns, because a partition writes a limited number
// of rows a second.
type rowTurns struct {
	mu          sync.Mutex
	byPartition map[string]chan struct{}
}

// writeRows writes n rows of a partition by the function "write", after the writes before. If they
// are written, it lets the time pass that the partition takes for them. In runs in which upstreams
// cancel or reschedule messages it takes no time: there the holder makes more requests.
func (w *world) writeRows(partition string, n int,
	write func() ([]storage.ETag, error)) ([]storage.ETag, error) {
	if w.row == 0 || !w.isCalm() || w.cancels > 0 || w.moves > 0 {
		return write()
	}

	w.rowTurns.mu.Lock()
	if w.rowTurns.byPartition == nil {
		w.rowTurns.byPartition = map[string]chan struct{}{}
	}
	turn := w.rowTurns.byPartition[partition]
	if turn == nil {
		turn = make(chan struct{}, 1)
		w.rowTurns.byPartition[partition] = turn
	}
	w.rowTurns.mu.Unlock()

	turn <- struct{}{}
	defer func() { <-turn }()
	etags, err := write()
	if err == nil {
		time.Sleep(time.Duration(n) * w.row)
	}

	return etags, err
}

const (
	// crowdLate is the largest delay of a crowd's first message. It has room for an earlier request
	// that is still under way.
	crowdLate = punctuality + 60*time.Millisecond
	// crowdIdle limits the time during which the CMS has no request of a lane while the lane's
	// crowd is sent. The limit is a share of the time since the first message of the crowd. The
	// time until a request arrives at the CMS is idle time, too: up to 2 ms for each request. A
	// whole request takes 32 ms on average.
	crowdIdle = 0.1
	// crowdAhead is the largest number of messages that have left the scheduled ones and wait for
	// the CMS, or for the commit of their outcomes.
	crowdAhead = 260
	// plainLag is the longest wait of another message while a crowd is sent. A busy holder looks
	// once a second for messages that other instances have appended. If the lane has got another
	// holder since the message was appended, the checker adds standsAtMost, the longest time for
	// which the lane may stall then.
	plainLag = 1500 * time.Millisecond
)

// crowding is the crowd of a lane, as the checker knows it.
type crowding struct {
	sent  int
	first time.Time
	// idle is the time for which the CMS had no request of the lane, from the first message of the
	// crowd to the last one sent so far. gap is the time without a request after that last message.
	idle, gap time.Duration
}

// checkCrowd checks that the messages of a crowd are sent from their due time on, as fast as the
// CMS answers. It also checks that no other message waits for the crowd.
func (c *checker) checkCrowd(l *laneState, f *filed, r *request) {
	at := c.w.crowdAt(f.id.Lane)
	if at.IsZero() || f.begun || c.disturbed.Add(recovered).After(at) {
		return
	}

	// After crashes the holder writes the position of each message to tail (InFlightSeq) before it
	// sends the message. The time before such a message does not count as idle time, because the
	// holder needs time for the write.
	if isNamed := l.last.Tail.InFlightSeq == f.id.Seq; l.crowd.sent > 0 && !isNamed {
		l.crowd.gap += time.Since(l.busy)
	}

	switch {
	// With cancellations or changed due times the holder makes more requests to storage, so the
	// time is not checked.
	case f.due.Equal(at) && c.w.cancels == 0 && c.w.moves == 0:
		if l.crowd.sent++; l.crowd.sent == 1 {
			l.crowd.first = time.Now()
			if late := r.p.now().Sub(at); late > crowdLate {
				c.addViolation("late",
					"the first of many in lane %d was sent %s after they were due", f.id.Lane, late)
			}
		}

		l.crowd.idle, l.crowd.gap = l.crowd.idle+l.crowd.gap, 0
		if took := time.Since(l.crowd.first); l.crowd.sent%50 == 0 &&
			float64(l.crowd.idle) > crowdIdle*float64(took) {
			c.addViolation("slow",
				"lane %d sent %d that were due at one moment in %s, and nothing for %s of it",
				f.id.Lane, l.crowd.sent, took, l.crowd.idle)
		}

		if l.crowd.sent%50 == 0 {
			if n := len(c.rowsOf(f.id.Lane, "r_")); n > crowdAhead {
				c.addViolation("slow", "%d due messages of lane %d were moved before the CMS was ready",
					n, f.id.Lane)
			}
		}

		c.counts.Crowded++

	case strings.HasPrefix(f.key, "plain"):
		limit := plainLag
		if f.filed.Before(l.takenAt) {
			limit += standsAtMost
		}

		if lag := time.Since(f.filed); lag > limit {
			c.addViolation("slow", "seq %d of lane %d waited %s beside due messages", f.id.Seq,
				f.id.Lane, lag)
		}
	}
}
