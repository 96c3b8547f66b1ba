package write_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/functions/write"
	"weir/internal/weir"
)

// latinBodies returns an accepted body in ISO-8859-1 for each message. Each message also has an
// edited body, whose Content-Type is not XML, except the message with the sequence number 4.
type latinBodies struct{}

func (latinBodies) LoadMessage(_ context.Context, id weir.ID) (weir.Message, error) {
	return weir.Message{ID: id, ContentType: "text/xml; charset=iso-8859-1",
		Body: []byte("<a>\xe9</a>")}, nil
}

func (latinBodies) LoadEditedMessage(_ context.Context, id weir.ID) (weir.Message, error) {
	if id.Seq == 4 {
		return weir.Message{}, &weir.Error{Kind: weir.NotFound, Message: "it was not edited"}
	}
	return weir.Message{ID: id, ContentType: "text/plain", Body: []byte("\xe9")}, nil
}

func TestReveal(t *testing.T) {
	t.Parallel()
	id := weir.ID{Epoch: 1, Lane: 2, Seq: 3, Nonce: "00000000000000000000"}
	other := id
	other.Seq = 4
	mux := http.NewServeMux()
	mux.Handle("/api/messages/{id}/reveal", &write.Reveal{Bodies: latinBodies{}, Logger: quiet})

	for address, want := range map[string]struct {
		status            int
		contentType, body string
	}{
		id.String() + "/reveal": {200, "text/xml; charset=iso-8859-1",
			"<a>\xe9</a>"},
		id.String() + "/reveal?which=accepted&as=text": {200, "text/plain; charset=utf-8",
			"<a>é</a>"},
		id.String() + "/reveal?which=edited&as=text": {200,
			"text/plain; charset=utf-8", "\uFFFD"},
		other.String() + "/reveal?which=edited": {404, "application/problem+json",
			"it was not edited"},
		id.String() + "/reveal?which=first": {400, "application/problem+json",
			"which must be"},
		id.String() + "/reveal?as=html": {400, "application/problem+json",
			"as must be"},
		"nonsense/reveal": {404, "application/problem+json", ""},
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/messages/"+address, nil))
		isExact := want.status == 200
		if w.Code != want.status || w.Header().Get("Content-Type") != want.contentType ||
			!strings.Contains(w.Body.String(), want.body) ||
			isExact && w.Body.String() != want.body {
			t.Errorf("%s: got %d %v %q, want %+v", address, w.Code, w.Header(), w.Body, want)
		}

		if isExact && (w.Header().Get("Cache-Control") != "no-store" ||
			w.Header().Get("X-Content-Type-Options") != "nosniff") {
			t.Errorf("%s: got the headers %v, want no-store and nosniff", address, w.Header())
		}
	}
}
