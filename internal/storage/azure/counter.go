package azure

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"weir/internal/storage/timelimit"
)

// Counter counts the requests sent to storage, by service and operation. The zero value
// is ready; all methods may be called concurrently, and on nil.
type Counter struct {
	mu     sync.Mutex
	n      map[string]int64
	failed map[string]int64
}

// Snapshot gives the counts so far under keys such as "table transact" and "blob lease-renew".
func (c *Counter) Snapshot() map[string]int64 {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

// Failures gives the requests so far that storage did not answer as a storage in order would,
// under keys such as "table throttled": unreached, throttled, error, refused. Answers that
// belong to the protocol (a condition that does not hold, a busy lease) are none.
func (c *Counter) Failures() map[string]int64 {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.failed)
}

// Policy counts the requests of a client made elsewhere; the service is "table", "queue" or
// "blob". It is to stand among the policies of each try, so that repeats count too.
func (c *Counter) Policy(service string) policy.Policy { return counting{c, service} }

type counting struct {
	counter *Counter
	service string
}

// Do implements policy.Policy.
func (p counting) Do(req *policy.Request) (*http.Response, error) {
	return p.counter.watch(p.service, req)
}

// watch sends a request and counts it, and what became of it.
func (c *Counter) watch(service string, req *policy.Request) (*http.Response, error) {
	c.count(service, operation(service, req.Raw()))
	resp, err := req.Next()
	if reason := failure(req.Raw().Context(), resp, err); reason != "" {
		c.fail(service, reason)
	}
	return resp, err
}

// failure says what is wrong with an answer; empty = nothing. What we cut off ourselves is
// not storage's fault, except where it hung.
func failure(ctx context.Context, resp *http.Response, err error) string {
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled) && !errors.Is(context.Cause(ctx), timelimit.ErrHung):
		return ""
	case err != nil:
		return "unreached"
	case resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTooManyRequests:
		return "throttled"
	case resp.StatusCode >= http.StatusInternalServerError:
		return "error"
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return "refused"
	}
	return ""
}

func (c *Counter) fail(service, reason string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = make(map[string]int64)
	}
	c.failed[service+" "+reason]++
}

func (c *Counter) count(service, operation string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = make(map[string]int64)
	}
	c.n[service+" "+operation]++
}

// operation names a request by what the REST reference calls it, in the ports' words.
func operation(service string, r *http.Request) string {
	switch service {
	case "table":
		return tableOperation(r)
	case "queue":
		return queueOperation(r)
	}
	return blobOperation(r)
}

func tableOperation(r *http.Request) string {
	switch {
	case strings.HasSuffix(r.URL.Path, "/$batch"):
		return "transact"
	case strings.HasSuffix(r.URL.Path, "/Tables"):
		return "create"
	case strings.Contains(r.URL.Path, "(PartitionKey="):
		return "get"
	}
	return "query"
}

func queueOperation(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case q.Get("comp") == "metadata":
		return "length"
	case strings.HasSuffix(r.URL.Path, "/messages") && r.Method == http.MethodPost:
		return "put"
	case strings.HasSuffix(r.URL.Path, "/messages"):
		return "get"
	case r.Method == http.MethodDelete:
		return "delete"
	case q.Has("popreceipt"):
		return "update"
	}
	return "create"
}

func blobOperation(r *http.Request) string {
	q := r.URL.Query()
	switch comp := q.Get("comp"); {
	case comp == "lease":
		return "lease-" + leaseAction(r.Header)
	case comp == "list":
		return "list"
	case comp == "metadata":
		return "mark"
	case q.Get("restype") == "container" && r.Method == http.MethodPut:
		return "create"
	case q.Get("restype") == "container":
		return "properties"
	}
	return strings.ToLower(r.Method)
}

// leaseAction reads a header that the SDK sets in a spelling of its own.
func leaseAction(h http.Header) string {
	for name, v := range h {
		if strings.EqualFold(name, "x-ms-lease-action") {
			return v[0]
		}
	}
	return ""
}
