package azure

import (
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// Counter counts the requests sent to storage, by service and operation. The zero value
// is ready; all methods may be called concurrently, and on nil.
type Counter struct {
	mu sync.Mutex
	n  map[string]int64
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

// Policy counts the requests of a client made elsewhere; the service is "table", "queue" or
// "blob". It is to stand among the policies of each try, so that repeats count too.
func (c *Counter) Policy(service string) policy.Policy { return counting{c, service} }

type counting struct {
	counter *Counter
	service string
}

// Do implements policy.Policy.
func (p counting) Do(req *policy.Request) (*http.Response, error) {
	p.counter.count(p.service, operation(p.service, req.Raw()))
	return req.Next()
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
