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

// The checker records the history of each key as upstreams, readers and the CMS see it.
// internal/testkit/linear checks the history with a third-party library.

// written is the record of one request to the CMS.
type written struct {
	r     *request
	ended time.Time // zero = the write has not ended yet
	// another process took the lane before the request ended, or the sender's clock jumped
	late  bool
	whole bool // the sender got the whole answer, with status 200
	torn  bool // the sender got only the beginning of the answer, with status 200
}

// chronicle gathers a run's history.
type chronicle struct {
	linear.History
	writes   []*written
	answered map[weir.ID]*submission // submissions whose post was answered, by the id in the answer
}

// outside is the suffix of some mutants' names. Only the comparison with the model of
// internal/testkit/linear is to catch these mutants. In a run with such a mutant the checker
// reports no other violation.
const outside = ", seen from outside"

// isModelled reports whether the model in internal/testkit/linear covers the key of a message. The
// model leaves out keys whose messages have onFailure: skip, keys whose messages have supersede,
// and the keys of the schedules' messages.
func isModelled(m weir.Message) bool {
	return !m.Skip && !m.Supersede && m.Key != recurringKey && m.Key != runsKey
}

func nameOf(s *submission) string { return fmt.Sprint("message ", s.number) }

// recordPost records a post and its answer. The parameter r is nil if the upstream got no receipt.
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
		receipt = &linear.Receipt{ID: r.Message.ID.String(), Sequence: r.Message.ID.Seq,
			Duplicate: r.Duplicate}
	}

	c.history.Posted(s.key, nameOf(s), sent, time.Now(), receipt)
}

// recordWrite records a request at the CMS, and the present stages of all messages of the request's
// key. The caller holds mu.
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

	// the request has no record, because the checker reported it as a violation
	return &written{r: r}
}

// submissionOfBody returns the submission whose number is in a body, or nil if there is none.
func (c *checker) submissionOfBody(body string) *submission {
	if n, err := numberOf(body); err == nil && n < len(c.expected) {
		return c.expected[n]
	}
	return nil
}

// recordRead records the present stages of a key's messages. It leaves out a message whose post was
// not answered, if the CMS got no request for that message. The caller holds mu.
func (c *checker) recordRead(key string) {
	var seen []linear.Seen
	for _, f := range c.laneOf(lane.Of(key, c.w.lanes)).log {
		if f.key != key {
			continue
		}

		if s := c.submissionOf(f); s != nil {
			stage := c.stageOf(f)
			if stage == weir.Discarded {
				// The model has no discards. To the model a discarded message is dead, because a
				// discarded message is not written again either.
				stage = weir.Dead
			}

			seen = append(seen, linear.Seen{Name: nameOf(s), Stage: string(stage)})
		}
	}

	c.history.Read(key, time.Now(), time.Now(), seen...)
}

// submissionOf returns the submission of a message in the log. The checker learns the submission
// from a request to the CMS, or from the answer to the post. Before that, submissionOf returns nil.
func (c *checker) submissionOf(f *filed) *submission {
	if f.number >= 0 {
		return c.expected[f.number]
	}
	return c.history.answered[f.id]
}

// concludeHistories records the stages of all messages once more when all work is done, and adds
// the writes to the histories. The caller holds mu.
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

		begin := linear.Begin{Name: nameOf(s), ID: w.r.id.String(), Sequence: w.r.id.Seq,
			Fence: w.r.fence, Late: w.late}
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

// checkHistory checks the history of each key of a run against the model. If a key breaks the
// model, the history of that key is drawn into a file in build/histories.
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

// moduleRoot returns the root directory of the module, or a temporary directory if it finds no
// go.mod.
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
