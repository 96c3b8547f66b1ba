package host_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"weir/internal/invoke"
	"weir/internal/testkit/azurite"
	"weir/tools/funchost/host"
)

// queueRig is a rig with one queue function, q, on a queue of its own.
type queueRig struct {
	*rig
	queue, poison *azqueue.QueueClient
}

var queueNumber atomic.Int64

// newQueueRig returns a rig whose host is not started. The argument "settings" has the members of
// extensions.queues in host.json. The rig sets o.functions and o.hostJSON itself.
func newQueueRig(t *testing.T, settings map[string]any, o rigOptions) *queueRig {
	t.Helper()
	connection := azurite.Shared(t)
	service, err := azqueue.NewServiceClientFromConnectionString(connection, nil)
	if err != nil {
		t.Fatal(err)
	}

	prefix := fmt.Sprintf("t%d-%d", time.Now().UnixNano(), queueNumber.Add(1))
	o.functions = map[string]string{
		"q": `{"bindings":[{"type":"queueTrigger","direction":"in","name":"item","queueName":"%PREFIX%-work",` +
			`"connection":"Store"}]}`,
	}

	queues := map[string]any{"maxPollingInterval": "00:00:02"}
	maps.Copy(queues, settings)
	o.hostJSON = map[string]any{"extensions": map[string]any{"queues": queues}}
	o.env = append(o.env, "PREFIX="+prefix, "Store="+connection)
	q := &queueRig{newRig(t, o), service.NewQueueClient(prefix + "-work"),
		service.NewQueueClient(prefix + "-work-poison")}
	if _, err := q.queue.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}

	return q
}

func (q *queueRig) enqueueTexts(texts ...string) {
	q.t.Helper()
	for _, text := range texts {
		q.enqueueRaw(base64.StdEncoding.EncodeToString([]byte(text)))
	}
}

func (q *queueRig) enqueueRaw(text string) {
	q.t.Helper()
	if _, err := q.queue.EnqueueMessage(q.t.Context(), text, nil); err != nil {
		q.t.Fatal(err)
	}
}

// countMessages returns the number of messages in a queue, including hidden messages. It returns -1
// if the queue cannot be read, for example because the queue does not exist.
func (q *queueRig) countMessages(of *azqueue.QueueClient) int {
	res, err := of.GetProperties(q.t.Context(), nil)
	if err != nil {
		return -1
	}
	return int(*res.ApproximateMessagesCount)
}

func (q *queueRig) awaitEmpty() {
	q.t.Helper()
	awaitCondition(q.t, "the queue is empty", func() bool { return q.countMessages(q.queue) == 0 })
}

func (q *queueRig) readPoison() string {
	q.t.Helper()
	var text string
	awaitCondition(q.t, "a poison message", func() bool {
		res, err := q.poison.PeekMessage(q.t.Context(), nil)
		if err != nil || len(res.Messages) == 0 {
			return false
		}
		text = *res.Messages[0].MessageText
		return true
	})

	return text
}

func decodeInvocation(t *testing.T, c handlerCall) (invoke.Invocation, string) {
	t.Helper()
	inv, err := invoke.Decode(strings.NewReader(c.Body))
	if err != nil {
		t.Fatal(err)
	}

	text, err := inv.Text("item")
	if err != nil {
		t.Fatal(err)
	}

	return inv, text
}

func TestQueue_SuccessDeletes(t *testing.T) {
	t.Parallel()
	q := newQueueRig(t, nil, rigOptions{})
	q.startHost()
	q.enqueueTexts(`weir "lane" 1.0 ä`)
	c := q.nextCall()
	inv, text := decodeInvocation(t, c)
	if text != `weir "lane" 1.0 ä` || inv.Meta("DequeueCount") != "1" || inv.Meta("Id") == "" {
		t.Errorf("text %q, metadata %q %q, want weir \"lane\" 1.0 ä, a DequeueCount of 1 and an Id",
			text, inv.Meta("DequeueCount"),
			inv.Meta("Id"))
	}

	if c.Method != "POST" || c.URI != "/q" || !c.Chunked ||
		c.Header.Get("Content-Type") != "application/json; charset=utf-8" ||
		c.Header.Get("X-Azure-Functions-InvocationId") == "" {
		t.Errorf("the handler got %+v, want Method POST, URI /q, Chunked true, Content-Type \"application/json; "+
			"charset=utf-8\" and an X-Azure-Functions-InvocationId", c)
	}

	q.awaitEmpty()
	if n := q.countMessages(q.poison); n != -1 {
		t.Errorf("the poison queue has %d messages; want no poison queue", n)
	}

	if n := q.host.Status().Transactions; n["queue get"] < 1 || n["queue delete"] != 1 {
		t.Errorf("the host's own transactions: %v, want a get and one delete", n)
	}
}

func TestQueue_FieldsOverwriteMetadata(t *testing.T) {
	t.Parallel()
	q := newQueueRig(t, nil, rigOptions{})
	q.startHost()
	q.enqueueTexts(`{"id":"forged","n":42,"yes":true,"list":[1],"none":null,"o":{"a":1},"myTrigger":"x"}`)
	inv, _ := decodeInvocation(t, q.nextCall())
	for name, want := range map[string]string{"Id": "forged", "n": "42", "yes": "True", "list": "",
		"none": "", "o": "", "myTrigger": ""} {
		if got := inv.Meta(name); got != want {
			t.Errorf("%s = %q; want %q", name, got, want)
		}
	}

	if string(inv.Metadata["o"]) != `{"a":1}` {
		t.Errorf("got o = %s, want {\"a\":1}", inv.Metadata["o"])
	}

	if _, ok := inv.Metadata["id"]; ok {
		t.Errorf("got the metadata %v, want the key spelled as in the message", inv.Metadata)
	}
}

func TestQueue_FailuresEndInPoison(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]handlerOrder{
		"Status500":    {Status: 500},
		"Empty204":     {Status: 204, NoBody: true},
		"EmptyOK":      {NoBody: true},
		"NullOK":       {Body: "null"},
		"PlainText":    {Type: "text/plain", Body: "{}"},
		"MalformedOK":  {Body: "{"},
		"ArrayOK":      {Body: "[]"},
		"WrongMembers": {Body: `{"Logs":"no array"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueueRig(t, map[string]any{"maxDequeueCount": 3},
				rigOptions{decide: func(handlerCall) handlerOrder { return o }})
			q.startHost()
			q.enqueueTexts("hello")
			if got, want := q.readPoison(), base64.StdEncoding.EncodeToString([]byte("hello")); got != want {
				t.Errorf("poison message %q; want %q", got, want)
			}

			q.awaitEmpty()

			for n := range 3 {
				inv, _ := decodeInvocation(t, q.nextCall())
				if got := inv.Meta("DequeueCount"); got != string(rune('1'+n)) {
					t.Errorf("call %d has dequeue count %s, want %d", n+1, got, n+1)
				}
			}

			if len(q.calls) != 0 {
				t.Errorf("got %d calls more than three, want none", len(q.calls))
			}
		})
	}
}

func TestQueue_PoisonWakesItsListener(t *testing.T) {
	t.Parallel()
	q := newQueueRig(t, map[string]any{"maxDequeueCount": 1, "maxPollingInterval": "01:00:00"},
		rigOptions{decide: func(c handlerCall) handlerOrder {
			if c.URI == "/q" {
				return handlerOrder{Status: 500}
			}
			return handlerOrder{}
		}})

	q.writeFile("p/function.json",
		`{"bindings":[{"type":"queueTrigger","direction":"in","name":"item",`+
			`"queueName":"%PREFIX%-work-poison","connection":"Store"}]}`)
	if _, err := q.poison.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}

	q.startHost()
	q.enqueueTexts("hello")
	if c := q.nextCall(); c.URI != "/q" {
		t.Errorf("first %s was called, want /q", c.URI)
	}

	if c := q.nextCall(); c.URI != "/p" {
		t.Errorf("then %s was called, want /p", c.URI)
	}

	awaitCondition(t, "the poison queue is empty",
		func() bool { return q.countMessages(q.poison) == 0 })
}

func TestQueue_VisibilityTimeoutDelaysTheRetry(t *testing.T) {
	t.Parallel()
	var first atomic.Bool
	q := newQueueRig(t, map[string]any{"visibilityTimeout": "00:00:02"},
		rigOptions{decide: func(handlerCall) handlerOrder {
			if first.CompareAndSwap(false, true) {
				return handlerOrder{Status: 500}
			}
			return handlerOrder{}
		}})

	q.startHost()
	q.enqueueTexts("hello")
	q.nextCall()
	failed := time.Now()
	q.nextCall()
	if d := time.Since(failed); d < time.Second {
		t.Errorf("tried again after %v; want 2 s", d)
	}

	q.awaitEmpty()
}

func TestQueue_NotBase64(t *testing.T) {
	t.Parallel()
	q := newQueueRig(t, nil, rigOptions{})
	q.startHost()
	q.enqueueRaw("plain text!")
	if got := q.readPoison(); got != "plain text!" {
		t.Errorf("poison message %q, want \"plain text!\"", got)
	}

	if len(q.calls) != 0 {
		t.Errorf("the function got %d calls, want none", len(q.calls))
	}
}

func TestQueue_EncodingNone(t *testing.T) {
	t.Parallel()
	q := newQueueRig(t, map[string]any{"messageEncoding": "none"}, rigOptions{})
	q.startHost()
	q.enqueueRaw("plain text!")
	if _, text := decodeInvocation(t, q.nextCall()); text != "plain text!" {
		t.Errorf("text %q, want \"plain text!\"", text)
	}

	q.awaitEmpty()
}

func TestQueue_Concurrency(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	now, most := 0, 0
	arrived, release := make(chan struct{}, 20), make(chan struct{})
	q := newQueueRig(t, map[string]any{"batchSize": 2, "newBatchThreshold": 1},
		rigOptions{decide: func(handlerCall) handlerOrder {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			arrived <- struct{}{}
			<-release
			mu.Lock()
			now--
			mu.Unlock()

			return handlerOrder{}
		}})

	q.enqueueTexts("1", "2", "3", "4", "5", "6", "7", "8")
	q.startHost()
	<-arrived
	<-arrived // the first batch; the listener polls again when one of these messages is done
	release <- struct{}{}
	<-arrived
	<-arrived
	close(release)
	q.awaitEmpty()
	if most != 3 {
		t.Errorf("at most %d at once; want batchSize + newBatchThreshold = 3", most)
	}
}

func TestQueue_RenewsTheLease(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})

	// On a busy machine a renewal takes seconds, and half a lease is left for it.
	q := newQueueRig(t, nil, rigOptions{cfg: host.Config{MessageLease: 20 * time.Second, Instances: 2},
		decide: func(handlerCall) handlerOrder { <-release; return handlerOrder{} }})
	q.startHost()
	q.enqueueTexts("hello")
	q.nextCall()

	select { // wait for more than two leases
	case c := <-q.calls:
		t.Errorf("the message came again: %s, want it once", c.Body)
	case <-time.After(41 * time.Second):
	}

	close(release)
	q.awaitEmpty() // the delete succeeds only with the receipt of the last renewal
}

func TestQueue_CrashLeavesTheMessageHidden(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	defer close(hang)
	var calls atomic.Int64
	q := newQueueRig(t, nil, rigOptions{cfg: host.Config{MessageLease: 6 * time.Second},
		decide: func(handlerCall) handlerOrder {
			if calls.Add(1) == 1 {
				<-hang
			}
			return handlerOrder{}
		}})

	q.startHost()
	q.enqueueTexts("hello")
	q.nextCall()
	began := time.Now()
	q.sendRequest("DELETE", "/admin/host/instances/1", "")
	q.sendRequest("POST", "/admin/host/instances", "")
	inv, _ := decodeInvocation(t, q.nextCall())
	if d := time.Since(began); d < 1400*time.Millisecond {
		t.Errorf("the message came again after %v; want the rest of the lease", d)
	}

	if got := inv.Meta("DequeueCount"); got != "2" {
		t.Errorf("dequeue count %s; want 2", got)
	}

	q.awaitEmpty()
}

func TestQueue_HandlerThatExitsFailsTheMessage(t *testing.T) {
	t.Parallel()
	code := 200
	var calls atomic.Int64
	q := newQueueRig(t, map[string]any{"visibilityTimeout": "00:00:01"},
		rigOptions{decide: func(handlerCall) handlerOrder {
			if calls.Add(1) == 1 {
				return handlerOrder{Exit: &code}
			}
			return handlerOrder{}
		}})

	q.startHost()
	q.enqueueTexts("hello")
	first, second := q.nextCall(), q.nextCall()
	if first.PID == second.PID {
		t.Errorf("both calls went to process %d, want two processes", first.PID)
	}

	q.awaitEmpty()
}

func TestQueue_CreatedLater(t *testing.T) {
	t.Parallel()
	q := newQueueRig(t, nil, rigOptions{})
	if _, err := q.queue.Delete(t.Context(), nil); err != nil {
		t.Fatal(err)
	}

	q.startHost()
	awaitCondition(t, "the missing queue is noticed",
		func() bool { return strings.Contains(q.out.String(), "cannot be polled: 404") })
	if _, err := q.queue.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}

	q.enqueueTexts("hello")
	q.nextCall()
	q.awaitEmpty()
}

func TestQueue_Traceparent(t *testing.T) {
	t.Parallel()
	q := newQueueRig(t, nil, rigOptions{cfg: host.Config{Traceparent: true}})
	q.startHost()
	q.enqueueTexts("x")
	checkTraceparent(t, q.nextCall(), true)
}
