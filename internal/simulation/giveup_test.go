package simulation_test

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"weir/internal/storage"
)

// posts records which posts were sent to storage, and when upstreams gave posts up. A refused post
// also counts as given up. A post that was given up before it was sent to storage must not be sent
// afterwards. The upstream may post the message again, and without an Idempotency-Key the second
// post would be another message.
type posts struct {
	mu      sync.Mutex
	begun   map[string]int       // number of posts, by the name of the message
	sent    map[string]bool      // by the name of the post
	givenUp map[string]time.Time // by the name of the post
}

func newPosts() *posts {
	return &posts{begun: map[string]int{}, sent: map[string]bool{}, givenUp: map[string]time.Time{}}
}

// beginPost returns a new name for a post of a message. The caller stores the name as the message's
// trace state, where noteSent finds it.
func (p *posts) beginPost(message string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun[message]++
	return fmt.Sprintf("post=%s-%d", strings.ReplaceAll(message, " ", "-"), p.begun[message])
}

// giveUp records that a post was refused, or that the upstream no longer waits for the answer to
// the post.
func (p *posts) giveUp(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.givenUp[name] = time.Now()
}

// noteSent records that a transaction sends the messages of posts to storage. If one of these posts
// was given up before it was first sent, noteSent returns the name of that post, otherwise "".
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
