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

// testHistory builds a history by hand. Each call of nextTime moves its clock on by a second.
type testHistory struct {
	linear.History
	now time.Time
}

func newTestHistory() *testHistory { return &testHistory{now: time.Unix(1000, 0)} }

func (b *testHistory) nextTime() time.Time {
	b.now = b.now.Add(time.Second)
	return b.now
}

const key = "/news/1"

func (b *testHistory) addPost(name string, seq int64) {
	sent := b.nextTime()
	b.Posted(key, name, sent, b.nextTime(), &linear.Receipt{ID: "id-" + name, Sequence: seq})
}

func (b *testHistory) addRepeat(name string, seq int64) {
	sent := b.nextTime()
	b.Posted(key, name, sent, b.nextTime(),
		&linear.Receipt{ID: "id-" + name, Sequence: seq, Duplicate: true})
}

func (b *testHistory) addLostPost(name string) {
	b.Posted(key, name, b.nextTime(), time.Time{}, nil)
}

func (b *testHistory) addBegin(name string, fence int64) linear.Begin {
	w := linear.Begin{Name: name, ID: "id-" + name, Fence: fence}
	b.Began(key, w, b.nextTime())
	return w
}

func (b *testHistory) addEnd(w linear.Begin, v linear.Verdict) {
	b.Ended(key, linear.End{Begin: w, Verdict: v}, b.nextTime())
}

func (b *testHistory) addWrite(name string, fence int64, v linear.Verdict) {
	b.addEnd(b.addBegin(name, fence), v)
}

func (b *testHistory) addRead(name, stage string) {
	asked := b.nextTime()
	b.Read(key, asked, b.nextTime(), linear.Seen{Name: name, Stage: stage})
}

func (b *testHistory) addRest() { b.Rest(b.nextTime()) }

var good = map[string]func(*testHistory){
	"InOrder": func(b *testHistory) {
		b.addPost("a", 1)
		b.addRead("a", "queued")
		b.addPost("b", 2)
		b.addWrite("a", 1, linear.Taken)
		b.addWrite("b", 1, linear.Taken)
		b.addRead("a", "delivered")
		b.addRead("b", "delivered")
		b.addRest()
	},
	"RetriedUntilTaken": func(b *testHistory) {
		b.addPost("a", 1)
		b.addWrite("a", 1, linear.Refused)
		b.addRead("a", "retrying")
		b.addWrite("a", 1, linear.Lost)
		b.addWrite("a", 1, linear.Taken)
		b.addRead("a", "delivered")
		b.addRest()
	},
	"RepeatedUnderAHigherFence": func(b *testHistory) {
		b.addPost("a", 1)
		b.addWrite("a", 1, linear.Taken)
		b.addWrite("a", 2, linear.Taken)
		b.addRest()
	},
	"RepeatedAfterATornAnswer": func(b *testHistory) {
		b.addPost("a", 1)
		b.addWrite("a", 1, linear.Torn)
		b.addWrite("a", 1, linear.Taken)
		b.addRest()
	},
	"DeadAndTheNextWritten": func(b *testHistory) {
		b.addPost("a", 1)
		b.addPost("b", 2)
		b.addWrite("a", 1, linear.Refused)
		b.addWrite("b", 1, linear.Taken)
		b.addRead("a", "dead")
		b.addRest()
	},
	"FiledWithoutAnAnswer": func(b *testHistory) {
		b.addLostPost("a")
		b.addWrite("a", 1, linear.Taken)
		b.addRest()
	},
	"NeverFiledWithoutAnAnswer": func(b *testHistory) {
		b.addLostPost("a")
		b.addPost("b", 1)
		b.addWrite("b", 1, linear.Taken)
		b.addRest()
	},
	"PostedAgainAfterNoAnswer": func(b *testHistory) {
		b.addLostPost("a")
		b.addLostPost("a")
		b.addRepeat("a", 1)
		b.addWrite("a", 1, linear.Taken)
		b.addRest()
	},
	"PostedAgainAndOnlyThenFiled": func(b *testHistory) {
		b.addLostPost("a")
		b.addPost("a", 1)
		b.addWrite("a", 1, linear.Taken)
		b.addRest()
	},
	"PostsAtOnceInEitherOrder": func(b *testHistory) {
		sent := b.nextTime()
		both := b.nextTime()
		b.Posted(key, "a", sent, both, &linear.Receipt{ID: "id-a", Sequence: 2})
		b.Posted(key, "b", sent, both, &linear.Receipt{ID: "id-b", Sequence: 1})
		b.addWrite("b", 1, linear.Taken)
		b.addWrite("a", 1, linear.Taken)
		b.addRest()
	},
	"LateWriteOfAProcessThatStoodStill": func(b *testHistory) {
		b.addPost("a", 1)
		b.addWrite("a", 2, linear.Taken)
		late := linear.Begin{Name: "a", ID: "id-a", Fence: 1, Late: true}
		b.Began(key, late, b.nextTime())
		b.addEnd(late, linear.Taken)
		b.addRest()
	},
}

func TestCheck_AllowsGoodHistories(t *testing.T) {
	t.Parallel()
	for name, tell := range good {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestHistory()
			tell(b)

			if done, err := b.Check(t.TempDir(), "good"); err != nil || done.Keys != 1 ||
				done.Operations == 0 {
				t.Errorf("got %+v, %v, want one key without a violation", done, err)
			}
		})
	}
}

var bad = map[string]struct {
	tell   func(*testHistory)
	reason string
}{
	"LostAfterItWasAcknowledged": {func(b *testHistory) {
		b.addPost("a", 1)
		b.addRest()
	}, "a has no end"},
	"LostInTheMiddle": {func(b *testHistory) {
		b.addPost("a", 1)
		b.addPost("b", 2)
		b.addWrite("b", 1, linear.Taken)
		b.addRest()
	}, "b is written before a"},
	"Reordered": {func(b *testHistory) {
		b.addPost("a", 1)
		b.addPost("b", 2)
		b.addWrite("b", 1, linear.Taken)
		b.addWrite("a", 1, linear.Taken)
	}, "b is written before a"},
	"OvertakenWhileItWaitsForARetry": {func(b *testHistory) {
		b.addPost("a", 1)
		b.addPost("b", 2)
		b.addWrite("a", 1, linear.Refused)
		b.addWrite("b", 1, linear.Taken)
		b.addWrite("a", 1, linear.Taken)
		b.addRest()
	}, "b is written before a"},
	"TwoWritersAtOnce": {func(b *testHistory) {
		b.addPost("a", 1)
		first := b.addBegin("a", 1)
		second := b.addBegin("a", 2)
		b.addEnd(first, linear.Taken)
		b.addEnd(second, linear.Taken)
	}, "a is written while a is"},
	"TwoWritersInTurn": {func(b *testHistory) {
		b.addPost("a", 1)
		b.addPost("b", 2)
		b.addWrite("a", 2, linear.Taken)
		b.addWrite("b", 1, linear.Taken)
	}, "b is written under fence 1, after 2"},
	"RepeatedWithoutAHigherFence": {func(b *testHistory) {
		b.addPost("a", 1)
		b.addWrite("a", 1, linear.Taken)
		b.addWrite("a", 1, linear.Taken)
	}, "a is written again, without a higher fence"},
	"RepeatedUnderAnotherIdempotencyKey": {func(b *testHistory) {
		b.addPost("a", 1)
		b.addWrite("a", 1, linear.Taken)
		b.Began(key, linear.Begin{Name: "a", ID: "id-other", Fence: 2}, b.nextTime())
	}, "a is id-a, and is written under the Idempotency-Key id-other"},
	"RepeatedAcrossANewerOne": {func(b *testHistory) {
		b.addPost("a", 1)
		b.addPost("b", 2)
		b.addWrite("a", 1, linear.Taken)
		b.addWrite("b", 1, linear.Taken)
		b.addWrite("a", 2, linear.Taken)
	}, "a is written after b"},
	"RepeatedAfterItsCommit": {func(b *testHistory) {
		b.addPost("a", 1)
		b.addWrite("a", 1, linear.Taken)
		b.addRead("a", "delivered")
		b.addWrite("a", 2, linear.Taken)
	}, "a is written, which is delivered"},
	"WrittenAndNeverPosted": {func(b *testHistory) { b.addWrite("a", 1, linear.Taken) },
		"a is written, and was never filed"},
	"WrittenBeforeItWasPosted": {func(b *testHistory) {
		b.addWrite("a", 1, linear.Taken)
		b.addPost("a", 1)
	}, "a is written, and was never filed"},
	"DeliveredAndNeverWritten": {func(b *testHistory) {
		b.addPost("a", 1)
		b.addRead("a", "delivered")
	}, `a is read as "delivered"`},
	"QueuedAgainAfterDelivered": {func(b *testHistory) {
		b.addPost("a", 1)
		b.addWrite("a", 1, linear.Taken)
		b.addRead("a", "delivered")
		b.addRead("a", "queued")
	}, "a is read as queued, and is delivered"},
	"FiledTwice": {func(b *testHistory) {
		b.addPost("a", 1)
		b.addPost("a", 2)
	}, "a was filed twice"},
	"DuplicateOfNothing": {func(b *testHistory) { b.addRepeat("a", 1) }, "a is called a duplicate"},
	"NumbersFall": {func(b *testHistory) {
		b.addPost("a", 2)
		b.addPost("b", 1)
	}, "b got number 1 behind 2"},
}

func TestCheck_RefusesBadHistories(t *testing.T) {
	t.Parallel()
	for name, c := range bad {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, dir := newTestHistory(), t.TempDir()
			c.tell(b)
			_, err := b.Check(dir, "bad")
			drawn := filepath.Join(dir, "bad-_news_1.html")
			if err == nil || !strings.Contains(err.Error(), c.reason) ||
				!strings.Contains(err.Error(), drawn) {
				t.Fatalf("got %v, want %q and %s", err, c.reason, drawn)
			}

			if page, err := os.ReadFile(drawn); err != nil ||
				!strings.Contains(string(page), "<html") {
				t.Errorf("drawn: %v, %d bytes, want \"<html\" in page and no error", err, len(page))
			}
		})
	}
}

func TestExclude_LeavesAKeyOut(t *testing.T) {
	t.Parallel()
	b := newTestHistory()
	b.addPost("a", 1)
	b.addRest()
	b.Exclude(key, "it has due times")

	if done, err := b.Check(t.TempDir(), "excluded"); err != nil ||
		done != (linear.Checked{Excluded: 1}) {
		t.Errorf("got %+v, %v, want one key excluded", done, err)
	}
}
