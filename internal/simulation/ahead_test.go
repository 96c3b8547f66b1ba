//go:build !race || long

package simulation_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/storage/memory"
	"weir/internal/storage/storagetest"
	"weir/internal/weir"
)

// TestAhead has a simulated world of its own, a hoard: one process holds many lanes whose messages
// have large bodies, and the CMS is slow. The bodies that the process has fetched from storage, and
// does not send yet, must stay in the room that all its lanes share.

const (
	hoardBody   = 1 << 20
	hoardLanes  = 48
	hoardInLane = 6
	// hoardRoom is the memory for bodies fetched ahead that docs/scale.md promises.
	hoardRoom = 32 << 20
	// hoardUnderWay is the memory for bodies under way to the CMS: a sixth of drain.Config.Memory.
	hoardUnderWay = 128 << 20 / 6
)

// hoard records which bodies a process has in memory, by the id of their message.
type hoard struct {
	dice *dice

	mu sync.Mutex
	// by the name of a blob: bytes in the memory of the process, ahead of its attempt
	bySize      map[string]int64
	ahead, most int64
	sending     int            // number of attempts under way
	sent        map[string]int // by key: number of messages sent
	problems    []string
}

// TestAhead runs seeds of hoards. The environment variable AHEAD is the number of seeds, by default
// 3. AHEAD_FROM is the first seed, by default 1.
func TestAhead(t *testing.T) {
	seeds, from, step := readSeeds(t, "AHEAD", 3), readNumber(t, "AHEAD_FROM", 1),
		readNumber(t, "STEP", 1)
	for i := range seeds {
		seed := from + i*step
		w := runHoard(t, seed)
		t.Logf("seed %d: at most %d MiB of bodies were fetched ahead", seed, w.most>>20)

		if w.most < hoardRoom/2 && !t.Failed() {
			t.Errorf("seed %d: got %d bytes fetched ahead, want more, so that the room counts",
				seed, w.most)
		}

		if len(w.problems) > 0 {
			t.Errorf("seed %d: %.2000s", seed, strings.Join(w.problems, "\n"))
			if os.Getenv("STOP") != "" {
				break
			}
		}
	}
}

func runHoard(t *testing.T, seed uint64) *hoard {
	t.Helper()
	w := &hoard{dice: newDice(seed), bySize: map[string]int64{}, sent: map[string]int{}}
	defer watchForSpin(seed, w.dice, spinLimit)()
	synctest.Test(t, func(t *testing.T) {
		account := memory.New(time.Now)
		store := &lane.Store{Table: account.Table(),
			Bodies: hoardedBlobs{account.Blobs(), w}, Epoch: 1,
			Lanes: hoardLanes, Now: time.Now, Rand: w.dice.newSource("store")}
		if err := store.Open(t.Context()); err != nil {
			t.Fatal(err)
		}

		posted := w.post(t, store)

		p := drain.New(drain.Config{Store: store, Leases: account.Leases(), Sender: slowTaker{w},
			Tickets: silent{},
			Lease:   15 * time.Second, Settle: time.Second, Attempts: 3, Now: time.Now,
			Backoff: drain.Backoff{Min: time.Second, Max: 2 * time.Second},
			Rand:    w.dice.newSource("drain"), Log: discardLog})

		for number := range hoardLanes {
			p.Wake(number)
		}

		for range 100 {
			if time.Sleep(10 * time.Second); w.countSent() == posted {
				break
			}
		}

		if err := p.Close(t.Context()); err != nil {
			w.addProblem("stop: %v", err)
		}

		if got := w.countSent(); got != posted {
			w.addProblem("lost: %d messages were sent, %d were posted", got, posted)
		}
	})

	return w
}

// post appends the messages of all lanes. Their bodies are too large for rows, although most of the
// text is blank, so that it takes little time to compress.
func (w *hoard) post(t *testing.T, store *lane.Store) (posted int) {
	t.Helper()
	text := noise(w.dice, "text")
	body := []byte("<article>" + text + strings.Repeat(" ", hoardBody-len(text)) + "</article>")
	appender := lane.NewAppender(store, discardLog)
	for number := range hoardLanes {
		for range hoardInLane - w.dice.drawBelow("fewer", 4) {
			m := weir.Message{Contract: "article", Key: w.keyOf(store, number, posted),
				ContentType: "application/xml", Body: body, Size: len(body)}
			if _, err := appender.Append(t.Context(), m, ""); err != nil {
				t.Fatal(err)
			}
			posted++
		}
	}

	return posted
}

// keyOf returns a key of a lane.
func (w *hoard) keyOf(store *lane.Store, number, message int) string {
	for try := 0; ; try++ {
		key := fmt.Sprint("k", message, "-", try)
		if store.LaneOf(key) == number {
			return key
		}
	}
}

func (w *hoard) addProblem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

func (w *hoard) countSent() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, count := range w.sent {
		n += count
	}
	return n
}

// hoardedBlobs records the bodies that the process reads.
type hoardedBlobs struct {
	storagetest.BlobPort
	w *hoard
}

// Get implements storage.Blobs.
func (b hoardedBlobs) Get(ctx context.Context, name string) ([]byte, error) {
	data, err := b.BlobPort.Get(ctx, name)
	w := b.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, isAhead := w.bySize[name]; err != nil || isAhead {
		return data, err
	}

	w.bySize[name] = hoardBody
	w.ahead += hoardBody

	return data, err
}

// slowTaker is a CMS that takes each message after some seconds.
type slowTaker struct{ w *hoard }

// Send implements drain.Sender.
func (s slowTaker) Send(_ context.Context, d weir.Delivery) weir.Result {
	startedAt := time.Now()
	s.w.begin(d.Message)
	time.Sleep(s.w.dice.drawBetween("cms "+d.Message.Key, 100*time.Millisecond, 5*time.Second))
	s.w.mu.Lock()
	s.w.sending--
	s.w.mu.Unlock()
	return weir.Result{Outcome: weir.OutcomeDelivered, Status: 200, StartedAt: startedAt}
}

// begin records that a message is sent: its body is not ahead any more. Then it checks the rule. A
// lane without an attempt under way can have one body more: that of the message which it is about
// to send.
func (w *hoard) begin(m *weir.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent[m.Key]++
	w.sending++
	for name, size := range w.bySize {
		if strings.HasSuffix(name, m.ID.Nonce) {
			delete(w.bySize, name)
			w.ahead -= size
		}
	}

	if underWay := w.sending * hoardBody; underWay > hoardUnderWay {
		w.problems = append(w.problems,
			fmt.Sprintf("memory: %d bytes of bodies are under way, %d at most", underWay,
				hoardUnderWay))
	}

	if len(m.Body) < hoardBody {
		w.problems = append(w.problems,
			fmt.Sprintf("content: a body of %d bytes was sent", len(m.Body)))
	}

	ahead := w.ahead - int64(hoardLanes-w.sending)*hoardBody
	if w.most = max(w.most, ahead); ahead > hoardRoom {
		w.problems = append(w.problems,
			fmt.Sprintf("memory: %d bytes of bodies are fetched ahead, %d at most",
				ahead, hoardRoom))
	}
}
