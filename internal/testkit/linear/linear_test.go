package linear_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/testkit/linear"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// book writes a history by hand: a clock that goes on by a second at each operation.
type book struct {
	linear.History
	now time.Time
}

func newBook() *book { return &book{now: time.Unix(1000, 0)} }

func (b *book) tick() time.Time {
	b.now = b.now.Add(time.Second)
	return b.now
}

const key = "/news/1"

func (b *book) post(name string, seq int64) {
	sent := b.tick()
	b.Posted(key, name, sent, b.tick(), &linear.Receipt{ID: "id-" + name, Sequence: seq})
}

func (b *book) repeat(name string, seq int64) {
	sent := b.tick()
	b.Posted(key, name, sent, b.tick(), &linear.Receipt{ID: "id-" + name, Sequence: seq, Duplicate: true})
}

func (b *book) lose(name string) { b.Posted(key, name, b.tick(), time.Time{}, nil) }

func (b *book) begin(name string, fence int64) linear.Begin {
	w := linear.Begin{Name: name, ID: "id-" + name, Fence: fence}
	b.Began(key, w, b.tick())
	return w
}

func (b *book) end(w linear.Begin, v linear.Verdict) {
	b.Ended(key, linear.End{Begin: w, Verdict: v}, b.tick())
}

func (b *book) write(name string, fence int64, v linear.Verdict) { b.end(b.begin(name, fence), v) }

func (b *book) read(name, stage string) {
	asked := b.tick()
	b.Read(key, asked, b.tick(), linear.Seen{Name: name, Stage: stage})
}

func (b *book) rest() { b.Rest(b.tick()) }

var good = map[string]func(*book){
	"InOrder": func(b *book) {
		b.post("a", 1)
		b.read("a", "queued")
		b.post("b", 2)
		b.write("a", 1, linear.Taken)
		b.write("b", 1, linear.Taken)
		b.read("a", "delivered")
		b.read("b", "delivered")
		b.rest()
	},
	"RetriedUntilTaken": func(b *book) {
		b.post("a", 1)
		b.write("a", 1, linear.Refused)
		b.read("a", "retrying")
		b.write("a", 1, linear.Lost)
		b.write("a", 1, linear.Taken)
		b.read("a", "delivered")
		b.rest()
	},
	"RepeatedUnderAHigherFence": func(b *book) {
		b.post("a", 1)
		b.write("a", 1, linear.Taken)
		b.write("a", 2, linear.Taken)
		b.rest()
	},
	"RepeatedAfterATornAnswer": func(b *book) {
		b.post("a", 1)
		b.write("a", 1, linear.Torn)
		b.write("a", 1, linear.Taken)
		b.rest()
	},
	"DeadAndTheNextWritten": func(b *book) {
		b.post("a", 1)
		b.post("b", 2)
		b.write("a", 1, linear.Refused)
		b.write("b", 1, linear.Taken)
		b.read("a", "dead")
		b.rest()
	},
	"FiledWithoutAnAnswer": func(b *book) {
		b.lose("a")
		b.write("a", 1, linear.Taken)
		b.rest()
	},
	"NeverFiledWithoutAnAnswer": func(b *book) {
		b.lose("a")
		b.post("b", 1)
		b.write("b", 1, linear.Taken)
		b.rest()
	},
	"PostedAgainAfterNoAnswer": func(b *book) {
		b.lose("a")
		b.lose("a")
		b.repeat("a", 1)
		b.write("a", 1, linear.Taken)
		b.rest()
	},
	"PostedAgainAndOnlyThenFiled": func(b *book) {
		b.lose("a")
		b.post("a", 1)
		b.write("a", 1, linear.Taken)
		b.rest()
	},
	"PostsAtOnceInEitherOrder": func(b *book) {
		sent := b.tick()
		both := b.tick()
		b.Posted(key, "a", sent, both, &linear.Receipt{ID: "id-a", Sequence: 2})
		b.Posted(key, "b", sent, both, &linear.Receipt{ID: "id-b", Sequence: 1})
		b.write("b", 1, linear.Taken)
		b.write("a", 1, linear.Taken)
		b.rest()
	},
	"LateWriteOfAProcessThatStoodStill": func(b *book) {
		b.post("a", 1)
		b.write("a", 2, linear.Taken)
		late := linear.Begin{Name: "a", ID: "id-a", Fence: 1, Late: true}
		b.Began(key, late, b.tick())
		b.end(late, linear.Taken)
		b.rest()
	},
}

func TestCheck_AllowsGoodHistories(t *testing.T) {
	t.Parallel()
	for name, tell := range good {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBook()
			tell(b)
			if done, err := b.Check(t.TempDir(), "good"); err != nil || done.Keys != 1 || done.Operations == 0 {
				t.Errorf("got %+v, %v, want one key without a violation", done, err)
			}
		})
	}
}

var bad = map[string]struct {
	tell   func(*book)
	reason string
}{
	"LostAfterItWasAcknowledged": {func(b *book) {
		b.post("a", 1)
		b.rest()
	}, "a has no end"},
	"LostInTheMiddle": {func(b *book) {
		b.post("a", 1)
		b.post("b", 2)
		b.write("b", 1, linear.Taken)
		b.rest()
	}, "b is written before a"},
	"Reordered": {func(b *book) {
		b.post("a", 1)
		b.post("b", 2)
		b.write("b", 1, linear.Taken)
		b.write("a", 1, linear.Taken)
	}, "b is written before a"},
	"OvertakenWhileItWaitsForARetry": {func(b *book) {
		b.post("a", 1)
		b.post("b", 2)
		b.write("a", 1, linear.Refused)
		b.write("b", 1, linear.Taken)
		b.write("a", 1, linear.Taken)
		b.rest()
	}, "b is written before a"},
	"TwoWritersAtOnce": {func(b *book) {
		b.post("a", 1)
		first := b.begin("a", 1)
		second := b.begin("a", 2)
		b.end(first, linear.Taken)
		b.end(second, linear.Taken)
	}, "a is written while a is"},
	"TwoWritersInTurn": {func(b *book) {
		b.post("a", 1)
		b.post("b", 2)
		b.write("a", 2, linear.Taken)
		b.write("b", 1, linear.Taken)
	}, "b is written under fence 1, after 2"},
	"RepeatedWithoutAHigherFence": {func(b *book) {
		b.post("a", 1)
		b.write("a", 1, linear.Taken)
		b.write("a", 1, linear.Taken)
	}, "a is written again, without a higher fence"},
	"RepeatedUnderAnotherKey": {func(b *book) {
		b.post("a", 1)
		b.write("a", 1, linear.Taken)
		b.Began(key, linear.Begin{Name: "a", ID: "id-other", Fence: 2}, b.tick())
	}, "a is id-a, and is written under the Idempotency-Key id-other"},
	"RepeatedAcrossANewerOne": {func(b *book) {
		b.post("a", 1)
		b.post("b", 2)
		b.write("a", 1, linear.Taken)
		b.write("b", 1, linear.Taken)
		b.write("a", 2, linear.Taken)
	}, "a is written after b"},
	"RepeatedAfterItsCommit": {func(b *book) {
		b.post("a", 1)
		b.write("a", 1, linear.Taken)
		b.read("a", "delivered")
		b.write("a", 2, linear.Taken)
	}, "a is written, which is delivered"},
	"WrittenAndNeverPosted": {func(b *book) { b.write("a", 1, linear.Taken) }, "a is written, and was never filed"},
	"WrittenBeforeItWasPosted": {func(b *book) {
		b.write("a", 1, linear.Taken)
		b.post("a", 1)
	}, "a is written, and was never filed"},
	"DeliveredAndNeverWritten": {func(b *book) {
		b.post("a", 1)
		b.read("a", "delivered")
	}, `a is read as "delivered"`},
	"QueuedAgainAfterDelivered": {func(b *book) {
		b.post("a", 1)
		b.write("a", 1, linear.Taken)
		b.read("a", "delivered")
		b.read("a", "queued")
	}, "a is read as queued, and is delivered"},
	"FiledTwice": {func(b *book) {
		b.post("a", 1)
		b.post("a", 2)
	}, "a was filed twice"},
	"DuplicateOfNothing": {func(b *book) { b.repeat("a", 1) }, "a is called a duplicate"},
	"NumbersFall": {func(b *book) {
		b.post("a", 2)
		b.post("b", 1)
	}, "b got number 1 behind 2"},
}

func TestCheck_RefusesBadHistories(t *testing.T) {
	t.Parallel()
	for name, c := range bad {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, dir := newBook(), t.TempDir()
			c.tell(b)
			_, err := b.Check(dir, "bad")
			drawn := filepath.Join(dir, "bad-_news_1.html")
			if err == nil || !strings.Contains(err.Error(), c.reason) || !strings.Contains(err.Error(), drawn) {
				t.Fatalf("got %v, want %q and %s", err, c.reason, drawn)
			}
			if page, err := os.ReadFile(drawn); err != nil || !strings.Contains(string(page), "<html") {
				t.Errorf("drawn: %v, %d bytes", err, len(page))
			}
		})
	}
}

func TestExclude_LeavesAKeyOut(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.post("a", 1)
	b.rest()
	b.Exclude(key, "it has due times")
	if done, err := b.Check(t.TempDir(), "excluded"); err != nil || done != (linear.Checked{Excluded: 1}) {
		t.Errorf("got %+v, %v, want one key excluded", done, err)
	}
}
