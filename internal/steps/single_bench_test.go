package steps_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/steps"
	"weir/internal/weir"
)

// The cost of a single request without its network: the transport answers at once.
func BenchmarkSender_SingleRequest(b *testing.B) {
	for name, c := range map[string]struct{ address, answer string }{
		"fixed address": {"http://cms.example/content", `{"id":"7"}`},
		"placeholders":  {"http://cms.example/{contract}/{key}?v={version}", `{"id":"7"}`},
		"long answer":   {"http://cms.example/content", strings.Repeat("saved ", 8<<10)},
	} {
		b.Run(name, func(b *testing.B) {
			answer := answerOf(func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Request: req,
					Header: http.Header{"Content-Type": {"text/plain"}},
					Body:   io.NopCloser(strings.NewReader(c.answer))}, nil
			})

			s, err := steps.New(steps.Config{URL: c.address, Method: http.MethodPost,
				Headers: map[string]string{"X-Api-Key": "key-of-the-cms"}, Timeout: time.Minute,
				Transport: answer, Now: time.Now})
			if err != nil {
				b.Fatal(err)
			}

			d := newDelivery("<article/>")
			b.ReportAllocs()

			for b.Loop() {
				if r := s.Send(b.Context(), d); r.Outcome != weir.OutcomeDelivered {
					b.Fatalf("got %+v, want the outcome delivered", r)
				}
			}
		})
	}
}
