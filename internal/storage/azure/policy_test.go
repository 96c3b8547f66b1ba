package azure_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/azure"
)

// writes are calls that must not send their requests twice.
var writes = map[string]func(ctx context.Context, a *azure.Account) error{
	"transact": func(ctx context.Context, a *azure.Account) error {
		_, err := a.Table().Transact(ctx, "p", []storage.Op{{Kind: storage.Insert, Key: "k"}})
		return err
	},
	"put": func(ctx context.Context, a *azure.Account) error {
		return a.Tickets().Put(ctx,
			"lane 1", 0)
	},
	"acquire": func(ctx context.Context, a *azure.Account) error {
		return a.Leases().Acquire(ctx, "l", leaseID, 15*time.Second)
	},
	"renew": func(ctx context.Context, a *azure.Account) error {
		return a.Leases().Renew(ctx, "l",
			leaseID)
	},
	"release": func(ctx context.Context, a *azure.Account) error {
		return a.Leases().Release(ctx,
			"l", leaseID)
	},
}

var reads = map[string]func(ctx context.Context, a *azure.Account) error{
	"get": func(ctx context.Context, a *azure.Account) error {
		_, err := a.Table().Get(ctx, "p", "k")
		return err
	},
	"range": func(ctx context.Context, a *azure.Account) error {
		_, err := a.Table().Range(ctx, storage.Query{Partition: "p"})
		return err
	},
	"body": func(ctx context.Context, a *azure.Account) error {
		_, err := a.Bodies().Get(ctx, "b")
		return err
	},
}

func TestWrite_ConnectionLost(t *testing.T) {
	t.Parallel()
	for name, call := range writes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen atomic.Int64
			a := onServer(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				seen.Add(1)
				panic(http.ErrAbortHandler) // closes the connection without an answer
			})
			if err := call(t.Context(), a); !storage.Is(err, storage.Ambiguous) {
				t.Errorf("err = %v, want ambiguous", err)
			}

			if n := seen.Load(); n != 1 {
				t.Errorf("sent %d times, want 1", n)
			}
		})
	}
}

func TestWrite_LostOnKeptConnection(t *testing.T) {
	t.Parallel()
	var seen atomic.Int64
	a := onServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if seen.Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusCreated)
	})

	must(t, writes["acquire"](t.Context(), a)) // leaves a connection open for the next call
	if err := writes["renew"](t.Context(), a); !storage.Is(err, storage.Ambiguous) {
		t.Errorf("err = %v, want ambiguous", err)
	}

	if n := seen.Load(); n != 2 {
		t.Errorf("two calls were sent %d times, want 2", n)
	}
}

func TestCalls_ConnectionRefused(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	url := "http://" + l.Addr().String()
	must(t, l.Close())
	a := openAccount(t, azure.Config{ConnectionString: connectTo(url)})
	for name, call := range writes {
		if err := call(t.Context(), a); !storage.Is(err, storage.Unavailable) {
			t.Errorf("%s: err = %v, want unavailable", name, err)
		}
	}

	for name, call := range reads {
		if err := call(t.Context(), a); !storage.Is(err, storage.Unavailable) {
			t.Errorf("%s: err = %v, want unavailable", name, err)
		}
	}
}

func TestWrite_Statuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status int
		code   string
		want   storage.Kind
	}{
		{500, "InternalError", storage.Ambiguous},
		{502, "", storage.Ambiguous},
		{504, "OperationTimedOut", storage.Ambiguous},
		{500, "OperationTimedOut", storage.Ambiguous},
		{503, "ServerBusy", storage.Throttled},
		{429, "TooManyRequests", storage.Throttled},
		{401, "InvalidAuthenticationInfo", storage.Denied},
		{403, "AuthenticationFailed", storage.Denied},
		{413, "RequestBodyTooLarge", storage.TooLarge},
		{409, "TableBeingDeleted", storage.Unavailable},
	} {
		var seen atomic.Int64
		a := onServer(t, func(w http.ResponseWriter, r *http.Request) {
			seen.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Retry-After", "7")
			answerError(w, test.status, test.code)
		})

		err := writes["transact"](t.Context(), a)
		if storage.KindOf(err) != test.want || storage.FailedAt(err) != -1 {
			t.Errorf("%d %s: err = %v, want %v", test.status, test.code, err, test.want)
		}

		var e *storage.Error
		if test.want == storage.Throttled &&
			(!errors.As(err, &e) || e.RetryAfter != 7*time.Second) {
			t.Errorf("%d: err = %+v, want RetryAfter 7s", test.status, e)
		}

		if seen.Load() != 1 {
			t.Errorf("%d: sent %d times, want 1", test.status, seen.Load())
		}
	}
}

func TestRead_RepeatedThenUnavailable(t *testing.T) {
	t.Parallel()
	for name, call := range reads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen atomic.Int64
			a := onServer(t, func(w http.ResponseWriter, r *http.Request) {
				seen.Add(1)
				answerError(w, http.StatusInternalServerError, "InternalError")
			})
			if err := call(t.Context(), a); !storage.Is(err, storage.Unavailable) {
				t.Errorf("err = %v, want unavailable", err)
			}

			if n := seen.Load(); n != 3 {
				t.Errorf("sent %d times, want 3", n)
			}
		})
	}
}

func TestTransact_AnswerCutOff(t *testing.T) {
	t.Parallel()
	whole := "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\nContent-Type: application/http\r\n\r\n" +
		"HTTP/1.1 204 No Content\r\nETag: W/\"1\"\r\n\r\n\r\n--c--\r\n--b--\r\n"
	for _, length := range []int{0, 1, 60, 120, strings.Index(whole, "--c--")} {
		a := onServer(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "multipart/mixed; boundary=b")
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, whole[:length])
		})
		if err := writes["transact"](t.Context(), a); !storage.Is(err, storage.Ambiguous) {
			t.Errorf("%d bytes: err = %v, want ambiguous", length, err)
		}
	}
}

func TestWrite_ContextEnded(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	a := onServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(arrived)
		<-r.Context().Done()
	})

	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()

	if err := writes["transact"](ctx, a); !storage.Is(err, storage.Ambiguous) ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want ambiguous and canceled", err)
	}

	if err := writes["transact"](ctx, a); !storage.Is(err, storage.Unavailable) ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: err = %v, want unavailable and canceled", err)
	}
}

func TestTable_RangeFollowsEmptyAnswers(t *testing.T) {
	t.Parallel()
	var seen atomic.Int64
	a := onServer(t, func(w http.ResponseWriter, r *http.Request) {
		rows := ""
		if n := seen.Add(1); n < 4 {
			w.Header().Set("X-Ms-Continuation-Nextpartitionkey", "p")
			w.Header().Set("X-Ms-Continuation-Nextrowkey", "k")
			if n == 3 {
				rows = `{"odata.etag":"W/\"1\"","PartitionKey":"p","RowKey":"k","N@odata.type":"Edm.Int64","N":"7"}`
			}
		}

		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"value":[`+rows+`]}`)
	})

	page, err := a.Table().Range(t.Context(), storage.Query{Partition: "p"})
	if err != nil || len(page.Rows) != 1 || !page.More || page.Rows[0].Values["N"] != int64(7) {
		t.Fatalf("page = %+v, %v, want 1 Row, More true, N %v and no error", page, err, int64(7))
	}

	if page, err = a.Table().Range(t.Context(), storage.Query{Partition: "p", After: "k"}); err !=
		nil || page.More ||
		len(page.Rows) != 0 {
		t.Errorf("last page = %+v, %v, want More false, 0 Rows and no error", page, err)
	}
}

func TestQueue_Base64OnTheWire(t *testing.T) {
	t.Parallel()
	var body atomic.Value
	var query atomic.Value
	a := onServer(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body.Store(string(b))
		query.Store(r.URL.Query().Get("visibilitytimeout"))
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `<QueueMessagesList></QueueMessagesList>`)
	})

	must(t, a.Tickets().Put(t.Context(), "lane 7", 1500*time.Millisecond))
	want := base64.StdEncoding.EncodeToString([]byte("lane 7"))
	if got := body.Load().(string); !strings.Contains(got, ">"+want+"<") {
		t.Errorf("body = %s, want %s in it", got, want)
	}

	if got := query.Load(); got != "2" {
		t.Errorf("delay = %v s, want it rounded up to 2", got)
	}
}

func TestTransact_FaultOfStorageNamesNoOperation(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]storage.Kind{500: storage.Ambiguous, 503: storage.Throttled,
		412: storage.Precondition} {
		part := fmt.Sprintf("HTTP/1.1 %d No\r\nContent-Type: application/json\r\n\r\n", status) +
			`{"odata.error":{"code":"Some","message":{"value":"0:No.\nRequestId:1"}}}`
		a := onServer(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "multipart/mixed; boundary=b")
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w,
				"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n"+
					"Content-Type: application/http\r\n\r\n"+part+"\r\n--c--\r\n--b--\r\n")
		})

		at := -1
		if status < 500 {
			at = 0
		}

		if err := writes["transact"](t.Context(), a); storage.KindOf(err) != want ||
			storage.FailedAt(err) != at {
			t.Errorf("%d: err = %v at %d, want %v at %d", status, err,
				storage.FailedAt(err), want, at)
		}
	}
}

// A definite refusal of the read of one blob or file concerns this object, except 401 and 403.
func TestObjectRead_Statuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status int
		code   string
		want   storage.Kind
	}{
		{409, "BlobArchived", storage.Unreadable},
		{409, "BlobBeingRehydrated", storage.Unreadable},
		{409, "BlobUsesCustomerSpecifiedEncryption", storage.Unreadable},
		{400, "InvalidHeaderValue", storage.Unreadable},
		{416, "InvalidRange", storage.Unreadable},
		{401, "InvalidAuthenticationInfo", storage.Denied},
		{403, "AuthorizationPermissionMismatch", storage.Denied},
		{404, "BlobNotFound", storage.NotFound},
		{404, "ContainerNotFound", storage.Unavailable},
		{412, "ConditionNotMet", storage.Precondition},
		{503, "ServerBusy", storage.Throttled},
		{500, "InternalError", storage.Unavailable},
	} {
		a := onServer(t, func(w http.ResponseWriter, _ *http.Request) { answerError(w, test.status, test.code) })
		_, blob := a.Bodies().Get(t.Context(), "b")
		_, file := a.Inbox().Read(t.Context(), "f", "", 0, 1)
		for op, err := range map[string]error{"blob": blob, "file": file} {
			if got := storage.KindOf(err); err == nil || got != test.want {
				t.Errorf("%s, %d %s: got %v, want %s", op, test.status, test.code, err, test.want)
			}
			if want := fmt.Sprint(test.status, " ", test.code); storage.Describe(err) != want {
				t.Errorf("%s: got the description %q, want %q", op, storage.Describe(err), want)
			}
		}
	}
}

// A file that was uploaded with Content-Encoding gzip is returned as it is stored, so it has its
// length of the listing.
func TestFiles_ReadLeavesTheCoding(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte("<article/>"))
	_ = w.Close()
	a := onServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes())
	})

	got, err := a.Inbox().Read(t.Context(), "f", "", 0, int64(packed.Len()))
	if err != nil || !bytes.Equal(got, packed.Bytes()) {
		t.Errorf("got %d bytes, %v; want the %d stored bytes", len(got), err, packed.Len())
	}
}
