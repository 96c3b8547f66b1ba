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

// Counter counts the requests to storage, by service and operation. The zero value is ready for
// use. A nil Counter counts nothing. All methods may be called concurrently.
type Counter struct {
	mu       sync.Mutex
	requests map[string]int64
	failed   map[string]int64
}

// Snapshot returns the counts so far, under keys such as "table transact" and "blob lease-renew".
func (c *Counter) Snapshot() map[string]int64 {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.requests)
}

// Failures returns the counts of failed requests so far, under keys such as "table throttled". The
// failures are:
//   - unreached: no answer arrived
//   - throttled: status 429 or 503
//   - error: another status of 500 or above
//   - refused: status 401 or 403
//
// Other answers are no failures, because callers expect them: for example, that a lease is already
// held.
func (c *Counter) Failures() map[string]int64 {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.failed)
}

// Throttled returns the number of throttled requests so far, of all services.
func (c *Counter) Throttled() (n int64) {
	if c == nil {
		return 0
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	for name, count := range c.failed {
		if strings.HasSuffix(name, " "+throttled) {
			n += count
		}
	}

	return n
}

// throttled is the reason of a request that storage answers with 429 or 503.
const throttled = "throttled"

// Policy returns a policy that counts the requests of an SDK client. The service is "table",
// "queue" or "blob". The policy must be one of the client's PerRetryPolicies; otherwise the policy
// does not count retries.
func (c *Counter) Policy(service string) policy.Policy { return countingPolicy{c, service} }

type countingPolicy struct {
	counter *Counter
	service string
}

// Do implements policy.Policy.
func (p countingPolicy) Do(req *policy.Request) (*http.Response, error) {
	return p.counter.sendCounted(p.service, req)
}

func (c *Counter) sendCounted(service string, req *policy.Request) (*http.Response, error) {
	c.countRequest(service, operationName(service, req.Raw()))
	resp, err := req.Next()
	if reason := failureReason(req.Raw().Context(), resp, err); reason != "" {
		c.countFailure(service, reason)
	}
	return resp, err
}

// failureReason returns the kind of a failure; empty = no failure. A request that its caller
// cancelled is no failure. A request that was cancelled because storage did not answer in time is a
// failure.
func failureReason(ctx context.Context, resp *http.Response, err error) string {
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled) &&
		!errors.Is(context.Cause(ctx), timelimit.ErrHung):
		return ""
	case err != nil:
		return "unreached"
	case resp.StatusCode == http.StatusServiceUnavailable ||
		resp.StatusCode == http.StatusTooManyRequests:
		return throttled
	case resp.StatusCode >= http.StatusInternalServerError:
		return "error"
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return "refused"
	}

	return ""
}

func (c *Counter) countFailure(service, reason string) {
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

func (c *Counter) countRequest(service, operation string) {
	if c == nil {
		return
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests == nil {
		c.requests = make(map[string]int64)
	}

	c.requests[service+" "+operation]++
}

func operationName(service string, r *http.Request) string {
	switch service {
	case "table":
		return tableOperationName(r)
	case "queue":
		return queueOperationName(r)
	}
	return blobOperationName(r)
}

func tableOperationName(r *http.Request) string {
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

func queueOperationName(r *http.Request) string {
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

func blobOperationName(r *http.Request) string {
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

// leaseAction returns the value of the header x-ms-lease-action. Header.Get would not find the
// header, because the SDK stores its name in lower case.
func leaseAction(h http.Header) string {
	for name, v := range h {
		if strings.EqualFold(name, "x-ms-lease-action") {
			return v[0]
		}
	}
	return ""
}
