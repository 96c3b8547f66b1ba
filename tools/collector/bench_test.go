package collector_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"weir/functions/receive"
	"weir/internal/contract"
	"weir/internal/filing"
	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/storage/memory"
	"weir/internal/telemetry"
	"weir/tools/collector"
)

// noEffects replaces the waker and the observer of functions/receive. It does nothing.
type noEffects struct{}

func (noEffects) Ring(int)      {}
func (noEffects) Refused(error) {}
func (noEffects) Sent(string)   {}

// BenchmarkReceive posts a message to functions/receive, with storage in memory. The case Off
// exports nothing. The cases On and Unsampled export telemetry to a collector in this process. The
// case On samples each trace, and the case Unsampled samples no trace.
func BenchmarkReceive(b *testing.B) {
	for _, c := range []struct{ name, sampler string }{{"Off", ""}, {"On", "parentbased_always_on"},
		{"Unsampled", "always_off"}} {
		b.Run(c.name, func(b *testing.B) {
			var export *telemetry.Export
			if c.sampler != "" {
				sink, err := collector.Start()
				if err != nil {
					b.Fatal(err)
				}
				defer sink.Close()
				b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.URL())
				b.Setenv("OTEL_TRACES_SAMPLER", c.sampler)
				export = telemetry.Open(b.Context(), os.Getenv, telemetry.Build{},
					slog.NewJSONHandler(io.Discard, nil))
			}

			h := export.Receive("/api/messages",
				newReceiver(b, slog.New(export.Log(slog.NewJSONHandler(io.Discard, nil)))))
			b.ReportAllocs()

			for b.Loop() {
				r := httptest.NewRequest(http.MethodPost, "/api/messages",
					strings.NewReader(`<a key="/a"><title>Title</title></a>`))
				r.Header.Set("Content-Type", "application/xml")
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code != http.StatusAccepted {
					b.Fatalf("got %v, %v, want 202", w.Code, w.Body)
				}
			}

			b.StopTimer()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			export.Close(ctx)
		})
	}
}

func newReceiver(b *testing.B, log *slog.Logger) http.Handler {
	b.Helper()
	contracts, err := contract.New(
		[]contract.Definition{{Name: "a", Root: "a", Key: contract.KeyPaths{"@key"}}},
		contract.Limits{MaxBody: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}

	account := memory.New(time.Now)
	store := &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: 1, Now: time.Now}
	if err := store.Open(b.Context()); err != nil {
		b.Fatal(err)
	}

	filer := &filing.Filer{Contracts: contracts, Log: lane.NewAppender(store, log)}

	return &receive.Function{Filer: filer, Waker: noEffects{},
		Observer: noEffects{}, Fingerprint: func(*http.Request) string { return "" },
		Intake: httpio.NewIntake(16<<20, 1<<20), MaxBody: 1 << 20, Now: time.Now, Logger: log}
}
