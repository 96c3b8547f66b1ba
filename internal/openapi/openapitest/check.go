package openapitest

import (
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Exchange is a request with its answer, both with their bodies.
type Exchange struct {
	Request  *http.Request
	Sent     []byte
	Status   int
	Header   http.Header
	Received []byte
}

// Check tells in what an exchange differs from the document.
func (d *Document) Check(x Exchange) []string {
	o, known := d.find(x.Request.Method, x.Request.URL.EscapedPath())
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

// find finds the operation. Where several match, the one with the fewest wildcards is meant.
func (d *Document) find(method, path string) (operation, bool) {
	var best operation
	fewest := -1
	for _, o := range d.operations {
		if n, ok := matches(o.path, strings.Split(path, "/")); ok && o.method == method && (fewest < 0 || n < fewest) {
			best, fewest = o, n
		}
	}
	return best, fewest >= 0
}

// matches counts the wildcards. {rest} stands for all that follows.
func matches(pattern, path []string) (wildcards int, ok bool) {
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

// checkQuery looks for parameters that nobody described, and for values that were taken and
// should not have been.
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
				found = append(found, fmt.Sprintf("parameter %s: %q was taken: %v", name, values[0], err))
			}
		}
	}
	return found
}

// queryParameters gives the places of the schemas by name.
func (d *Document) queryParameters(o operation) map[string]string {
	out := map[string]string{}
	add := func(list any, place string) {
		all, _ := list.([]any)
		for i, each := range all {
			p, at := d.resolve(each, place+"/parameters/"+strconv.Itoa(i))
			if name, ok := p["name"].(string); ok && p["in"] == "query" {
				out[name] = at + "/schema"
			}
		}
	}
	add(o.item["parameters"], o.place[:strings.LastIndex(o.place, "/")])
	add(o.self["parameters"], o.place)
	return out
}

// checkSent holds JSON that was taken against what may be sent.
func (d *Document) checkSent(o operation, x Exchange) []string {
	body, place := d.resolve(o.self["requestBody"], o.place+"/requestBody")
	if x.Status >= http.StatusMultipleChoices || object(body["content"])["application/json"] == nil {
		return nil
	}
	if err := d.validate(place+"/content/application~1json/schema", x.Sent); err != nil {
		return []string{fmt.Sprintf("the request was taken: %v", err)}
	}
	return nil
}

func (d *Document) checkAnswer(o operation, x Exchange) []string {
	code := strconv.Itoa(x.Status)
	response, place := d.resolve(object(o.self["responses"])[code], o.place+"/responses/"+code)
	if response == nil {
		return []string{"status " + code + " is not described"}
	}
	if response["x-host"] == true && hosts(x) {
		return nil
	}
	found := d.checkHeaders(response, place, x.Header)
	return append(found, d.checkBody(response, place, x)...)
}

// hosts reports whether an answer is the host's own: it knows nothing of problem+json.
func hosts(x Exchange) bool {
	return len(x.Received) == 0 || (x.Status == http.StatusServiceUnavailable && !strings.Contains(x.Header.Get("Content-Type"), "json"))
}

func (d *Document) checkHeaders(response map[string]any, place string, header http.Header) []string {
	var found []string
	for name, h := range object(response["headers"]) {
		described, at := d.resolve(h, place+"/headers/"+escape(name))
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
	content := object(response["content"])
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
	if err := d.validate(place+"/content/"+escape(kind)+"/schema", x.Received); err != nil {
		return []string{fmt.Sprintf("%v in %s", err, x.Received)}
	}
	return nil
}

// describe names an exchange. The query is left out: a key may stand in it.
func describe(method string, address *url.URL, status int) string {
	return fmt.Sprintf("%s %s answered %d", method, address.Path, status)
}
