package simulation_test

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"weir/internal/storage"
)

// posts records for each post whether a part of it was sent to storage, and when its upstream gave the post up or was
// refused. If the upstream gave up before any part was sent, no part may be sent afterwards. The reason is that the
// upstream posts again, and without an Idempotency-Key the second post is another message.
type posts struct {
	mu      sync.Mutex
	begun   map[string]int       // number of posts, by the name of the message
	sent    map[string]bool      // by the name of the post
	givenUp map[string]time.Time // by the name of the post
}

func newPosts() *posts {
	return &posts{begun: map[string]int{}, sent: map[string]bool{}, givenUp: map[string]time.Time{}}
}

// beginPost returns a name for a post. The message's row gets that name as the trace state.
func (p *posts) beginPost(message string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun[message]++
	return fmt.Sprintf("post=%s-%d", strings.ReplaceAll(message, " ", "-"), p.begun[message])
}

// giveUp records that the upstream no longer waits for the answer to a post, or was refused.
func (p *posts) giveUp(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.givenUp[name] = time.Now()
}

// noteSent records the messages that a transaction files. Their upstreams may have given up before any part of the post
// was sent. noteSent returns the name of one such post, or "" if there is none.
func (p *posts) noteSent(ops []storage.Op) (abandoned string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, op := range ops {
		name, _ := op.Values["TraceState"].(string)
		if op.Kind != storage.Insert || name == "" {
			continue
		}
		if at, gone := p.givenUp[name]; gone && !p.sent[name] && time.Now().After(at) {
			abandoned = name
		}
		p.sent[name] = true
	}
	return abandoned
}

// patienceFor returns the time for which an upstream waits for the answer to a post.
func (w *world) patienceFor(name string) time.Duration {
	if w.dice.drawChance("impatient "+name, 0.3) {
		return w.dice.drawBetween("patience "+name, 5*time.Millisecond, 3*time.Second)
	}
	return patience
}
