package azure_test

import (
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/azure"
	"weir/internal/testkit/azurite"
)

func TestOpen_Prefix(t *testing.T) {
	t.Parallel()
	good := []string{"abc", "weir01", strings.Repeat("a", 40)}
	bad := []string{"", "ab", "1abc", "Abc", "a-b", "a_b", strings.Repeat("a", 41), "abc\n"}

	for _, p := range good {
		if _, err := azure.Open(azure.Config{ConnectionString: connectTo("http://127.0.0.1:1"),
			Prefix: p}); err != nil {
			t.Errorf("Open with the prefix %q = %v, want no error", p, err)
		}
	}

	for _, p := range bad {
		if _, err := azure.Open(azure.Config{ConnectionString: connectTo("http://127.0.0.1:1"),
			Prefix: p}); err == nil {
			t.Errorf("Open with the prefix %q = no error, want one", p)
		}
	}
}

func TestOpen_Connection(t *testing.T) {
	t.Parallel()
	for s, ok := range map[string]bool{
		"UseDevelopmentStorage=true":  true,
		"UseDevelopmentStorage=true;": true,
		"":                            false,
		"AccountName=a;secret":        false,
	} {
		_, err := azure.Open(azure.Config{ConnectionString: s, Prefix: "abc"})
		if (err == nil) != ok {
			t.Errorf("%q: err = %v, want it accepted: %v", s, err, ok)
		}

		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("Open = %v, want an error without the connection string", err)
		}
	}
}

func TestOpen_ByIdentity(t *testing.T) {
	t.Parallel()
	const away = "https://127.0.0.1:1/acct"
	for name, c := range map[string]struct {
		i     azure.Identity
		wrong string
	}{
		"Account": {azure.Identity{Account: "acct"}, ""},
		"Addresses": {azure.Identity{BlobURL: away, QueueURL: away, TableURL: away, Managed: true,
			ClientID: "11111111-2222-3333-4444-555555555555"}, ""},
		"Both":    {azure.Identity{Account: "acct", TableURL: away, Managed: true}, ""},
		"OneOnly": {azure.Identity{BlobURL: away}, "queue service is missing"},
		"InClear": {azure.Identity{Account: "acct", QueueURL: "http://127.0.0.1:1/acct"},
			"the queue service must be absolute and https"},
		"NoAddress": {azure.Identity{Account: "acct", BlobURL: "acct.blob"},
			"the blob service must be absolute and https"},
		"Nothing": {azure.Identity{}, "neither a connection string nor an identity is set"},
	} {
		_, err := azure.Open(azure.Config{Identity: c.i, Prefix: "abc"})
		if c.wrong == "" && err != nil ||
			c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: got %v, want %q", name, err, c.wrong)
		}
	}
}

func TestAccount_Ensure(t *testing.T) {
	t.Parallel()
	c := azure.Config{ConnectionString: azurite.Shared(t), Prefix: newPrefix()}
	var starts sync.WaitGroup
	for range 4 {
		a := openAccount(t, c)
		starts.Go(func() {
			if err := a.Ensure(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}

	starts.Wait()
	a := openAccount(t, c)
	if _, err := a.Table().Range(t.Context(), storage.Query{Partition: "p"}); err != nil {
		t.Error(err)
	}

	for _, q := range []storage.QueueLength{a.Tickets(), a.Poison()} {
		if n, err := q.Length(t.Context()); err != nil || n != 0 {
			t.Errorf("length = %d, %v, want 0 and no error", n, err)
		}
	}

	if err := a.Bodies().Put(t.Context(), "b", nil); err != nil {
		t.Error(err)
	}
}

// If the table does not exist, each call returns ErrGone, because the table's rows are lost. If a
// queue or a container does not exist, a read returns ErrGone, but a write creates the queue or
// container.
func TestAccount_Gone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a := openAccount(t, azure.Config{ConnectionString: azurite.Shared(t)})
	_, get := a.Table().Get(ctx, "p", "k")
	_, query := a.Table().Range(ctx, storage.Query{Partition: "p"})
	_, transact := a.Table().Transact(ctx, "p", []storage.Op{{Kind: storage.Insert, Key: "k"}})
	_, body := a.Bodies().Get(ctx, "b")
	_, length := a.Tickets().Length(ctx)
	for name, err := range map[string]error{"get": get, "query": query, "transact": transact,
		"body": body, "length": length} {
		if !storage.Is(err, storage.Unavailable) || !errors.Is(err, storage.ErrGone) {
			t.Errorf("%s: err = %v, want unavailable, with ErrGone", name, err)
		}
	}

	if err := a.Leases().Renew(ctx, "l", leaseID); !storage.Is(err, storage.Conflict) {
		t.Errorf("renew: err = %v, want conflict: no id has the lease of a missing blob", err)
	}

	for name, err := range map[string]error{
		"put":   a.Tickets().Put(ctx, "lane 1", 0),
		"body":  a.Bodies().Put(ctx, "b", []byte("x")),
		"lease": a.Leases().Acquire(ctx, "l", leaseID, 15*time.Second),
	} {
		if err != nil {
			t.Errorf("%s: err = %v, want the missing queue or container created", name, err)
		}
	}

	if n, err := a.Tickets().Length(ctx); n != 1 || err != nil {
		t.Errorf("%d tickets, %v, want 1", n, err)
	}

	if data, err := a.Bodies().Get(ctx, "b"); string(data) != "x" || err != nil {
		t.Errorf("body %q, %v, want %q", data, err, "x")
	}

	if err := a.Leases().Renew(ctx, "l", leaseID); err != nil {
		t.Errorf("Renew = %v, want no error", err)
	}
}

func TestAccount_Skew(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a := openAccount(t, azure.Config{
		ConnectionString: connectTo("http://storage.test"),
		Now:              func() time.Time { return at },
		Transport: transport(func(*http.Request) (*http.Response, error) {
			h := http.Header{"Date": {at.Add(90 * time.Second).Format(http.TimeFormat)}}
			return &http.Response{StatusCode: 200, Header: h, Body: http.NoBody}, nil
		}),
	})

	skew, err := a.Skew(t.Context())
	if want := 90*time.Second + time.Second/2; err != nil || skew != want {
		t.Errorf("skew = %v, %v, want %v", skew, err, want)
	}
}

func TestAccount_SkewSameMachine(t *testing.T) {
	t.Parallel()
	skew, err := onAzurite(t, azure.Config{}).Skew(t.Context())
	if err != nil || skew.Abs() > time.Minute { // a busy machine answers late
		t.Errorf("skew = %v, %v, want at most 1m and no error", skew, err)
	}
}

func TestCounter_Names(t *testing.T) {
	t.Parallel()
	c := new(azure.Counter)
	a := onAzurite(t, azure.Config{Counter: c})
	ctx := t.Context()
	_, err := a.Table().Transact(ctx, "p", []storage.Op{{Kind: storage.Insert, Key: "k"}})
	must(t, err)
	_, err = a.Table().Get(ctx, "p", "k")
	must(t, err)
	_, err = a.Table().Range(ctx, storage.Query{Partition: "p"})
	must(t, err)
	must(t, a.Tickets().Put(ctx, "lane 1", 0))
	got, err := a.Tickets().Get(ctx, 1, time.Minute)
	must(t, err)
	got[0].PopReceipt, err = a.Tickets().Update(ctx, got[0], "lane 1", 0)
	must(t, err)
	must(t, a.Tickets().Delete(ctx, got[0]))
	_, err = a.Tickets().Length(ctx)
	must(t, err)
	must(t, a.Bodies().Put(ctx, "b", nil))
	must(t, a.Bodies().Mark(ctx, "b"))
	_, err = a.Bodies().List(ctx, "", "")
	must(t, err)
	_, err = a.Bodies().Get(ctx, "b")
	must(t, err)
	must(t, a.Bodies().Delete(ctx, "b"))
	must(t, a.Leases().Acquire(ctx, "l", leaseID, 15*time.Second))
	must(t, a.Leases().Renew(ctx, "l", leaseID))
	must(t, a.Leases().Release(ctx, "l", leaseID))
	_, err = a.Skew(ctx)
	must(t, err)

	want := map[string]int64{
		"table create": 1, "table transact": 1, "table get": 1, "table query": 1,
		"queue create": 3, "queue put": 1, "queue get": 1, "queue update": 1, "queue delete": 1,
		"queue length": 1,
		"blob create":  2, "blob put": 2, "blob mark": 1, "blob list": 1, "blob get": 1,
		"blob delete":        1,
		"blob properties":    1,
		"blob lease-acquire": 2, "blob lease-renew": 1, "blob lease-release": 1,
	}
	if s := c.Snapshot(); !maps.Equal(s, want) {
		t.Errorf("counted %v\nwant %v", s, want)
	}
}

const leaseID = "0f8fad5b-d9cb-469f-a165-70867728950e"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestCounter_Failures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		err    error
		want   string
	}{
		"Unreached": {err: errors.New("connection refused"), want: "table unreached"},
		"Throttled": {status: 503, want: "table throttled"},
		"Error":     {status: 500, want: "table error"},
		"Refused":   {status: 403, want: "table refused"},
		"NotFound":  {status: 404},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			counter := new(azure.Counter)
			a := openAccount(t,
				azure.Config{ConnectionString: connectTo("http://storage.test"), Counter: counter,
					Transport: transport(func(r *http.Request) (*http.Response, error) {
						if c.err != nil {
							return nil, c.err
						}
						return &http.Response{StatusCode: c.status, Header: http.Header{},
								Body: http.NoBody, Request: r},
							nil
					})})
			if _, err := a.Table().Transact(t.Context(), "p",
				[]storage.Op{{Kind: storage.Insert, Key: "k"}}); err == nil {
				t.Fatal("Transact = no error, want one")
			}

			want := map[string]int64{}
			if c.want != "" {
				want[c.want] = 1
			}

			if got := counter.Failures(); !maps.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}
