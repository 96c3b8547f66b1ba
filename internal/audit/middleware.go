package audit

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strings"

	"weir/internal/httpio"
)

// actions has the name of each change and of the reveal, by the request's method and path pattern. An empty name means
// that the request changes nothing.
var actions = map[string]string{
	"DELETE /api/messages/{id}":          "cancel",
	"PATCH /api/messages/{id}":           "move",
	"POST /api/messages/{id}/cancel":     "cancel",
	"POST /api/messages/{id}/replay":     "replay",
	"POST /api/messages/{id}/edit":       "edit",
	"POST /api/messages/{id}/erase":      "erase",
	"POST /api/messages/{id}/reveal":     "reveal",
	"POST /api/messages/{id}/discard":    "discard",
	"POST /api/cancellations":            "cancel.many",
	"POST /api/discards":                 "discard.many",
	"POST /api/replays":                  "replay.many",
	"DELETE /api/replays/{id}":           "replay.stop",
	"DELETE /api/batches/{id}":           "batch.cancel",
	"POST /api/pause":                    "pause",
	"POST /api/resume":                   "resume",
	"POST /api/versions/forget":          "version.forget",
	"POST /api/remembered/forget":        "remembered.forget",
	"PUT /api/schedules/{name}":          "schedule.put",
	"DELETE /api/schedules/{name}":       "schedule.delete",
	"POST /api/schedules/{name}/run":     "schedule.run",
	"POST /api/schedules/{name}/pause":   "schedule.pause",
	"POST /api/schedules/{name}/resume":  "schedule.resume",
	"POST /api/schedules/{name}/preview": "",
}

// Wrapper records the changes that requests make.
type Wrapper struct {
	Log *Log
	// HasSignIn is set if the platform authenticates users. The platform then sets the header
	// X-MS-CLIENT-PRINCIPAL-NAME. If HasSignIn is not set, the Wrapper ignores that header, because any client can send
	// the header.
	HasSignIn bool
}

// Wrap returns a handler that passes requests on to next, and records each change before the answer. A status below 300
// means that the request made a change. A status of 500 or more means that the request possibly made a change, so the
// handler records this request, too. The parameter "function" becomes Entry.Function.
func (w Wrapper) Wrap(function string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		action := actionOf(r)
		if r.Method == http.MethodGet || r.Method == http.MethodHead || action == "" {
			next.ServeHTTP(rw, r)
			return
		}
		body := &capturedBody{ReadCloser: r.Body}
		r.Body = body
		rec := &recordingWriter{ResponseWriter: rw, record: func(status int) {
			if status < http.StatusMultipleChoices || status >= http.StatusInternalServerError {
				w.Log.Record(r.Context(), w.entryOf(r, function, action, status, body))
			}
		}}
		next.ServeHTTP(rec, r)
	})
}

// actionOf returns the name of a request's change, or "" if the request changes nothing. If the map "actions" has no
// entry for the request, actionOf returns the method and the pattern.
func actionOf(r *http.Request) string {
	name := r.Method + " " + r.Pattern
	action, known := actions[name]
	if !known {
		return name
	}
	return action
}

// AuthorOf returns the author of a change that the request makes; see Entry.Author.
func (w Wrapper) AuthorOf(r *http.Request) string {
	return w.identify(r).Author()
}

// identify returns an entry that has only the Principal and the KeyID of a request.
func (w Wrapper) identify(r *http.Request) Entry {
	key := r.Header.Get("X-Functions-Key")
	if key == "" {
		key = r.URL.Query().Get("code")
	}
	e := Entry{KeyID: Fingerprint(key)}
	if w.HasSignIn {
		e.Principal = r.Header.Get("X-MS-CLIENT-PRINCIPAL-NAME")
	}
	return e
}

func (w Wrapper) entryOf(r *http.Request, function, action string, status int, body *capturedBody) Entry {
	from := strings.Join(r.Header.Values("X-Forwarded-For"), ", ")
	if from == "" {
		from = r.RemoteAddr
	}
	e := w.identify(r)
	e.Action, e.Subject, e.Detail = action, r.PathValue("id")+r.PathValue("name"), body.describeParameters(r)
	e.Function, e.Status, e.From, e.Invocation = function, status, from, httpio.InvocationID(r)
	return e
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

// describeParameters returns the parameters of a request as a JSON object. The object has the fields of a JSON body,
// the header If-Match, and all parameters of the query except the function key. In place of a body that is not JSON,
// the object has the body's size. In place of the field "message", it has the size of that field. If the object would
// be longer than maxText, describeParameters returns only the size of the body.
func (b *capturedBody) describeParameters(r *http.Request) string {
	detail := map[string]any{}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	isJSON := kind == "application/json" || r.Method == http.MethodPatch
	if !isJSON || json.Unmarshal(b.kept.Bytes(), &detail) != nil {
		detail = map[string]any{}
		if b.size > 0 {
			detail["bodyBytes"] = b.size
		}
	}
	if message, has := detail["message"].(string); has {
		delete(detail, "message")
		detail["messageBytes"] = len(message)
	}
	for name, values := range r.URL.Query() {
		if name != "code" {
			detail[name] = strings.Join(values, ",")
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
