package rabbitmq

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"weir/internal/lane"
	"weir/internal/weir"
)

// fakeChannel records the deliveries that are acknowledged, and those that are rejected by Nack. It
// is safe for concurrent use.
type fakeChannel struct {
	mu       sync.Mutex
	acked    []uint64 // delivery tags
	rejected []uint64 // delivery tags
}

func (f *fakeChannel) Ack(tag uint64, _ bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acked = append(f.acked, tag)
	return nil
}

func (f *fakeChannel) sortAcked() []uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(slices.Values(f.acked))
}

func (f *fakeChannel) Nack(tag uint64, _, requeue bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if requeue {
		return fmt.Errorf("delivery %d was requeued", tag)
	}

	f.rejected = append(f.rejected, tag)
	return nil
}

func (f *fakeChannel) Reject(uint64, bool) error { return nil }

type fakeObserver struct {
	mu      sync.Mutex
	refused int
}

func (f *fakeObserver) Refused(error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused++
}

// fileFunc appends a message with an idempotency key.
type fileFunc = func(ctx context.Context, m weir.Message, key string) (lane.Receipt, error)

// workerRig is a worker without a broker.
type workerRig struct {
	*worker
	channel *fakeChannel
	refused *fakeObserver
	woken   []int
}

func newWorkerRig(t *testing.T, file fileFunc) *workerRig {
	t.Helper()
	r := &workerRig{channel: &fakeChannel{}, refused: &fakeObserver{}}
	c := newTestConsumer(t, &fakeLanes{file})
	c.cfg.Observer = r.refused
	var mu sync.Mutex
	c.cfg.Wake = func(lane int) {
		mu.Lock()
		defer mu.Unlock()
		r.woken = append(r.woken, lane)
	}

	r.worker = &worker{consumer: c, queue: articles,
		guard:   newStallGuard(c.cfg.Now, 10*time.Second),
		letters: &deadLetters{}, keys: map[string][]*task{}}

	return r
}

// deliverMessage passes a delivery with a message of the key to the worker. The delivery's
// message_id is the tag.
func (r *workerRig) deliverMessage(ctx context.Context, tag uint64, key string) {
	r.accept(ctx, &amqp.Delivery{Acknowledger: r.channel, DeliveryTag: tag,
		MessageId: fmt.Sprint(tag),
		Body: fmt.Appendf(nil,
			`<article path="%s" version="1"><title>T</title></article>`, key)})
}

// If the first message of a key cannot be appended, the later messages of the key wait, and their
// deliveries are not acknowledged. Messages of other keys do not wait.
func TestWorker_DelaysTheKeyOfAMessageThatIsNotFiled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		filed := map[string][]string{}
		failures := 3
		r := newWorkerRig(t, func(_ context.Context, m weir.Message, id string) (lane.Receipt,
			error) {
			mu.Lock()
			defer mu.Unlock()

			if m.Key == "/a" && failures > 0 {
				failures--
				return lane.Receipt{},
					&weir.Error{Kind: weir.Unavailable, Message: "storage is away"}
			}

			filed[m.Key] = append(filed[m.Key], id)
			m.ID.Lane = 7

			return lane.Receipt{Message: m, Stage: weir.Queued}, nil
		})

		for tag := range uint64(8) {
			r.deliverMessage(t.Context(), tag, []string{"/a", "/b"}[tag%2])
		}

		synctest.Wait()

		if got := r.channel.sortAcked(); !slices.Equal(got, []uint64{1, 3, 5, 7}) {
			t.Errorf("while the messages of /a wait, got the acknowledged deliveries %v, want the deliveries of "+
				"/b: [1 3 5 7]", got)
		}

		r.tasks.Wait()

		if a, b := strings.Join(filed["/a"], " "), strings.Join(filed["/b"], " "); a != "0 2 4 6" ||
			b != "1 3 5 7" {
			t.Errorf("got the filed messages %s of /a and %s of /b, want 0 2 4 6 and 1 3 5 7", a, b)
		}

		if len(r.channel.acked) != 8 || len(r.woken) != 8 || len(r.keys) != 0 {
			t.Errorf("got %d acknowledged deliveries, %d wakes and %d keys in keys; want 8, 8 and 0",
				len(r.channel.acked), len(r.woken),
				len(r.keys))
		}
	})
}

// If the channel is lost while a message is being appended, the worker does not append the later
// messages of the key.
func TestWorker_FilesNoLaterMessageAfterALoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, lose := context.WithCancel(t.Context())
		appends := 0
		r := newWorkerRig(t, func(ctx context.Context, _ weir.Message, _ string) (lane.Receipt,
			error) {
			appends++
			<-ctx.Done()
			return lane.Receipt{}, &weir.Error{Kind: weir.Unavailable, Message: "gave up"}
		})

		r.deliverMessage(ctx, 0, "/a")
		r.deliverMessage(ctx, 1, "/a")
		synctest.Wait()
		if err := r.abandon(lose, errLost); err != errLost {
			t.Errorf("got %v, want %v", err, errLost)
		}

		if appends != 1 || len(r.channel.acked)+len(r.channel.rejected) != 0 {
			t.Errorf("got %d appends, the acknowledged %v and the rejected %v; want one append, and none of the others",
				appends, r.channel.acked,
				r.channel.rejected)
		}
	})
}

func TestWorker_RejectsWithoutADeadLetterExchange(t *testing.T) {
	t.Parallel()
	r := newWorkerRig(t, func(context.Context, weir.Message, string) (lane.Receipt, error) {
		return lane.Receipt{},
			&weir.Error{Kind: weir.Invalid, Message: "another body under this Idempotency-Key"}
	})

	r.deliverMessage(t.Context(), 1, "/a")
	r.accept(t.Context(), &amqp.Delivery{Acknowledger: r.channel, DeliveryTag: 2, MessageId: "2",
		Body: []byte("no XML")})
	r.tasks.Wait()

	if got := slices.Sorted(slices.Values(r.channel.rejected)); !slices.Equal(got, []uint64{1, 2}) ||
		r.refused.refused != 2 || len(r.channel.acked) != 0 {
		t.Errorf("got the rejected %v, %d refusals and the acknowledged %v; want 1 and 2 rejected, and 2 refusals", got,
			r.refused.refused,
			r.channel.acked)
	}
}

// An internal error is a defect of this process or of storage, so the worker tries to append the
// message again.
func TestWorker_TriesAgainAfterAnInternalError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls, began := 0, time.Now()
		r := newWorkerRig(t, func(_ context.Context, m weir.Message, _ string) (lane.Receipt,
			error) {
			if calls++; calls < 4 {
				return lane.Receipt{}, &weir.Error{Kind: weir.Internal, Message: "a defect"}
			}
			return lane.Receipt{Message: m, Stage: weir.Delivered, Duplicate: true}, nil
		})

		r.deliverMessage(t.Context(), 1, "/a")
		r.tasks.Wait()

		if took := time.Since(began); len(r.channel.acked) != 1 || len(r.woken) != 0 ||
			took < firstRefile/2 {
			t.Errorf("got the acknowledged %v after %s and the woken lanes %v; want one after a pause, and no "+
				"wake for a final message",
				r.channel.acked, took, r.woken)
		}
	})
}

// A panic is not understood, so nothing is refused: the message is tried again, and its key waits.
func TestWorker_TriesAgainAfterAPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var filed []string
		failures := 3
		r := newWorkerRig(t, func(_ context.Context, m weir.Message, id string) (lane.Receipt,
			error) {
			if failures > 0 {
				failures--
				panic("boom")
			}
			filed = append(filed, id)
			return lane.Receipt{Message: m, Stage: weir.Queued}, nil
		})

		r.deliverMessage(t.Context(), 1, "/a")
		r.deliverMessage(t.Context(), 2, "/a")
		r.tasks.Wait()

		if got := strings.Join(filed, " "); got != "1 2" || len(r.channel.acked) != 2 {
			t.Errorf("got the filed messages %s and %d acknowledged deliveries, want 1 2 and 2",
				got, len(r.channel.acked))
		}

		if r.refused.refused+len(r.channel.rejected) != 0 {
			t.Errorf("got the rejected %v, want none", r.channel.rejected)
		}
	})
}

// A delivery whose validation panics is not lost, and does not end the consumer.
func TestWorker_LeavesADeliveryWhoseValidationPanics(t *testing.T) {
	t.Parallel()
	r := newWorkerRig(t, func(_ context.Context, m weir.Message, _ string) (lane.Receipt, error) {
		return lane.Receipt{Message: m, Stage: weir.Queued}, nil
	})
	filer := r.consumer.cfg.Filer
	r.consumer.cfg.Filer = nil // so that the validation panics
	r.deliverMessage(t.Context(), 1, "/a")
	r.consumer.cfg.Filer = filer
	r.deliverMessage(t.Context(), 2, "/b")
	r.tasks.Wait()

	if got := r.channel.sortAcked(); !slices.Equal(got, []uint64{2}) ||
		len(r.channel.rejected) != 0 {
		t.Errorf("got the acknowledged %v and the rejected %v, want 2 and none", got,
			r.channel.rejected)
	}
}

// A broker can allow smaller frames than usual. Weir keeps as much of the letter as fits.
func TestNewDeadLetter_FitsIntoASmallFrame(t *testing.T) {
	t.Parallel()
	problems := slices.Repeat(
		[]weir.Problem{{Path: "./x", Rule: "required", Message: strings.Repeat("m", 100)}}, 2000)
	long := strings.Repeat("p", 255)
	for frame, keepsHeader := range map[int]bool{4 << 10: false, 8 << 10: true, 64 << 10: true,
		128 << 10: true} {
		d := newDelivery(amqp.Table{"own": strings.Repeat("h", 1000)})
		d.ContentType, d.ContentEncoding, d.CorrelationId, d.ReplyTo, d.MessageId, d.Type, d.AppId =
			long, long, long,
			long, long, long, long
		letter := newDeadLetter(long, d,
			&weir.Error{Kind: weir.Invalid, Message: strings.Repeat("é", 3000),
				Problems: problems}, testNow, frame)
		if size := estimateSize(letter.Headers) + estimateProperties(&letter); size > frame {
			t.Errorf("frames of %d bytes: the letter takes %d", frame, size)
		}

		text, _ := letter.Headers[errorHeader].(string)
		if hasHeader := letter.Headers["own"] != nil; hasHeader != keepsHeader ||
			!strings.HasPrefix(text, "éé") ||
			!strings.HasPrefix(letter.Headers[problemsHeader].(string), "[") {
			t.Errorf("frames of %d bytes: got %v, want the reason, the problems, and the own header: %v", frame,
				letter.Headers, keepsHeader)
		}
	}
}

func TestNewDeadLetter_FitsIntoAFrame(t *testing.T) {
	t.Parallel()
	problems := slices.Repeat(
		[]weir.Problem{{Path: "./x", Rule: "required", Message: strings.Repeat("m", 100)}}, 2000)
	d := newDelivery(amqp.Table{"large": strings.Repeat("h", 80<<10),
		"nested": amqp.Table{"list": []any{[]byte("x")}}})
	d.Expiration, d.UserId, d.RoutingKey = "5", "somebody", "r"
	letter := newDeadLetter("q", d,
		&weir.Error{Kind: weir.Invalid, Message: "broken", Problems: problems}, testNow, 0)
	if size := estimateSize(letter.Headers); size > 128<<10-4096 || letter.Headers["large"] != nil {
		t.Errorf("the headers take %d bytes and have the message's own: %t; want less than a frame, without the "+
			"message's own headers", size, letter.Headers["large"] != nil)
	}

	if letter.Expiration != "" || letter.UserId != "" || letter.DeliveryMode != amqp.Persistent ||
		letter.Headers[errorHeader] != "broken" ||
		!strings.HasPrefix(letter.Headers[problemsHeader].(string), `[{"path"`) {
		t.Errorf("got %+v, want a persistent letter with the problems, without expiration and user",
			letter.Headers)
	}
}
