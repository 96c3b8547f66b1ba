package simulation_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"weir/internal/lane"
)

// Many messages that become due at one time, long after the faults, with storage as slow as an
// account is. The checks: they keep the CMS's pace, and other messages do not wait for them.

// drawCrowd draws them, for some seeds.
func (s *settings) drawCrowd(d *dice) {
	if d.drawBelow("crowd", 100) != 0 {
		return
	}
	s.crowd, s.lanes, s.messages, s.trouble = 150+d.drawBelow("crowd of", 250), 1+d.drawBelow("lanes of a crowd", 2),
		15, 20*time.Second
	s.storage = d.drawBetween("storage", 2*time.Millisecond, 12*time.Millisecond)
	s.rate, s.atOnce, s.swift, s.operators, s.bulk, s.stopped, s.every, s.scheduled = 0, 0, false, 0, 0, 0, 0, 0
	s.forgets, s.erasers = 0, 0
}

// crowdAt returns their due time in a lane; zero = there are none.
func (w *world) crowdAt(number int) time.Time {
	if w.crowd == 0 {
		return time.Time{}
	}
	return w.started.Add(w.trouble + recovered + 3*time.Minute + time.Duration(number)*time.Microsecond).UTC()
}

// sendCrowd files them, early enough for every instance to know of them, and others about their
// moment, one for each key.
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

// countPlain returns how many messages without a due time are filed about the due time of a crowd.
func (w *world) countPlain() int { return min(w.crowd, 50) }

// drawSlowTrip draws the time of one request to slow storage: log-normal, as measured with accounts.
func (w *world) drawSlowTrip(name string) time.Duration {
	normal := math.Sqrt(-2*math.Log(1-w.dice.drawFloat(name+" far"))) * math.Cos(
		2*math.Pi*w.dice.drawFloat(name+" turn"))
	return time.Duration(float64(w.storage) / 2 * math.Exp(0.45*normal))
}

const (
	// crowdLate is how late the first of a crowd may be: another request may be under way.
	crowdLate = punctuality + 60*time.Millisecond
	// crowdIdle is the share of the time in which the CMS may have nothing of a lane while some
	// of its crowd wait: a request's way to it is up to 2 ms of 32 on average.
	crowdIdle = 0.1
	// plainLag is how long a message that is filed beside a crowd may wait: a busy holder looks each second for
	// messages that other instances have filed. One that was filed before the lane moved also waits for the move,
	// standsAtMost.
	plainLag = 1500 * time.Millisecond
)

// crowding is a lane's crowd as the checker knows it.
type crowding struct {
	sent      int
	first     time.Time
	idle, gap time.Duration // without a request, up to the crowd's last and since
}

// checkCrowd checks that a crowd is sent from its due time on as fast as the CMS takes it, and that
// nothing else waits for that.
func (c *checker) checkCrowd(l *laneState, f *filed, r *request) {
	at := c.w.crowdAt(f.id.Lane)
	if at.IsZero() || f.begun || c.disturbed.Add(recovered).After(at) {
		return
	}
	if l.crowd.sent > 0 {
		l.crowd.gap += time.Since(l.busy)
	}
	switch {
	// to grant wishes takes the time of a few requests to storage
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
