package delay_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"weir/internal/storage"
	"weir/internal/storage/azure"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/azurite"
	"weir/tools/delay"
)

func TestMain(m *testing.M) { azurite.Main(m) }

func startProxy(t *testing.T, c delay.Config) *delay.Proxy {
	t.Helper()
	p, err := delay.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})

	return p
}

// openAccount opens an account with this prefix through the proxy p. If p is nil, the account
// connects to Azurite directly.
func openAccount(t *testing.T, p *delay.Proxy, prefix string) *azure.Account {
	t.Helper()
	cs := azurite.Shared(t)
	if p != nil {
		cs = p.ConnectionString(cs)
	}

	a, err := azure.Open(azure.Config{ConnectionString: cs, Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(a.Close)

	return a
}

func newPrefix() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return "t" + hex.EncodeToString(b[:])
}

// openEnsured returns an account behind the proxy. The account's table, queues and containers
// exist.
func openEnsured(t *testing.T, p *delay.Proxy) *azure.Account {
	t.Helper()
	prefix := newPrefix()
	if err := openAccount(t, nil, prefix).Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return openAccount(t, p, prefix)
}

// TestProxy_PassesThrough runs the tests of package storagetest for tables and blobs through the
// proxy, and some calls for queues and leases. These tests and calls succeed only with valid
// signatures and complete transactions.
func TestProxy_PassesThrough(t *testing.T) {
	t.Parallel()
	p := startProxy(t, delay.Config{Target: azurite.Shared(t), Median: time.Microsecond})
	t.Run("Table", func(t *testing.T) {
		t.Parallel()
		storagetest.Table(t, func(t *testing.T) storage.Table { return openEnsured(t, p).Table() })
	})

	t.Run("Blobs", func(t *testing.T) {
		t.Parallel()
		storagetest.Blobs(t, func(t *testing.T) interface {
			storage.Blobs
			storage.BlobMarks
		} {
			return openEnsured(t, p).Bodies()
		})
	})

	t.Run("QueueAndLeases", func(t *testing.T) {
		t.Parallel()
		a, ctx, id := openEnsured(t, p), t.Context(), "11111111-2222-3333-4444-555555555555"
		put := a.Tickets().Put(ctx, "lane 1", 0)
		got, get := a.Tickets().Get(ctx, 1, time.Minute)
		if put != nil || get != nil || len(got) != 1 || got[0].Text != "lane 1" {
			t.Fatalf("got %v, %v, %v, want lane 1", got, put, get)
		}

		deleted, acquired := a.Tickets().Delete(ctx, got[0]),
			a.Leases().Acquire(ctx, "l", id, 15*time.Second)
		if err := errors.Join(deleted, acquired, a.Leases().Renew(ctx, "l", id),
			a.Leases().Release(ctx, "l", id)); err != nil {
			t.Error(err)
		}
	})
}

// TestProxy_ServerBusy checks that package azure treats the proxy's 503 like a 503 of storage: the
// kind of the error is storage.Throttled.
func TestProxy_ServerBusy(t *testing.T) {
	t.Parallel()
	p := startProxy(t, delay.Config{Target: azurite.Shared(t), BusyShare: 1})
	a, ctx := openEnsured(t, p), t.Context()
	_, transact := a.Table().Transact(ctx, "p",
		[]storage.Op{{Kind: storage.Insert, Key: "k",
			Values: map[string]any{"A": strings.Repeat("a", 30_000)}}})
	_, get := a.Table().Get(ctx, "p", "k")
	_, length := a.Tickets().Length(ctx)
	for name, err := range map[string]error{
		"transact": transact, "get": get, "length": length,
		"put":  a.Tickets().Put(ctx, "lane 1", 0),
		"body": a.Bodies().Put(ctx, "b", bytes.Repeat([]byte("b"), 500_000)),
		"lease": a.Leases().Acquire(ctx, "l", "11111111-2222-3333-4444-555555555555",
			15*time.Second),
	} {
		var answer *azcore.ResponseError
		if !errors.As(err, &answer) || answer.StatusCode != 503 ||
			answer.ErrorCode != "ServerBusy" ||
			storage.KindOf(err) != storage.Throttled {
			t.Errorf("%s: got %v of kind %q, want 503 ServerBusy, throttled", name, err,
				storage.KindOf(err))
		}
	}

	if p.Refused() == 0 || p.Refused() != p.Requests() {
		t.Errorf("%d of %d requests were refused, want all", p.Refused(), p.Requests())
	}
}

// TestProxy_BusyAfter refuses an insert. If the option BusyAfter is true, storage has made the row
// all the same, and a second insert conflicts. If the option is false, the row does not exist.
func TestProxy_BusyAfter(t *testing.T) {
	t.Parallel()
	for after, want := range map[bool]storage.Kind{true: storage.Conflict,
		false: storage.NotFound} {
		p := startProxy(t, delay.Config{Target: azurite.Shared(t), BusyShare: 1, BusyAfter: after})
		prefix := newPrefix()
		straight := openAccount(t, nil, prefix)
		if err := straight.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}

		insert := []storage.Op{{Kind: storage.Insert, Key: "k"}}
		if _, err := openAccount(t, p, prefix).Table().Transact(t.Context(), "p", insert); !storage.Is(err,
			storage.Throttled) {
			t.Errorf("busy after %t: got %v, want throttled", after, err)
		}

		_, err := straight.Table().Get(t.Context(), "p", "k")
		if after {
			_, err = straight.Table().Transact(t.Context(), "p", insert)
		}

		if !storage.Is(err, want) {
			t.Errorf("busy after %t: got %v, want %q", after, err, want)
		}
	}
}

func TestProxy_Hang(t *testing.T) {
	t.Parallel()
	p := startProxy(t, delay.Config{Target: azurite.Shared(t)})
	a := openEnsured(t, p)

	// bodies are stored by PUT
	release := p.Hang(func(r *http.Request) bool { return r.Method == http.MethodPut })
	t.Cleanup(release)
	if err := a.Tickets().Put(t.Context(), "lane 1", 0); err != nil {
		t.Errorf("a request that does not match: got %v, want no error", err)
	}

	leaving, leave := context.WithCancel(t.Context())
	left, stayed := make(chan error, 1), make(chan error, 1)
	go func() { left <- a.Bodies().Put(leaving, "left", []byte("b")) }()
	awaitCondition(t, func() bool { return p.Hanging() == 1 })
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that left: got %v, want cancelled", err)
	}

	awaitCondition(t, func() bool { return p.Hanging() == 0 })
	go func() { stayed <- a.Bodies().Put(t.Context(), "stayed", []byte("b")) }()
	awaitCondition(t, func() bool { return p.Hanging() == 1 })
	release()
	if err := <-stayed; err != nil {
		t.Errorf("the caller that stayed: got %v, want no error", err)
	}

	if _, err := a.Bodies().Get(t.Context(), "left"); !storage.Is(err, storage.NotFound) {
		t.Errorf("the blob of the caller that left: got %v, want not found", err)
	}
}

// Storage has executed a change whose answer hangs.
func TestProxy_HangAnswers(t *testing.T) {
	t.Parallel()
	p := startProxy(t, delay.Config{Target: azurite.Shared(t)})
	a := openEnsured(t, p)
	release := p.HangAnswers("held")
	t.Cleanup(release)
	if err := a.Bodies().Put(t.Context(), "other", []byte("b")); err != nil {
		t.Errorf("a request that does not match: got %v, want no error", err)
	}

	put := make(chan error, 1)
	go func() { put <- a.Bodies().Put(t.Context(), "held", []byte("b")) }()
	awaitCondition(t, func() bool { return p.Hanging() == 1 })
	if got, err := a.Bodies().Get(t.Context(), "held"); err != nil || string(got) != "b" {
		t.Errorf("while the answer hangs: got %q, %v, want the content", got, err)
	}

	release()
	if err := <-put; err != nil {
		t.Errorf("got %v after the release, want no error", err)
	}
}

// TestProxy_CloseCuts closes a proxy in which a request hangs.
func TestProxy_CloseCuts(t *testing.T) {
	t.Parallel()
	p, err := delay.Start(t.Context(), delay.Config{Target: azurite.Shared(t)})
	if err != nil {
		t.Fatal(err)
	}

	a := openEnsured(t, p)
	p.Hang(nil)
	put := make(chan error, 1)
	go func() { put <- a.Tickets().Put(t.Context(), "lane 1", 0) }()
	awaitCondition(t, func() bool { return p.Hanging() == 1 })
	if err := errors.Join(p.Close(), p.Close()); err != nil {
		t.Error(err)
	}

	if err := <-put; !storage.Is(err, storage.Ambiguous) {
		t.Errorf("got %v, want ambiguous: storage may have stored the ticket", err)
	}
}

// awaitCondition calls "holds" repeatedly until "holds" returns true. The only time limit is that
// of go test.
func awaitCondition(t *testing.T, holds func() bool) {
	t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()

	for !holds() {
		select {
		case <-look.C:
		case <-t.Context().Done():
			t.Fatal("the test ended before the condition held")
		}
	}
}

// TestProxy_LeavesRequestsAlone checks that the proxy does not change requests and answers.
func TestProxy_LeavesRequestsAlone(t *testing.T) {
	t.Parallel()
	const target = "/devstoreaccount1/lanes(PartitionKey='a%2Fb',RowKey='%21head')?$filter=RowKey%20ge%20'm_'&a;b"
	var got []string
	p, web := startInFrontOf(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, r.Method, r.RequestURI, r.Host, r.Header.Get("Authorization"),
			r.Header.Get("X-Forwarded-For"), r.Header.Get("Accept-Encoding"), string(body))
		w.Header().Set("ETag", `W/"1"`)
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "--batchresponse")
	})

	address := endpointOf(t, p.ConnectionString(connectionString(web.URL)))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address,
		strings.NewReader("--batch"))
	if err != nil {
		t.Fatal(err)
	}

	host := req.URL.Host
	req.URL.Opaque = "//" + host + target
	req.Header.Set("Authorization", "SharedKey a:b")
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := web.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusAccepted || resp.Header.Get("ETag") != `W/"1"` ||
		string(body) != "--batchresponse" {
		t.Errorf("answer %s, %v: %s, %v, want status 202, ETag W/\"1\", body --batchresponse and no error",
			resp.Status, resp.Header, body, err)
	}

	want := []string{http.MethodPost, target, host, "SharedKey a:b", "", "identity", "--batch"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestProxy_KeepsConnections checks that requests with bodies share one connection on each side of
// the proxy, even if the proxy refuses some of them.
func TestProxy_KeepsConnections(t *testing.T) {
	t.Parallel()
	var toStorage, toProxy atomic.Int64
	web := httptest.NewUnstartedServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
		}))

	web.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			toStorage.Add(1)
		}
	}

	web.Start()
	t.Cleanup(web.Close)
	p := startProxy(t, delay.Config{Target: connectionString(web.URL), BusyShare: 0.5})
	dialer := &net.Dialer{}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network,
		address string) (net.Conn, error) {
		toProxy.Add(1)
		return dialer.DialContext(ctx, network, address)
	}}}

	t.Cleanup(client.CloseIdleConnections)
	address := endpointOf(t, p.ConnectionString(connectionString(web.URL)))
	for range 50 {
		resp, err := client.Post(address, "text/plain", bytes.NewReader(make([]byte, 1<<20)))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}

	if toStorage.Load() != 1 || toProxy.Load() != 1 {
		t.Errorf("%d connections to storage and %d to the proxy, want 1 and 1", toStorage.Load(),
			toProxy.Load())
	}

	if n := p.Refused(); n == 0 || n == 50 {
		t.Errorf("%d of 50 were refused, want some", n)
	}
}

// TestProxy_Concurrent has a storage that answers no request until all requests have arrived. If
// the proxy let a request wait for another one, the test would hang.
func TestProxy_Concurrent(t *testing.T) {
	t.Parallel()
	const n = 100
	var arrived sync.WaitGroup
	arrived.Add(n)
	p, web := startInFrontOf(t,
		func(http.ResponseWriter, *http.Request) { arrived.Done(); arrived.Wait() })
	address := endpointOf(t, p.ConnectionString(connectionString(web.URL)))
	var clients sync.WaitGroup
	for range n {
		clients.Go(func() {
			resp, err := web.Client().Get(address)
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
		})
	}

	clients.Wait()
}

// TestProxy_StorageAway checks that the client loses its connection if storage drops the proxy's
// connection. The proxy must not make an answer of its own.
func TestProxy_StorageAway(t *testing.T) {
	t.Parallel()
	p, web := startInFrontOf(t,
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	resp, err := web.Client().Get(endpointOf(t, p.ConnectionString(connectionString(web.URL))))
	if err == nil {
		_ = resp.Body.Close()
		t.Errorf("got %s, want a lost connection", resp.Status)
	}
}

func TestStart_Refuses(t *testing.T) {
	t.Parallel()
	good := connectionString("http://127.0.0.1:1")
	for want, c := range map[string]delay.Config{
		"has 0 of 3 endpoints":     {Target: "UseDevelopmentStorage=true"},
		"has 1 of 3 endpoints":     {Target: "BlobEndpoint=http://127.0.0.1:1/a"},
		"want http and a port":     {Target: connectionString("https://127.0.0.1:1")},
		"is negative":              {Target: good, Median: -1},
		"sigma -1 is negative":     {Target: good, Sigma: -1},
		"is not between 0 and 1":   {Target: good, BusyShare: 2},
		"-0.1 is not between 0 an": {Target: good, BusyShare: -0.1},
	} {
		if _, err := delay.Start(t.Context(), c); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestProxy_ConnectionString(t *testing.T) {
	t.Parallel()
	const cs = "AccountName=a;AccountKey=k==;BlobEndpoint=http://127.0.0.1:1/a;" +
		"QueueEndpoint=http://127.0.0.1:2/a;TableEndpoint=http://127.0.0.1:3/a"
	p := startProxy(t, delay.Config{Target: cs})
	got := p.ConnectionString(cs + ";")
	if !strings.HasPrefix(got, "AccountName=a;AccountKey=k==;BlobEndpoint=http://127.0.0.1:") ||
		!strings.HasSuffix(got, "/a;") || strings.Contains(got, ":1/a") {
		t.Errorf(`got %s, want it to begin with "AccountName=a;AccountKey=k==;BlobEndpoint=http://127.0.0.1:", it to `+
			`end with "/a;" and no ":1/a"`, got)
	}

	if other := strings.ReplaceAll(cs, "127.0.0.1", "127.0.0.2"); p.ConnectionString(other) !=
		other {
		t.Errorf("got %s, want it unchanged, because it names another account",
			p.ConnectionString(other))
	}
}

// startInFrontOf starts a server that stands for all three services, and a proxy in front of the
// server.
func startInFrontOf(t *testing.T, h http.HandlerFunc) (*delay.Proxy, *httptest.Server) {
	t.Helper()
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	return startProxy(t, delay.Config{Target: connectionString(web.URL)}), web
}

func connectionString(url string) string {
	return strings.ReplaceAll("AccountName=a;AccountKey=a2V5;BlobEndpoint=URL/a;"+
		"QueueEndpoint=URL/a;TableEndpoint=URL/a", "URL", url)
}

// endpointOf returns the address of the table service in a connection string.
func endpointOf(t *testing.T, cs string) string {
	t.Helper()
	_, address, ok := strings.Cut(cs, "TableEndpoint=")
	if !ok {
		t.Fatalf("got the connection string %s, want a TableEndpoint", cs)
	}
	return strings.TrimSuffix(address, ";")
}
