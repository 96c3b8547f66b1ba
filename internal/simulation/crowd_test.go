package simulation_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"weir/internal/lane"
)

// In some seeds many messages, a crowd, become due at one time, long after the faults. Storage is then as slow as a
// real account. The checker checks that the crowd is sent at the CMS's pace, and that other messages do not wait for
// it.

// drawCrowd draws a crowd for some seeds.
func (s *settings) drawCrowd(d *dice) {
	if d.drawBelow("crowd", 100) != 0 {
		return
	}
	s.crowd, s.lanes, s.messages, s.trouble = 150+d.drawBelow("crowd of", 250), 1+d.drawBelow("lanes of a crowd", 2),
		15, 20*time.Second
	s.storage = d.drawBetween("storage", 2*time.Millisecond, 12*time.Millisecond)
	s.rate, s.atOnce, s.swift, s.operators, s.bulk, s.pauses, s.every, s.scheduled = 0, 0, false, 0, 0, 0, 0, 0
	s.forgets, s.erasers = 0, 0
}

// crowdAt returns the due time of the crowd in a lane. The time is zero if the lane has no crowd.
func (w *world) crowdAt(number int) time.Time {
	if w.crowd == 0 {
		return time.Time{}
	}
	return w.started.Add(w.trouble + recovered + 3*time.Minute + time.Duration(number)*time.Microsecond).UTC()
}

// sendCrowd files the crowd so early that every instance knows of it at its due time. The keys are drawn from as many
// keys as the crowd has messages. Around the due time sendCrowd also files messages without a due time.
func (w *world) sendCrowd(ctx context.Context) {
	file := func(i int, key string, at time.Time, due bool) {
		s := w.newSubmission(i)
		s.key, s.idem = key, fmt.Sprint("idem", i)
		s.message.Key, s.message.Contract, s.message.Supersede, s.message.Version, s.message.Skip = key, "article",
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

// countPlain returns the number of messages without a due time that are filed around the due time of the crowd.
func (w *world) countPlain() int { return min(w.crowd, 50) }

// drawSlowTrip draws the time of one request to slow storage. It is log-normal, as measured with real accounts.
func (w *world) drawSlowTrip(name string) time.Duration {
	normal := math.Sqrt(-2*math.Log(1-w.dice.drawFloat(name+" far"))) * math.Cos(
		2*math.Pi*w.dice.drawFloat(name+" turn"))
	return time.Duration(float64(w.storage) / 2 * math.Exp(0.45*normal))
}

const (
	// crowdLate is the largest delay of the first message of a crowd, because another request may be under way.
	crowdLate = punctuality + 60*time.Millisecond
	// crowdIdle is a share of time. While messages of a lane's crowd wait, the CMS may be without a request of the lane
	// for at most this share. An average request takes 32 ms, of which the way to the CMS takes up to 2 ms.
	crowdIdle = 0.1
	// plainLag is the longest wait of a message that is filed beside a crowd: a busy holder looks once a second for
	// messages that other instances have filed. If the lane has moved since the message was filed, the message may also
	// wait for the move, for standsAtMost.
	plainLag = 1500 * time.Millisecond
)

// crowding is the crowd of a lane, as the checker knows it.
type crowding struct {
	sent  int
	first time.Time
	// idle is the time without a request at the CMS between the first message of the crowd and the last one that was
	// sent so far. gap is the time without a request since that last one.
	idle, gap time.Duration
}

// checkCrowd checks that a crowd is sent as fast as the CMS answers, from its due time on, and that no other message
// waits for the crowd.
func (c *checker) checkCrowd(l *laneState, f *filed, r *request) {
	at := c.w.crowdAt(f.id.Lane)
	if at.IsZero() || f.begun || c.disturbed.Add(recovered).After(at) {
		return
	}
	// After crashes a lane may run carefully: the holder then names each message in tail before it sends the message.
	// That takes the time of two commits. The bound on the idle time of the CMS leaves this time out.
	if isNamed := l.last.Tail.InFlightSeq == f.id.Seq; l.crowd.sent > 0 && !isNamed {
		l.crowd.gap += time.Since(l.busy)
	}
	switch {
	// With cancellations or moves the holder also makes a few requests to storage, so the time is not checked.
	case f.due.Equal(at) && c.w.cancels == 0 && c.w.moves == 0:
		if l.crowd.sent++; l.crowd.sent == 1 {
			l.crowd.first = time.Now()
			if late := r.p.now().Sub(at); late > crowdLate {
				c.addViolation("late", "the first of many in lane %d was sent %s after they were due", f.id.Lane, late)
			}
		}
		l.crowd.idle, l.crowd.gap = l.crowd.idle+l.crowd.gap, 0
		if took := time.Since(l.crowd.first); l.crowd.sent%50 == 0 && float64(l.crowd.idle) > crowdIdle*float64(took) {
			c.addViolation("slow", "lane %d sent %d that were due at one moment in %s, and nothing for %s of it",
				f.id.Lane, l.crowd.sent, took, l.crowd.idle)
		}
		c.counts.Crowded++
	case strings.HasPrefix(f.key, "plain"):
		limit := plainLag
		if f.filed.Before(l.takenAt) {
			limit += standsAtMost
		}
		if lag := time.Since(f.filed); lag > limit {
			c.addViolation("slow", "seq %d of lane %d waited %s beside due messages", f.id.Seq, f.id.Lane, lag)
		}
	}
}
