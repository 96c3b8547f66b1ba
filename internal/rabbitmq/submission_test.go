package rabbitmq

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"weir/internal/contract"
	"weir/internal/filing"
	"weir/internal/lane"
	"weir/internal/testkit/ziptest"
	"weir/internal/weir"
)

var testNow = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// fakeLanes is the log of a Filer. It calls file for each append.
type fakeLanes struct {
	file func(ctx context.Context, m weir.Message, key string) (lane.Receipt, error)
}

func (f *fakeLanes) Append(ctx context.Context, m weir.Message, key string) (lane.Receipt, error) {
	return f.file(ctx, m, key)
}

// oneCallback allows only callbacks to the host hooks.example.com.
type oneCallback struct{}

func (oneCallback) Check(address string) error {
	if !strings.HasPrefix(address, "https://hooks.example.com/") {
		return &weir.Error{Kind: weir.Invalid, Op: "callback",
			Message: "the callback is not allowed"}
	}
	return nil
}

// newTestConsumer returns a consumer with the contracts article and note.
func newTestConsumer(t *testing.T, lanes *fakeLanes) *Consumer {
	t.Helper()
	set, err := contract.New([]contract.Definition{
		{Name: "article", Root: "article", Key: contract.KeyPaths{"./@path"}, Version: "./@version",
			Fields: []contract.Field{{Path: "./title", Rule: "required,max=20"}}},
		{Name: "note", Root: "note"},
	}, contract.Limits{MaxBody: 1000})
	if err != nil {
		t.Fatal(err)
	}

	return New(Config{RequiresMessageID: true, Now: func() time.Time { return testNow },
		Log:   slog.New(slog.DiscardHandler),
		Filer: &filing.Filer{Contracts: set, Callbacks: oneCallback{}, Log: lanes}})
}

var articles = Queue{Name: "articles", Contract: "article"}

const goodBody = `<article path="/a" version="1"><title>T</title></article>`

func newDelivery(headers amqp.Table) *amqp.Delivery {
	return &amqp.Delivery{MessageId: "m-1", ContentType: "application/xml", Body: []byte(goodBody),
		Headers: headers}
}

func TestValidate_Accepts(t *testing.T) {
	t.Parallel()
	const seconds = 1893456000 // 2030-01-01T00:00:00Z
	for name, c := range map[string]struct {
		headers amqp.Table
		dueAt   time.Time
	}{
		"None":   {nil, time.Time{}},
		"Int64":  {amqp.Table{"perform_job_at": int64(seconds + 60)}, testNow.Add(time.Minute)},
		"Int32":  {amqp.Table{"perform_job_at": int32(seconds)}, testNow},
		"Uint32": {amqp.Table{"perform_job_at": uint32(seconds)}, testNow},
		"Fraction": {amqp.Table{"perform_job_at": seconds + 0.25},
			testNow.Add(250 * time.Millisecond)},
		"Micro": {amqp.Table{"perform_job_at": seconds + 0.000001},
			testNow.Add(time.Microsecond)},
		"Decimal": {amqp.Table{"perform_job_at": amqp.Decimal{Scale: 1, Value: 5}},
			time.Unix(0, 5e8).UTC()},
		"Past": {amqp.Table{"perform_job_at": -5.5}, time.Unix(0, 0).UTC()},
		"At": {amqp.Table{"Weir-Deliver-At": "2030-01-01T08:00:00+01:00"},
			testNow.Add(7 * time.Hour)},
		"LowerCase": {amqp.Table{"weir-deliver-at": "2030-01-01T00:00:01Z"},
			testNow.Add(time.Second)},
		"After":   {amqp.Table{"Weir-Deliver-After": "PT90S"}, testNow.Add(90 * time.Second)},
		"SameKey": {amqp.Table{"idempotency-key": "m-1"}, time.Time{}},
		"Foreign": {amqp.Table{"x-death": []any{amqp.Table{"count": int64(1)}},
			"x-weir-problems": "[]", "job": nil}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDelivery(c.headers)
			m, err := newTestConsumer(t, nil).validate(t.Context(), articles, d)
			if err != nil || m.Key != "/a" || m.Contract != "article" || !m.DueAt.Equal(c.dueAt) ||
				string(m.Body) != goodBody {
				t.Errorf("got %+v, %v; want the key /a, due at %s, and no error", m, err, c.dueAt)
			}
		})
	}
}

func TestValidate_ContinuesTheTrace(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	d := newDelivery(amqp.Table{"traceparent": parent, "tracestate": "vendor=a1",
		"Weir-Callback": "https://hooks.example.com/1"})
	m, err := newTestConsumer(t, nil).validate(t.Context(), articles, d)
	if err != nil || m.TraceParent != parent || m.TraceState != "vendor=a1" || m.Callback == "" {
		t.Errorf("got %q, %q, callback %q, %v; want the publisher's trace and a callback",
			m.TraceParent, m.TraceState, m.Callback, err)
	}
}

// badDelivery changes a valid delivery so that Weir refuses it for good.
type badDelivery struct {
	change func(*amqp.Delivery)
	kind   weir.Kind
	want   string // part of the error's message or of its problems
}

// withHeader returns a change that sets this header and removes all others.
func withHeader(name string, value any) func(*amqp.Delivery) {
	return func(d *amqp.Delivery) { d.Headers = amqp.Table{name: value} }
}

func withBody(body string) func(*amqp.Delivery) {
	return func(d *amqp.Delivery) { d.Body = []byte(body) }
}

// Short names of the kinds of refusals in the following tables.
const (
	malformed, unsupported = weir.Malformed, weir.Unsupported
	tooLarge, invalid      = weir.TooLarge, weir.Invalid
)

var badHeaders = map[string]badDelivery{
	"Due: text":      {withHeader("perform_job_at", "1893456000"), malformed, "and is a text"},
	"Due: bytes":     {withHeader("perform_job_at", []byte("1")), malformed, "and is a text"},
	"Due: boolean":   {withHeader("perform_job_at", true), malformed, "and is a boolean"},
	"Due: void":      {withHeader("perform_job_at", nil), malformed, "and is void"},
	"Due: timestamp": {withHeader("perform_job_at", testNow), malformed, "and is a timestamp"},
	"Due: table":     {withHeader("perform_job_at", amqp.Table{}), malformed, "and is a table"},
	"Due: list": {withHeader("perform_job_at", []any{int64(1)}), malformed,
		"and is a list"},
	"Due: not a number": {withHeader("perform_job_at", math.NaN()), malformed, "is not a number"},
	"Due: infinite": {withHeader("perform_job_at", math.Inf(1)), malformed,
		"after the year 9999"},
	"Due: milliseconds": {withHeader("perform_job_at", int64(1893456000000)), malformed,
		"counts seconds since 1970"},
	"Due: largest": {withHeader("perform_job_at", uint64(math.MaxUint64)), malformed,
		"after the year 9999"},
	"Due: other case": {withHeader("Perform_Job_At", int64(1)), malformed,
		"did you mean perform_job_at"},
	"Due: hyphens": {withHeader("perform-job-at", int64(1)), malformed,
		"did you mean perform_job_at"},
	"Due: camel case": {withHeader("performJobAt", int64(1)), malformed,
		"did you mean perform_job_at"},
	"At: number": {withHeader("Weir-Deliver-At", int64(5)), malformed,
		"must be a text, and is a number"},
	"At: no offset": {withHeader("Weir-Deliver-At", "2030-01-31T08:00:00"), malformed,
		"RFC 3339"},
	"At: empty": {withHeader("Weir-Deliver-At", ""), malformed, "RFC 3339"},
	"After: word": {withHeader("Weir-Deliver-After", "soon"), malformed,
		"neither a duration"},
	"After: nothing":  {withHeader("Weir-Deliver-After", "PT"), malformed, "neither a duration"},
	"After: negative": {withHeader("Weir-Deliver-After", "-1s"), malformed, "is negative"},
	"Unknown":         {withHeader("Weir-Key", "/a"), malformed, "there is no header Weir-Key"},
	"Misspelt": {withHeader("weir_deliver_at", ""), malformed,
		"did you mean Weir-Deliver-At"},
	"No prefix": {withHeader("deliver-at", int64(5)), malformed,
		"did you mean Weir-Deliver-At"},
	"Key": {withHeader("Idempotency-Key", "m-2"), malformed, "message_id"},
	"Misspelt key": {withHeader("x-idempotency-key", "m-1"), malformed,
		"did you mean Idempotency-Key"},
	"Callback: foreign": {withHeader("Weir-Callback", "https://evil.example/"), invalid,
		"not allowed"},
	"Callback: a table": {withHeader("Weir-Callback", amqp.Table{}), malformed,
		"must be a text, and is a table"},
	"Callback: two": {withHeaders("Weir-Callback", "weir-callback", "https://a.example/"),
		malformed, "only once"},
	"At and after": {withHeaders("Weir-Deliver-At", "Weir-Deliver-After", "90s"), malformed,
		"only one"},
	"Twice by case": {withHeaders("Weir-Deliver-At", "weir-deliver-at", "90s"), malformed,
		"only once"},
	"Due and at": {withDueAnd("Weir-Deliver-At", "2030-01-01T08:00:00Z"), malformed,
		"only one"},
	"Due and after": {withDueAnd("Weir-Deliver-After", "90s"), malformed, "only one"},
}

// withHeaders returns a change that sets both headers to one value and removes all other headers.
func withHeaders(first, second, value string) func(*amqp.Delivery) {
	return func(d *amqp.Delivery) { d.Headers = amqp.Table{first: value, second: value} }
}

// withDueAnd returns a change that sets perform_job_at and this header, and removes all others.
func withDueAnd(name, value string) func(*amqp.Delivery) {
	return func(d *amqp.Delivery) {
		d.Headers = amqp.Table{"perform_job_at": int64(1893456000),
			name: value}
	}
}

var badProperties = map[string]badDelivery{
	"Id: missing": {func(d *amqp.Delivery) { d.MessageId = "" }, malformed,
		"message_id is missing"},
	"Id: space":      {func(d *amqp.Delivery) { d.MessageId = "a b" }, malformed, "visible ASCII"},
	"Id: umlaut":     {func(d *amqp.Delivery) { d.MessageId = "ä" }, malformed, "visible ASCII"},
	"Id: line break": {func(d *amqp.Delivery) { d.MessageId = "a\n" }, malformed, "visible ASCII"},
	"Encoding: gzip": {func(d *amqp.Delivery) { d.ContentEncoding = "gzip" }, malformed,
		"not compressed by gzip"},
	"Encoding: twice": {func(d *amqp.Delivery) { d.ContentEncoding = "gzip,gzip" }, unsupported,
		"by gzip once"},
	"Encoding: long": {func(d *amqp.Delivery) { d.ContentEncoding = strings.Repeat("x", 99) },
		unsupported, `x…" is`},
	"Type: JSON": {func(d *amqp.Delivery) { d.ContentType = "application/json" }, unsupported,
		"application/json"},
	"Type: malformed": {func(d *amqp.Delivery) { d.ContentType = ";;" }, unsupported, ""},
}

var badBodies = map[string]badDelivery{
	"Empty":         {withBody(""), malformed, "empty"},
	"JSON":          {withBody(`{"a":1}`), malformed, ""},
	"Not closed":    {withBody("<article>"), malformed, "not closed"},
	"Too large":     {withBody("<article>" + strings.Repeat(" ", 1000)), tooLarge, "may have 1000"},
	"Document type": {withBody(`<!DOCTYPE article [<!ENTITY a "b">]>` + goodBody), malformed, ""},
	"Not UTF-8":     {withBody("<article>\xff</article>"), malformed, ""},
	"No contract":   {withBody("<order/>"), invalid, "no contract accepts"},
	"Other queue": {withBody("<note/>"), invalid,
		"the queue articles takes messages of the contract article"},
	"No key": {withBody(`<article version="1"><title>T</title></article>`), invalid,
		"ordering key is missing"},
	"No title": {withBody(`<article path="/a" version="1"/>`), invalid, ""},
	"Long title": {withBody(`<article path="/a"><title>` + strings.Repeat("x", 21) +
		`</title></article>`), invalid, ""},
}

// A packed message is validated unpacked, and bounded.
func TestValidate_UnpacksGzip(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body []byte
		kind weir.Kind
		want string
	}{
		"good":         {ziptest.Gzip(goodBody), 0, ""},
		"over maxBody": {ziptest.Gzip(goodBody + strings.Repeat(" ", 1<<17)), tooLarge, "over 131072 bytes"},
		"bomb":         {ziptest.Bomb(), tooLarge, "over 131072 bytes"},
		"gzip of gzip": {ziptest.Gzip(string(ziptest.Gzip(goodBody))), unsupported,
			"compressed by gzip"},
		"ends early": {ziptest.Gzip(goodBody)[:20], malformed, "ends early"},
	} {
		d := newDelivery(nil)
		d.ContentEncoding, d.Body = "gzip", c.body
		consumer := newTestConsumer(t, nil)
		consumer.cfg.MaxBody = 1 << 17
		got, err := consumer.validate(t.Context(), articles, d)
		if c.want == "" {
			if err != nil || string(got.Body) != goodBody {
				t.Errorf("%s: got %q, %v; want the unpacked body", name, got.Body, err)
			}
			continue
		}

		if text := safeMessage(err); !filing.IsRefusal(err) || weir.KindOf(err) != c.kind ||
			!strings.Contains(text, c.want) {
			t.Errorf("%s: got %v, want a refusal with %q", name, err, c.want)
		}
	}
}

func TestValidate_RefusesForGood(t *testing.T) {
	t.Parallel()
	for group, cases := range map[string]map[string]badDelivery{"Headers": badHeaders,
		"Properties": badProperties, "Bodies": badBodies} {
		for name, c := range cases {
			t.Run(group+"/"+name, func(t *testing.T) {
				t.Parallel()
				d := newDelivery(nil)
				c.change(d)
				_, err := newTestConsumer(t, nil).validate(t.Context(), articles, d)
				if err == nil || !filing.IsRefusal(err) || weir.KindOf(err) != c.kind {
					t.Fatalf("got %v (kind %d), want a refusal of the kind %d", err,
						weir.KindOf(err), c.kind)
				}

				if text := safeMessage(err) +
					encodeProblems(err, maxProblemsBytes); !strings.Contains(text, c.want) {
					t.Errorf("got %s, want %q in it", text, c.want)
				}
			})
		}
	}
}

func TestValidate_MessageIDMayBeOptional(t *testing.T) {
	t.Parallel()
	c := newTestConsumer(t, nil)
	c.cfg.RequiresMessageID = false
	d := newDelivery(nil)
	d.MessageId = ""
	if _, err := c.validate(t.Context(), articles, d); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}
