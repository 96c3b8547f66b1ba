package simulation_test

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"weir/internal/lane"
	"weir/internal/testkit/linear"
	"weir/internal/weir"
)

// The checker records the history of each key as upstreams, readers and the CMS see it. internal/testkit/linear checks
// the history with a public library.

// written is one write at the CMS in the history.
type written struct {
	r     *request
	ended time.Time // zero = the write has not ended yet
	late  bool      // before the request ended, another process had the lane, or the sender's clock jumped
	whole bool      // the sender got the whole answer, 200
	torn  bool      // the sender got only the beginning of the answer, 200
}

// chronicle gathers a run's history.
type chronicle struct {
	linear.History
	writes   []*written
	answered map[weir.ID]*submission // submissions whose post was answered, by the id in the answer
}

// The name of a mutant ends with "outside" if only the check of the histories may catch it. With such a mutant the
// checker itself reports nothing.
const outside = ", seen from outside"

// isModelled reports whether the model describes a message's key. It describes neither skipped failures nor versions
// that supersede, nor schedules.
func isModelled(m weir.Message) bool { return !m.Skip && !m.Supersede && m.Key != recurringKey }

func nameOf(s *submission) string { return fmt.Sprint("message ", s.number) }

// recordPost records an upstream's request and its answer.
func (c *checker) recordPost(s *submission, sent time.Time, r *lane.Receipt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !isModelled(s.message) {
		c.history.Exclude(s.key, "versions, or failures that are skipped")
	}
	if c.w.chains.isOn {
		c.history.Exclude(s.key, "several requests for a message")
	}
	if !s.message.DueAt.IsZero() {
		c.history.Exclude(s.key, "due times")
	}
	var receipt *linear.Receipt
	if r != nil {
		if c.history.answered == nil {
			c.history.answered = map[weir.ID]*submission{}
		}
		c.history.answered[r.Message.ID] = s
		receipt = &linear.Receipt{ID: r.Message.ID.String(), Sequence: r.Message.ID.Seq, Duplicate: r.Duplicate}
	}
	c.history.Posted(s.key, nameOf(s), sent, time.Now(), receipt)
}

// recordWrite records a request at the CMS, and reads the stages of its key's messages. The caller holds mu.
func (c *checker) recordWrite(r *request, late bool) {
	c.history.writes = append(c.history.writes, &written{r: r, late: late})
	if s := c.submissionOfBody(r.body); s != nil && isModelled(s.message) {
		c.recordRead(s.key)
	}
}

// findWrite returns the record of a request. The caller holds mu.
func (c *checker) findWrite(r *request) *written {
	for i := len(c.history.writes) - 1; i >= 0; i-- {
		if c.history.writes[i].r == r {
			return c.history.writes[i]
		}
	}
	return &written{r: r} // the request broke a promise before it could be recorded
}

// submissionOfBody returns the submission whose number is in a body, or nil if there is none.
func (c *checker) submissionOfBody(body string) *submission {
	if n, err := numberOf(body); err == nil && n < len(c.expected) {
		return c.expected[n]
	}
	return nil
}

// recordRead records the stages of a key's messages. If the post of a message was not answered, recordRead includes the
// message only if the CMS got a request of it. The caller holds mu.
func (c *checker) recordRead(key string) {
	var seen []linear.Seen
	for _, f := range c.laneOf(lane.Of(key, c.w.lanes)).log {
		if f.key != key {
			continue
		}
		if s := c.submissionOf(f); s != nil {
			stage := c.stageOf(f)
			if stage == weir.Discarded {
				stage = weir.Dead // for the model a discarded message is dead, because it is not written again either
			}
			seen = append(seen, linear.Seen{Name: nameOf(s), Stage: string(stage)})
		}
	}
	c.history.Read(key, time.Now(), time.Now(), seen...)
}

// submissionOf returns the submission of a row. It returns nil if no request or answer has shown the submission yet.
func (c *checker) submissionOf(f *filed) *submission {
	if f.number >= 0 {
		return c.expected[f.number]
	}
	return c.history.answered[f.id]
}

// concludeHistories reads every message once more at rest, and adds the writes to the histories. The caller holds mu.
func (c *checker) concludeHistories() {
	seen := map[string]bool{}
	for _, s := range c.expected {
		if isModelled(s.message) && !seen[s.key] {
			seen[s.key] = true
			c.recordRead(s.key)
		}
	}
	for _, w := range c.history.writes {
		s := c.submissionOfBody(w.r.body)
		if s == nil || !isModelled(s.message) {
			continue
		}
		begin := linear.Begin{Name: nameOf(s), ID: w.r.id.String(), Sequence: w.r.id.Seq, Fence: w.r.fence,
			Late: w.late}
		c.history.Began(s.key, begin, w.r.began)
		if !w.ended.IsZero() {
			c.history.Ended(s.key, linear.End{Begin: begin, Verdict: w.verdictOf()}, w.ended)
		}
	}
	c.history.Rest(time.Now())
}

func (w *written) verdictOf() linear.Verdict {
	switch {
	case w.r.status == 200 && w.whole:
		return linear.Taken
	case w.r.status == 200 && w.torn:
		return linear.Torn
	case w.r.status == 200:
		return linear.Lost
	}
	return linear.Refused
}

// checkHistory checks the history of each key of a run against the model. If a key breaks the model, its history is
// drawn into build/histories.
func (o *outcome) checkHistory(h *linear.History, name string) {
	if o.violation != nil {
		return
	}
	done, err := h.Check(filepath.Join(moduleRoot(), "build", "histories"), name)
	o.counts.Linearized += done.Keys
	if err != nil {
		o.violation = &violation{"history", err.Error()}
	}
}

// moduleRoot returns the directory of the module. The simulation runs either there or in the directory of its package.
func moduleRoot() string {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return os.TempDir()
}
