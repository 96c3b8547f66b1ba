package trial

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Answer is an answer to the request of a step.
type Answer struct {
	Status  int               `yaml:"status"`
	Headers map[string]string `yaml:"headers,omitempty"`
	Body    string            `yaml:"body,omitempty"`
	JSON    any               `yaml:"json,omitempty"` // the body as a tree, in place of Body
}

// Answers are the answers to the requests of a trial.
type Answers struct {
	Steps map[string][]Answer // by the name of the step, in the order of the step's requests
	// the remembered id of the key; if empty, the delivery's RememberedID is used
	Remembered string
}

// rememberedName is the name of Answers.Remembered in a file of answers. Steps cannot have this
// name.
const rememberedName = "remembered"

// maxRecorded limits the bytes of a CMS's answer that are recorded.
const maxRecorded = 1 << 20

// answerEntry is the value of a name in a file of answers: one answer, a list of answers, or a
// text.
type answerEntry struct {
	list []Answer
	text string
}

// UnmarshalYAML implements yaml.InterfaceUnmarshaler.
func (e *answerEntry) UnmarshalYAML(decode func(any) error) error {
	if decode(&e.text) == nil || decode(&e.list) == nil {
		return nil
	}

	var one Answer
	err := decode(&one)
	e.list = []Answer{one}
	return err
}

// ParseAnswers reads answers in YAML or JSON. The text has one answer, or a list of answers, under
// the name of each step. It can also have Answers.Remembered under the name "remembered".
func ParseAnswers(text []byte) (Answers, error) {
	var entries map[string]answerEntry
	if err := yaml.UnmarshalWithOptions(text, &entries, yaml.Strict()); err != nil &&
		!errors.Is(err, io.EOF) {
		return Answers{}, errors.New(yaml.FormatError(err, false, false))
	}

	answers := Answers{Steps: map[string][]Answer{}}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e := entries[name]
		switch {
		case name == rememberedName && e.list == nil:
			answers.Remembered = e.text
			continue
		case name == rememberedName:
			return Answers{}, errors.New(
				"remembered must be a text: the id that an earlier message remembered")
		case e.list == nil:
			return Answers{}, fmt.Errorf(
				"%s must be an answer, such as { status: 200 }, or a list of answers", name)
		}

		for i := range e.list {
			if err := e.list[i].checkAndEncode(); err != nil {
				return Answers{}, fmt.Errorf("answer %d of %s: %w", i+1, name, err)
			}
		}

		answers.Steps[name] = e.list
	}

	return answers, nil
}

// checkAndEncode returns an error if the answer is invalid. If the answer has the field JSON,
// checkAndEncode writes that field's value into the body, and sets the Content-Type if the header
// is missing.
func (a *Answer) checkAndEncode() error {
	if a.Status < 200 || a.Status > 599 {
		return fmt.Errorf("status is %d and must be 200 to 599", a.Status)
	}
	if a.JSON == nil {
		return nil
	}
	if a.Body != "" {
		return errors.New("it has body and json, and must have one of them")
	}

	body, err := json.Marshal(a.JSON)
	if err != nil {
		return fmt.Errorf("json: %w", err)
	}

	a.Body = string(body)
	if a.Headers["Content-Type"] == "" {
		a.Headers = maps.Clone(a.Headers)
		if a.Headers == nil {
			a.Headers = map[string]string{}
		}
		a.Headers["Content-Type"] = "application/json"
	}

	return nil
}

func (a *Answer) newResponse(req *http.Request) *http.Response {
	header := http.Header{}
	for name, value := range a.Headers {
		header.Set(name, value)
	}

	return &http.Response{StatusCode: a.Status,
		Status: fmt.Sprintf("%d %s", a.Status, http.StatusText(a.Status)),
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header, Request: req,
		Body: io.NopCloser(strings.NewReader(a.Body)), ContentLength: int64(len(a.Body))}
}

// unrecorded has the headers that newAnswer leaves out. Such a header contains a secret, or it
// changes with each answer and no chain reads it.
var unrecorded = []string{"Set-Cookie", "Date", "Server", "Connection", "Keep-Alive",
	"Transfer-Encoding", "Content-Length", "X-Powered-By"}

// newAnswer converts a CMS's response into an Answer, which can be stored in a file of answers. The
// parameter text is the body of the response without secrets. If the body is JSON, newAnswer
// indents it.
func newAnswer(resp *http.Response, text string, secrets Secrets) Answer {
	a := Answer{Status: resp.StatusCode, Headers: map[string]string{}, Body: text}
	for name, values := range resp.Header {
		if !slices.Contains(unrecorded, name) && len(values) > 0 {
			a.Headers[name] = secrets.hideHeader(name, values[0])
		}
	}

	var indented bytes.Buffer
	if json.Indent(&indented, []byte(text), "", "  ") == nil {
		a.Body = indented.String()
	}

	return a
}

// FormatAnswers returns answers, by the name of the step, as YAML for ParseAnswers.
func FormatAnswers(answers map[string][]Answer) ([]byte, error) {
	return yaml.MarshalWithOptions(answers, yaml.UseLiteralStyleIfMultiline(true))
}
