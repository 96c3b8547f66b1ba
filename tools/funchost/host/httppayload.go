package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// serveByPayload sends the request to the handler in the JSON payload of an invocation. The handler
// returns the client's answer as an output.
func (c caller) serveByPayload(w http.ResponseWriter, r *http.Request, f *function,
	params map[string]string) {
	id := newGUID()
	body, err := httpPayload(f, r, params,
		c.host.console.now().UTC().Format("2006-01-02T15:04:05.0000000Z"))
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}

	out, err := c.invokeFunction(id, f, body)
	if err == nil {
		err = answerWith(w, out, f.httpOutput)
	}

	if err != nil {
		c.host.console.logOwn("No answer from 'Functions.%s' (Id=%s): %v", f.name, id, err)
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// httpPayload returns the JSON payload for a request. It leaves out a body of unknown length.
func httpPayload(f *function, r *http.Request, params map[string]string,
	utcNow string) ([]byte, error) {
	scheme := "http://"
	request := map[string]any{
		"Url":        scheme + r.Host + r.URL.RequestURI(),
		"Method":     r.Method,
		"Query":      queryMap(r),
		"Headers":    r.Header,
		"Params":     params,
		"Identities": []any{},
	}

	if r.ContentLength > 0 {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		request["Body"] = bodyValue(r.Header.Get("Content-Type"), raw)
	}

	metadata := map[string]any{
		"Headers": r.Header,
		"Query":   request["Query"],
		"sys":     map[string]string{"MethodName": f.name, "UtcNow": utcNow, "RandGuid": newGUID()},
	}

	for name, value := range params {
		metadata[name] = string(encodeString(value))
	}

	return encodeJSON(map[string]any{"Data": map[string]any{f.trigger.Name: request},
		"Metadata": metadata})
}

func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

func queryMap(r *http.Request) map[string]string {
	out := map[string]string{}
	for name, values := range r.URL.Query() {
		out[name] = strings.Join(values, ",")
	}
	return out
}

// bodyValue returns a body as a string, or as bytes if the content type is binary or multipart.
// Bytes become base64 in the payload.
func bodyValue(kind string, raw []byte) any {
	kind = strings.ToLower(kind)
	if strings.HasPrefix(kind, "application/octet-stream") ||
		strings.HasPrefix(kind, "multipart/") {
		return raw
	}
	return string(raw)
}

// answerWith answers the client with out.Outputs[name], the value of the HTTP output binding. If
// the handler returned no Outputs, the client gets an empty 204. If Outputs has no value for the
// name, the client gets 200 and an empty object.
func answerWith(w http.ResponseWriter, out *invocationResult, name string) error {
	if out.Outputs == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}

	raw, ok := out.Outputs[name]
	if !ok {
		_, _ = io.WriteString(w, "{}")
		return nil
	}

	var inText string
	if json.Unmarshal(raw, &inText) == nil {
		raw = json.RawMessage(inText) // a JSON string can contain the object
	}

	var value struct {
		StatusCode, Status any
		Body               json.RawMessage
		Headers            map[string]any
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		return fmt.Errorf("the HTTP output %q is no object: %w", name, err)
	}

	status, err := statusOf(value.StatusCode, value.Status)
	if err != nil {
		return err
	}

	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for header, v := range value.Headers {
		w.Header().Set(header, fmt.Sprint(v))
	}

	w.WriteHeader(status)
	_, _ = w.Write(bodyText(value.Body))

	return nil
}

func statusOf(candidates ...any) (int, error) {
	for _, c := range candidates {
		if c == nil {
			continue
		}

		n, err := strconv.Atoi(fmt.Sprint(c))
		if err != nil || n < 100 || n > 999 {
			return 0, errors.New("the HTTP output's statusCode is no status")
		}

		return n, nil
	}

	return http.StatusOK, nil
}

// bodyText returns the text of a JSON string, and any other value as indented JSON.
func bodyText(raw json.RawMessage) []byte {
	var text string
	if len(raw) == 0 || json.Unmarshal(raw, &text) == nil {
		return []byte(text)
	}

	var b bytes.Buffer
	_ = json.Indent(&b, raw, "", "  ") // raw is valid JSON
	return b.Bytes()
}
