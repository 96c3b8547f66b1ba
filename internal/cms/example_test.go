package cms_test

import (
	"fmt"
	"net/http"
	"regexp"
	"time"

	"weir/internal/cms"
)

// The status of an answer determines the outcome. A contract can also demand that the body of a 2xx
// answer matches a pattern.
func ExampleClassify() {
	rules := cms.Rules{Success: regexp.MustCompile(`<saved/>`)}
	for _, a := range []cms.Answer{
		{Status: 200, Body: []byte("<saved/>")},
		{Status: 200, Body: []byte("<login/>")},
		{Status: 422, Body: []byte("no title")},
		{Status: 503, Header: http.Header{"Retry-After": {"30"}}},
	} {
		r := cms.Classify(a, rules, time.Now())
		fmt.Println(a.Status, r.Outcome, r.RetryAfter)
	}
	// Output:
	// 200 delivered 0s
	// 200 retry 0s
	// 422 rejected 0s
	// 503 unavailable 30s
}
