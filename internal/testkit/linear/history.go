package linear

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Post is a post of the message with this name. A repeat under the same Idempotency-Key has the same name.
type Post struct{ Name string }

// Receipt is the answer to a Post.
type Receipt struct {
	ID        string
	Sequence  int64
	Duplicate bool
}

// Learned is the output of a post whose answer was not seen. Sequence is the message's number, if another operation
// showed it; otherwise 0. With the number, the checker has to try far fewer orders of such posts.
type Learned struct{ Sequence int64 }

// Begin is the begin of a write: its arrival at the CMS. Late marks a write whose sender stood still past the end of
// its lease. The fence of such a write is lower than the fence in storage, and a CMS that checks fences refuses it.
type Begin struct {
	Name, ID string
	Sequence int64 // number of the message; 0 = not known
	Fence    int64
	Late     bool
}

// Verdict is the result of a write.
type Verdict string

// The verdicts.
const (
	Taken   Verdict = "taken"   // the CMS answered 2xx, and is not known to have lost the connection to the sender
	Torn    Verdict = "torn"    // the CMS answered 2xx, and the answer broke off: the sender may take it for a failure
	Refused Verdict = "refused" // any other answer
	Lost    Verdict = "lost"    // the sender got no answer
)

// End is the end of the write that began with Begin.
type End struct {
	Begin
	Verdict Verdict
}

// Finish is a holder's decision that a message is dead, cancelled or superseded. No client sees the time of the
// decision. That time lies after the message's first post, and after the last read that showed the message waiting. It
// lies before the first read that shows the decision.
type Finish struct{ Name, Stage string }

// Read is a status read, of one message or of several at once.
type Read struct{ Names []string }

// Rest is the point in time at which all processes have become idle.
type Rest struct{}

// History gathers operations. The zero History is ready; its methods may be called
// concurrently.
type History struct {
	mu       sync.Mutex
	keys     map[string][]porcupine.Operation
	posts    map[string]map[string]*postRecord // by key and name
	excluded map[string]string                 // keys that the model does not describe, with the reason
}

// postRecord sums up all posts and reads of the message with one name. Times are in nanoseconds of Unix time.
type postRecord struct {
	first      int64  // when the first post was sent
	unanswered int64  // when the first post without an answer was sent; 0 = each was answered
	filed      bool   // a post was answered as no duplicate, so it filed the message
	waited     int64  // when the last read that showed the message queued or retrying began; 0 = there was no such read
	finished   int64  // when a read first showed the message dead, cancelled or superseded; 0 = there was no such read
	stage      string // the stage that the read at the time "finished" showed
}

// Seen is a message's stage as it was read.
type Seen struct{ Name, Stage string }

// Rows of the visualization. Posts that overlap are in the row postRow and the rows after it.
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
		// If several posts of one message have no answer, the first can stand for all of them.
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

// Read records the stages that one read showed, of one or several messages of a key.
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
// times, replays, versions or skipped failures.
func (h *History) Exclude(key, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.excluded == nil {
		h.excluded = map[string]string{}
	}
	h.excluded[key] = cmp.Or(h.excluded[key], reason)
}

// Rest records for every key so far that all processes have become idle.
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

func (h *History) addOperation(key string, client int, input any, call int64, output any, ret int64) {
	if h.keys == nil {
		h.keys = map[string][]porcupine.Operation{}
	}
	h.keys[key] = append(h.keys[key], porcupine.Operation{ClientId: client, Input: input, Call: call, Output: output,
		Return: ret})
}

// operationsOf returns a key's operations for porcupine, in the order of their begins.
func (h *History) operationsOf(key string) []porcupine.Operation {
	ops := slices.Clone(h.keys[key])
	shown := firstShown(ops)
	for name, p := range h.posts[key] {
		if at, ok := shown[name]; p.unanswered != 0 && ok && !p.filed {
			ops = append(ops, porcupine.Operation{ClientId: postRow, Input: Post{name}, Call: p.unanswered,
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

// firstSight has the time at which a message was first seen to be filed, and the message's number. The number is 0 if
// no operation showed it.
type firstSight struct{ first, sequence int64 }

// firstShown returns, for each message, the time at which an operation first showed that it was filed, and its number.
// A post without an answer has taken effect by then. If no operation shows the message, the map does not have it, and
// its posts are left out: they may have taken effect after all other operations. The checker would accept the same
// histories if such posts had no end, but it would have to guess when each took effect.
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

// assignRows assigns overlapping posts to different rows, because the visualization shows one operation of a client at
// a time.
func assignRows(ops []porcupine.Operation) {
	var free []int64 // when each row's last post had returned
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
