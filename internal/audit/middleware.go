package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	"weir/internal/httpio"
)

// change describes one kind of request. The entry of a request has only the parameters and fields
// that are named here, and the names are exact: the detail must never have a function key or a
// message's body, in whatever spelling.
type change struct {
	action     string   // "" = the request changes nothing
	parameters []string // parameters of the query; the Wrapper refuses all others
	// fields of the JSON body with simple values; "filter.key" is a field of the object "filter"
	fields []string
}

// changes has each change and the reveal, by the request's method and path pattern.
var changes = map[string]change{
	"DELETE /api/messages/{id}":       {"cancel", []string{"reason"}, nil},
	"PATCH /api/messages/{id}":        {"move", nil, []string{"deliverAt"}},
	"POST /api/messages/{id}/cancel":  {"cancel", []string{"reason"}, nil},
	"POST /api/messages/{id}/replay":  {"replay", []string{"force"}, nil},
	"POST /api/messages/{id}/edit":    {"edit", []string{"force", "note"}, nil},
	"POST /api/messages/{id}/erase":   {"erase", nil, nil},
	"POST /api/messages/{id}/reveal":  {"reveal", []string{"which", "as"}, nil},
	"POST /api/messages/{id}/discard": {"discard", []string{"reason"}, nil},
	"POST /api/cancellations": {"cancel.many", nil,
		append(bulkFields, "filter.keyPrefix", "filter.stage")},
	"POST /api/discards": {"discard.many", nil,
		append(bulkFields, "filter.fingerprint")},
	"POST /api/replays":        {"replay.many", nil, append(bulkFields, replayFields...)},
	"DELETE /api/replays/{id}": {"replay.stop", nil, nil},
	"DELETE /api/batches/{id}": {"batch.cancel", nil, nil},
	"POST /api/pause": {"pause", nil,
		[]string{"all", "lane", "key", "reason", "until", "for"}},
	"POST /api/resume":                   {"resume", nil, []string{"all", "lane", "key"}},
	"POST /api/versions/forget":          {"version.forget", nil, []string{"key", "contract"}},
	"POST /api/remembered/forget":        {"remembered.forget", nil, []string{"key", "contract"}},
	"PUT /api/schedules/{name}":          {"schedule.put", nil, scheduleFields},
	"DELETE /api/schedules/{name}":       {"schedule.delete", nil, nil},
	"POST /api/schedules/{name}/run":     {"schedule.run", nil, nil},
	"POST /api/schedules/{name}/pause":   {"schedule.pause", nil, nil},
	"POST /api/schedules/{name}/resume":  {"schedule.resume", nil, nil},
	"POST /api/schedules/{name}/preview": {"", []string{"count"}, nil},
}

var (
	bulkFields = slices.Clip([]string{"reason", "dryRun", "filter.all", "filter.key",
		"filter.contract", "filter.lane", "filter.from", "filter.to"})
	replayFields   = []string{"force", "ratePerMinute", "stopAtErrorRate", "filter.fingerprint"}
	scheduleFields = []string{"name", "cron", "timeZone", "messageId", "contentType", "overlap",
		"missed", "paused", "start", "end"}
)

// Wrapper records the changes that requests make.
type Wrapper struct {
	Log *Log
	// SignIn has the paths on which the platform authenticates users.
	SignIn SignIn
	// Proofs checks the proofs of sign-in that the page sends to open paths; nil = a proof is
	// ignored.
	Proofs *Proofs
	// Pace limits the changes of each key; nil = no limit.
	Pace *Pace
}

// SignIn describes the sign-in in front of the app. On a path that needs sign-in, the platform sets
// the header X-MS-CLIENT-PRINCIPAL-NAME. On all other paths, any client can send the header, so it
// proves no identity there.
type SignIn struct {
	IsRequired bool
	// paths that need no sign-in; an element that ends in "/*" is all paths below
	OpenPaths []string
}

// DefaultOpenPaths are the open paths of the template; see infra/main.bicep.
var DefaultOpenPaths = []string{"/api/batches", "/api/batches/*", "/api/health", "/api/messages",
	"/api/messages/*",
	"/api/metrics", "/api/openapi.json", "/api/openapi.yaml", "/api/schedules", "/api/schedules/*",
	"/api/validate"}

// protects reports whether the platform authenticates the sender of each request to the path.
func (s SignIn) protects(path string) bool {
	return s.IsRequired && !slices.ContainsFunc(s.OpenPaths, func(open string) bool {
		if folder, isFolder := strings.CutSuffix(open, "*"); isFolder {
			return len(path) >= len(folder) && strings.EqualFold(path[:len(folder)], folder)
		}
		return strings.EqualFold(path, open)
	})
}

// Wrap returns a handler that passes requests on to next, and records each change before the
// answer, but no dry run. A status below 300 means that the request made a change. A status of 500
// or more means that the request possibly made a change, so the handler records this request, too.
// The parameter "function" becomes Entry.Function.
//
// The handler refuses a change of a key that makes too many; see Pace. It also refuses a change
// with a query parameter that the change does not have: it would have no effect, and no entry would
// show it.
func (w Wrapper) Wrap(function string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			next.ServeHTTP(rw, r)
			return
		}

		c := changeOf(r)
		if err := httpio.CheckQuery(r, c.parameters...); err != nil {
			httpio.WriteError(rw, r, w.Log.Logger, err)
			return
		}

		if c.action == "" {
			next.ServeHTTP(rw, r)
			return
		}

		author := w.identify(r)
		r.Header.Del(ProofHeader) // the handlers refuse headers that they do not know
		keyID := author.KeyID
		if err := w.Pace.check(function, keyID, w.Log.Now()); err != nil {
			httpio.WriteError(rw, r, w.Log.Logger, err)
			return
		}

		body := &capturedBody{ReadCloser: r.Body}
		r.Body = body
		rec := &recordingWriter{ResponseWriter: rw, record: func(status int) {
			if status < http.StatusMultipleChoices || status >= http.StatusInternalServerError {
				if e := w.entryOf(r, author, function, c, status, body); !e.isDryRun() {
					w.Pace.count(function, keyID, w.Log.Now())
					w.Log.Record(r.Context(), e)
				}
			}
		}}

		next.ServeHTTP(rec, r)
	})
}

// changeOf returns the change of a request. If the map "changes" has no entry for the request, the
// action is the method and the pattern, and no parameter is known.
func changeOf(r *http.Request) change {
	name := r.Method + " " + r.Pattern
	c, isKnown := changes[name]
	if !isKnown {
		return change{action: name}
	}
	return c
}

// AuthorOf returns the author of a change that the request makes; see Entry.Author.
func (w Wrapper) AuthorOf(r *http.Request) string {
	return w.identify(r).Author()
}

// FingerprintOf returns the fingerprint of a request's function key; "" = the request has no key.
func (w Wrapper) FingerprintOf(r *http.Request) string { return w.identify(r).KeyID }

// Fingerprint returns the first 32 bits of a key's SHA-256 in hexadecimal. For an empty key it
// returns "". Function keys have far more random bits, so a key cannot be computed from its
// fingerprint.
func Fingerprint(key string) string {
	if key == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:4])
}

// identify returns an entry that has only the Principal and the KeyID of a request.
func (w Wrapper) identify(r *http.Request) Entry {
	e := Entry{KeyID: Fingerprint(httpio.FunctionKey(r))}
	switch {
	case w.SignIn.protects(r.URL.Path):
		e.Principal = r.Header.Get("X-MS-CLIENT-PRINCIPAL-NAME")
	case w.SignIn.IsRequired && w.Proofs != nil:
		e.Principal = w.Proofs.Check(r.Context(), r.Header.Get(ProofHeader))
	}

	return e
}

// ProofFor returns a proof for the person who has signed in and sends a request, or "" if the
// platform does not authenticate the sender of the request.
func (w Wrapper) ProofFor(r *http.Request) string {
	person := r.Header.Get("X-MS-CLIENT-PRINCIPAL-NAME")
	if !w.SignIn.protects(r.URL.Path) || w.Proofs == nil || person == "" {
		return ""
	}

	proof, err := w.Proofs.Sign(r.Context(), person)
	if err != nil {
		w.Log.Logger.WarnContext(r.Context(), "audit: no proof of sign-in", "err", err)
	}

	return proof
}

// entryOf returns the entry of a change. The argument e has the author of the change.
func (w Wrapper) entryOf(r *http.Request, e Entry, function string, c change, status int,
	body *capturedBody) Entry {
	e.Action, e.Subject, e.Detail = c.action, r.PathValue("id")+r.PathValue("name"),
		body.describeParameters(r, c)
	e.Function, e.Status, e.From, e.Invocation = function, status, originOf(r),
		httpio.InvocationID(r)
	return e
}

// isDryRun reports whether the request only counted. The handlers refuse a body that has the field
// twice or in another case, so the entry and the handler have the same value.
func (e *Entry) isDryRun() bool {
	var detail struct {
		DryRun bool `json:"dryRun"`
	}
	return json.Unmarshal([]byte(e.Detail), &detail) == nil && detail.DryRun
}

// maxFrom limits the bytes of Entry.From.
const maxFrom = 256

// originOf returns the addresses of the client and of proxies. The platform appends the address
// that it sees, so originOf shortens a long list from its beginning.
func originOf(r *http.Request) string {
	from := strings.Join(r.Header.Values("X-Forwarded-For"), ", ")
	if from == "" {
		return r.RemoteAddr
	}
	if len(from) > maxFrom {
		return "…" + strings.ToValidUTF8(from[len(from)-maxFrom:], "")
	}

	return from
}

// maxCaptured limits the bytes of a request body that capturedBody keeps.
const maxCaptured = 64 << 10

// capturedBody keeps the beginning of a request body while the handler reads the body.
type capturedBody struct {
	io.ReadCloser
	kept bytes.Buffer
	size int // bytes that the handler has read
}

func (b *capturedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.size += n
	b.kept.Write(p[:min(n, max(0, maxCaptured-b.kept.Len()))])
	return n, err
}

// describeParameters returns the parameters of a change as a JSON object: the fields of a JSON body
// and the parameters of the query that the change names, and the header If-Match. In place of a
// message, the object has the message's size. In place of a body that is not JSON, it has the
// body's size. If the object would be longer than maxText, describeParameters returns only the size
// of the body.
func (b *capturedBody) describeParameters(r *http.Request, c change) string {
	detail, isJSON := b.readFields(c.fields)
	if !isJSON && b.size > 0 {
		detail = map[string]any{"bodyBytes": b.size}
	}

	query := r.URL.Query()
	for _, name := range c.parameters {
		if query.Has(name) {
			detail[name] = query.Get(name)
		}
	}

	if version := r.Header.Get("If-Match"); version != "" {
		detail["ifMatch"] = version
	}

	if len(detail) == 0 {
		return ""
	}

	text, err := json.Marshal(detail)
	if err != nil {
		return ""
	}

	if len(text) > maxText {
		text, _ = json.Marshal(map[string]any{"bodyBytes": b.size, "truncated": true})
	}

	return string(text)
}

// readFields returns the named fields of the body. It reports false if the change has no JSON body,
// or if the body is not a JSON object as a whole.
func (b *capturedBody) readFields(names []string) (fields map[string]any, isJSON bool) {
	fields = map[string]any{}
	var body map[string]json.RawMessage
	if len(names) == 0 || json.Unmarshal(b.kept.Bytes(), &body) != nil {
		return fields, false
	}

	var filter map[string]json.RawMessage
	_ = json.Unmarshal(body["filter"], &filter) // without a filter, no field of it is found
	chosen := map[string]any{}
	for _, name := range names {
		if inner, isOfFilter := strings.CutPrefix(name, "filter."); isOfFilter && filter != nil {
			addSimple(chosen, inner, filter[inner])
			fields["filter"] = chosen // an empty filter selects all messages
			continue
		}
		addSimple(fields, name, body[name])
	}

	var message string
	if json.Unmarshal(body["message"], &message) == nil {
		fields["messageBytes"] = len(message)
	}

	return fields, true
}

// addSimple adds a field whose value is a text, a number or a truth value.
func addSimple(fields map[string]any, name string, value json.RawMessage) {
	if len(value) == 0 || value[0] == '{' || value[0] == '[' || string(value) == "null" {
		return
	}
	fields[name] = value
}

// recordingWriter calls record with the status before it sends the answer.
type recordingWriter struct {
	http.ResponseWriter
	record func(status int)
	begun  bool
}

// Unwrap lets http.ResponseController find the interfaces that the writer does not implement.
func (w *recordingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recordingWriter) WriteHeader(status int) {
	if !w.begun && status >= http.StatusOK {
		w.begun = true
		w.record(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recordingWriter) Write(p []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}
