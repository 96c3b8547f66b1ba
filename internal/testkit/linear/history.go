package linear

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Post is a post of the message with this name. A repeat under the same Idempotency-Key has the
// same name.
type Post struct{ Name string }

// Receipt is the answer to a Post.
type Receipt struct {
	ID        string
	Sequence  int64
	Duplicate bool
}

// Learned is the output of a post whose answer was not seen. Sequence is the message's sequence
// number if another operation showed the number; otherwise Sequence is 0. With the number, the
// checker has to try far fewer orders of such posts.
type Learned struct{ Sequence int64 }

// Begin is the arrival of a write at the CMS. Late marks a write whose sender stalled past the end
// of its lease. The fence of a late write is lower than the fence in storage, and a CMS that checks
// fences refuses the write.
type Begin struct {
	Name, ID string
	Sequence int64 // sequence number of the message; 0 = not known
	Fence    int64
	Late     bool
}

// Verdict is the result of a write.
type Verdict string

// The results of a write.
const (
	Taken Verdict = "taken" // the CMS answered 2xx, and the sender got the whole answer
	// the CMS answered 2xx, and the answer broke off: the sender may see a failure
	Torn    Verdict = "torn"
	Refused Verdict = "refused" // any other answer
	Lost    Verdict = "lost"    // the sender got no answer
)

// End is the end of the write that began with Begin.
type End struct {
	Begin
	Verdict Verdict
}

// Finish is a holder's decision that a message is dead, cancelled or superseded. No client sees the
// time of the decision. The decision comes after the message's first post, and after the last read
// that showed the message waiting. The decision comes before the first read that shows the message
// dead, cancelled or superseded.
type Finish struct{ Name, Stage string }

// Read is a status read, of one message or of several at once.
type Read struct{ Names []string }

// Rest is the point in time at which all processes have become idle.
type Rest struct{}

// History gathers operations. The zero History is ready. Its methods can be called concurrently.
type History struct {
	mu    sync.Mutex
	keys  map[string][]porcupine.Operation
	posts map[string]map[string]*postRecord // by key and name
	// by key: the reason why the model does not describe the key
	excluded map[string]string
}

// postRecord summarizes all posts and reads of one message. Times are Unix times in nanoseconds.
type postRecord struct {
	first      int64 // when the first post was sent
	unanswered int64 // when the first post without an answer was sent; 0 = each post was answered
	filed      bool  // a post was answered without Duplicate: this post appended the message
	// begin of the last read that showed the message queued or retrying; 0 = no such read
	waited int64
	// end of the first read that showed the message dead, cancelled or superseded; 0 = no such read
	finished int64
	stage    string // the stage in the read that ended at finished
}

// Seen is the stage of a message in a read.
type Seen struct{ Name, Stage string }

// Rows of the visualization. Posts that overlap in time use the row postRow and the rows after it.
const (
	cmsRow = iota
	holderRow
	readerRow
	postRow
)

// Posted records a post and its answer. If answer is nil, the answer was not seen.
func (h *History) Posted(key, name string, sent, answered time.Time, answer *Receipt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.postOf(key, name)
	if p.first == 0 || sent.UnixNano() < p.first {
		p.first = sent.UnixNano()
	}

	if answer == nil {
		// The first post without an answer stands for all of the message's posts without an answer.
		if p.unanswered == 0 || sent.UnixNano() < p.unanswered {
			p.unanswered = sent.UnixNano()
		}
		return
	}

	p.filed = p.filed || !answer.Duplicate
	h.addOperation(key, postRow, Post{name}, sent.UnixNano(), *answer, answered.UnixNano())
}

// Began records that a write reached the CMS.
func (h *History) Began(key string, b Begin, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addOperation(key, cmsRow, b, at.UnixNano(), nil, at.UnixNano())
}

// Ended records the end of a write.
func (h *History) Ended(key string, e End, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addOperation(key, cmsRow, e, at.UnixNano(), nil, at.UnixNano())
}

// Read records one read, which showed the stages of one or more messages of a key.
func (h *History) Read(key string, asked, answered time.Time, seen ...Seen) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var names, stages []string
	for _, s := range seen {
		names, stages = append(names, s.Name), append(stages, s.Stage)
		p := h.postOf(key, s.Name)
		switch s.Stage {
		case "dead", "cancelled", "superseded":
			if p.finished == 0 || answered.UnixNano() < p.finished {
				p.finished, p.stage = answered.UnixNano(), s.Stage
			}
		case "queued", "retrying":
			p.waited = max(p.waited, asked.UnixNano())
		}
	}

	h.addOperation(key, readerRow, Read{names}, asked.UnixNano(), stages, answered.UnixNano())
}

// Exclude makes Check leave a key out, for a reason. The model does not describe keys with due
// times, replays or versions, or with failed messages that do not block their key (onFailure:
// skip).
func (h *History) Exclude(key, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.excluded == nil {
		h.excluded = map[string]string{}
	}
	h.excluded[key] = cmp.Or(h.excluded[key], reason)
}

// Rest records that all processes have become idle, for each key that has an operation by now.
func (h *History) Rest(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key := range h.keys {
		h.addOperation(key, readerRow, Rest{}, at.UnixNano(), nil, at.UnixNano())
	}
}

func (h *History) postOf(key, name string) *postRecord {
	if h.posts == nil {
		h.posts = map[string]map[string]*postRecord{}
	}

	if h.posts[key] == nil {
		h.posts[key] = map[string]*postRecord{}
	}

	p := h.posts[key][name]
	if p == nil {
		p = &postRecord{}
		h.posts[key][name] = p
	}

	return p
}

func (h *History) addOperation(key string, client int, input any, call int64, output any,
	ret int64) {
	if h.keys == nil {
		h.keys = map[string][]porcupine.Operation{}
	}
	h.keys[key] = append(h.keys[key],
		porcupine.Operation{ClientId: client, Input: input, Call: call, Output: output,
			Return: ret})
}

// operationsOf returns a key's operations for porcupine, sorted by the time at which they began.
func (h *History) operationsOf(key string) []porcupine.Operation {
	ops := slices.Clone(h.keys[key])
	shown := firstShown(ops)
	for name, p := range h.posts[key] {
		if at, ok := shown[name]; p.unanswered != 0 && ok && !p.filed {
			ops = append(ops, porcupine.Operation{ClientId: postRow, Input: Post{name},
				Call:   p.unanswered,
				Output: Learned{at.sequence}, Return: max(at.first, p.unanswered)})
		}

		if p.finished != 0 {
			ops = append(ops, porcupine.Operation{ClientId: holderRow, Input: Finish{name, p.stage},
				Call: min(max(p.first, p.waited), p.finished), Return: p.finished})
		}
	}

	slices.SortStableFunc(ops, func(a, b porcupine.Operation) int {
		return cmp.Or(cmp.Compare(a.Call, b.Call), cmp.Compare(a.Return, b.Return))
	})
	assignRows(ops)

	return ops
}

// firstSight has the first time at which an operation showed that a message was appended. It also
// has the message's sequence number, or 0 if no operation showed the number.
type firstSight struct{ first, sequence int64 }

// firstShown returns the firstSight of each message that an operation shows. If a post without an
// answer appended the message, the post took effect before firstSight.first. If no operation shows
// a message, the message's posts are left out, because they can have taken effect after all other
// operations.
func firstShown(ops []porcupine.Operation) map[string]firstSight {
	shown := map[string]firstSight{}
	note := func(name string, at, sequence int64) {
		s, ok := shown[name]
		if !ok || at < s.first {
			s.first = at
		}
		s.sequence = max(s.sequence, sequence)
		shown[name] = s
	}

	for _, op := range ops {
		switch in := op.Input.(type) {
		case Post:
			note(in.Name, op.Return, op.Output.(Receipt).Sequence)
		case Begin:
			note(in.Name, op.Return, in.Sequence)
		case Read:
			for _, name := range in.Names {
				note(name, op.Return, 0)
			}
		}
	}

	return shown
}

// assignRows assigns overlapping posts to different rows, because a row of the visualization shows
// one operation at a time.
func assignRows(ops []porcupine.Operation) {
	var free []int64 // by row: when the row's last post returned
	for i, op := range ops {
		if op.ClientId != postRow {
			continue
		}

		row := slices.IndexFunc(free, func(until int64) bool { return until < op.Call })
		if row < 0 {
			row = len(free)
			free = append(free, 0)
		}

		free[row] = op.Return
		ops[i].ClientId = postRow + row
	}
}
