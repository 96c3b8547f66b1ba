package openapitest

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Exchange is a request and the answer to it.
type Exchange struct {
	Request  *http.Request
	Sent     []byte      // body of the request
	Status   int         // status of the answer
	Header   http.Header // header of the answer
	Received []byte      // body of the answer
}

// Check returns the differences between an exchange and the document. If the document lacks the
// operation, the answers 404 and 405 are no difference.
func (d *Document) Check(x Exchange) []string {
	o, known := d.findOperation(x.Request.Method, x.Request.URL.EscapedPath())
	if !known {
		if x.Status == http.StatusNotFound || x.Status == http.StatusMethodNotAllowed {
			return nil
		}
		return []string{"is not described, and answered with " + strconv.Itoa(x.Status)}
	}

	found := d.checkQuery(o, x)
	found = append(found, d.checkSent(o, x)...)

	return append(found, d.checkAnswer(o, x)...)
}

// findOperation returns the operation for a method and a path. If several operations match, it
// returns the operation with the fewest wildcards in its path. It returns false if no operation
// matches.
func (d *Document) findOperation(method, path string) (operation, bool) {
	var best operation
	fewest := -1
	for _, o := range d.operations {
		if n, ok := matchPath(o.path, strings.Split(path, "/")); ok && o.method == method &&
			(fewest < 0 || n < fewest) {
			best, fewest = o, n
		}
	}

	return best, fewest >= 0
}

// matchPath reports whether a pattern matches a path, and returns the number of the pattern's
// wildcards. A wildcard is a segment such as {id}. The wildcard {rest} at the end of a pattern
// matches one or more segments.
func matchPath(pattern, path []string) (wildcards int, ok bool) {
	if n := len(pattern); pattern[n-1] == "{rest}" && len(path) > n {
		path = append(slices.Clone(path[:n-1]), strings.Join(path[n-1:], "/"))
	}

	if len(pattern) != len(path) {
		return 0, false
	}

	for i, part := range pattern {
		switch {
		case strings.HasPrefix(part, "{") && path[i] != "":
			wildcards++
		case part != path[i]:
			return 0, false
		}
	}

	return wildcards, true
}

// checkQuery checks the query parameters of a request. If the document lacks a parameter, Weir must
// answer 400. If the parameter's schema forbids the value, Weir must not accept the request.
// checkQuery ignores the parameter "code", which has the function key and is read by the Functions
// host.
func (d *Document) checkQuery(o operation, x Exchange) []string {
	if o.self["x-any-query"] == true {
		return nil
	}

	described := d.queryParameters(o)
	var found []string
	for name, values := range x.Request.URL.Query() {
		place, ok := described[name]
		switch {
		case name == "code":
		case !ok && x.Status != http.StatusBadRequest:
			found = append(found, fmt.Sprintf("parameter %s is not described", name))
		case ok && x.Status < http.StatusMultipleChoices:
			if err := d.validateText(place, values[0]); err != nil {
				found = append(found,
					fmt.Sprintf("parameter %s: %q was taken: %v", name, values[0], err))
			}
		}
	}

	return found
}

// queryParameters returns the query parameters of an operation. The result maps the name of each
// parameter to a JSON pointer to the parameter's schema.
func (d *Document) queryParameters(o operation) map[string]string {
	out := map[string]string{}
	add := func(list any, place string) {
		all, _ := list.([]any)
		for i, each := range all {
			p, at := d.resolveRef(each, place+"/parameters/"+strconv.Itoa(i))
			if name, ok := p["name"].(string); ok && p["in"] == "query" {
				out[name] = at + "/schema"
			}
		}
	}

	add(o.item["parameters"], o.place[:strings.LastIndex(o.place, "/")])
	add(o.self["parameters"], o.place)

	return out
}

// checkSent validates the JSON body of a request that Weir accepted.
func (d *Document) checkSent(o operation, x Exchange) []string {
	body, place := d.resolveRef(o.self["requestBody"], o.place+"/requestBody")
	if x.Status >= http.StatusMultipleChoices ||
		asObject(body["content"])["application/json"] == nil {
		return nil
	}

	if err := d.validateJSON(place+"/content/application~1json/schema", x.Sent); err != nil {
		return []string{fmt.Sprintf("the request was taken: %v", err)}
	}

	return nil
}

func (d *Document) checkAnswer(o operation, x Exchange) []string {
	code := strconv.Itoa(x.Status)
	response, place := d.resolveRef(asObject(o.self["responses"])[code], o.place+"/responses/"+code)
	if response == nil {
		return []string{"status " + code + " is not described"}
	}
	if response["x-host"] == true && isHostAnswer(x) {
		return nil
	}

	found := d.checkHeaders(response, place, x.Header)

	return append(found, d.checkBody(response, place, x)...)
}

// isHostAnswer reports whether the Functions host can have made the answer without Weir: the answer
// has no body, or it is a 503 that is not JSON.
func isHostAnswer(x Exchange) bool {
	return len(x.Received) == 0 || (x.Status == http.StatusServiceUnavailable &&
		!strings.Contains(x.Header.Get("Content-Type"), "json"))
}

func (d *Document) checkHeaders(response map[string]any, place string,
	header http.Header) []string {
	var found []string
	for name, h := range asObject(response["headers"]) {
		described, at := d.resolveRef(h, place+"/headers/"+escapePointer(name))
		value := header.Get(name)
		if value == "" {
			if described["required"] == true {
				found = append(found, "header "+name+" is missing")
			}
			continue
		}

		if err := d.validateText(at+"/schema", value); err != nil {
			found = append(found, fmt.Sprintf("header %s is %q: %v", name, value, err))
		}
	}

	return found
}

func (d *Document) checkBody(response map[string]any, place string, x Exchange) []string {
	content := asObject(response["content"])
	if content == nil {
		if len(x.Received) > 0 {
			return []string{fmt.Sprintf("a body of %d bytes is not described", len(x.Received))}
		}
		return nil
	}

	kind, _, err := mime.ParseMediaType(x.Header.Get("Content-Type"))
	if err != nil {
		return []string{fmt.Sprintf("Content-Type %q: %v", x.Header.Get("Content-Type"), err)}
	}

	if content[kind] == nil {
		if content["*/*"] != nil {
			return nil
		}
		return []string{"Content-Type " + kind + " is not described"}
	}

	if kind != "application/json" && kind != "application/problem+json" {
		return nil
	}

	if err := d.validateJSON(place+"/content/"+escapePointer(kind)+"/schema", x.Received); err !=
		nil {
		return []string{fmt.Sprintf("%v in %s", err, x.Received)}
	}

	return checkRequired(response, x.Received)
}

// checkRequired returns the fields that this answer must have in addition to the required ones of
// its schema: all successes of an operation have one schema.
func checkRequired(response map[string]any, received []byte) []string {
	required, _ := response["x-required"].([]any)
	if len(required) == 0 {
		return nil
	}

	var body map[string]json.RawMessage
	if err := json.Unmarshal(received, &body); err != nil {
		return []string{fmt.Sprintf("no JSON object: %v", err)}
	}

	var found []string
	for _, each := range required {
		if name, _ := each.(string); body[name] == nil {
			found = append(found, "the field "+name+" is missing")
		}
	}

	return found
}

// describeExchange returns a text for an exchange. The text leaves out the query, because a query
// can contain a function key.
func describeExchange(method string, address *url.URL, status int) string {
	return fmt.Sprintf("%s %s answered %d", method, address.Path, status)
}
