//go:build !race || long

package app

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/internal/weir"
)

// The cost of one attempt, with a CMS on the loopback interface that answers at once.
func BenchmarkSending(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"id":"7"}`)
	}))
	defer server.Close()
	contract := "contracts:\n" + sendingContract
	for _, c := range []struct{ name, text string }{
		{"single request", "delivery: { url: ${CMS}/content }\n" + contract + " }\n"},
		{"single request with placeholders",
			"delivery: { url: '${CMS}/{contract}/{key}?v={version}' }\n" + contract + " }\n"},
		{"one step", "delivery: { url: ${CMS} }\n" + contract +
			", steps: [ { put: '/{{ contract }}/{{ key }}?v={{ version }}', body: message } ] }\n"},
	} {
		b.Run(c.name, func(b *testing.B) {
			text := strings.ReplaceAll(c.text, "${CMS}", server.URL)
			a, found := prepareApp(newEnvironment(b, text), nil)
			if !found.IsNone() {
				b.Fatal(found)
			}

			sender, d := a.newSender(),
				weir.Delivery{Attempt: 1, Message: sendingMessages[0].newMessage("article")}
			b.ReportAllocs()

			for b.Loop() {
				if r := sender.Send(b.Context(), d); r.Outcome != weir.OutcomeDelivered {
					b.Fatalf("got %+v, want the outcome delivered", r)
				}
			}
		})
	}
}
