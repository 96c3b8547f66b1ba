package azure

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// An App Service instance has 128 ports for connections to one address. Concurrent requests must
// not use all of these ports.
func TestNewTransport_BoundsConnections(t *testing.T) {
	t.Parallel()
	const requests = 200
	var mu sync.Mutex
	opened, arrived, release := 0, make(chan struct{}, requests), make(chan struct{})
	server := httptest.NewUnstartedServer(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			arrived <- struct{}{}
			<-release
		}))

	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			mu.Lock()
			opened++
			mu.Unlock()
		}
	}

	server.Start()
	defer server.Close()
	transport := newTransport()
	defer transport.CloseIdleConnections()
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
			if err != nil {
				t.Error(err)
				return
			}

			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Error(err)
				return
			}

			resp.Body.Close()
		})
	}

	for range 64 {
		<-arrived
	}

	close(release)
	all.Wait()
	mu.Lock()
	defer mu.Unlock()
	if opened > 64 {
		t.Errorf("%d requests opened %d connections, want 64 at most", requests, opened)
	}
}
