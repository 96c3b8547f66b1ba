package steps_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"

	"weir/internal/contract"
	"weir/internal/steps"
	"weir/internal/weir"
)

// settings has the settings of weir.yaml that the tests of this package use.
type settings struct {
	Delivery struct {
		URL        string            `yaml:"url"`
		Headers    map[string]string `yaml:"headers"`
		On         steps.Source      `yaml:"on"`
		RetryAfter string            `yaml:"retryAfter"`
		MaxAnswer  int64             `yaml:"maxAnswer"`
		SignIn     steps.Source      `yaml:"signIn"`
	} `yaml:"delivery"`
	LookUps   steps.Source `yaml:"lookups"`
	Contracts []struct {
		contract.Definition `yaml:",inline"`
		Steps               steps.Source `yaml:"steps"`
	} `yaml:"contracts"`
}

var variable = regexp.MustCompile(`\$\{(\w+)\}`)

// compileSteps compiles the steps of a settings file. The argument "text" is the content of the
// file. The CMS's address is the argument "url" with the file's setting delivery.url appended.
func compileSteps(t *testing.T, text, url string,
	change ...func(*steps.Config)) (*steps.Sender, error) {
	t.Helper()
	file, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		t.Fatal(err)
	}

	var s settings
	if err := yaml.NodeToValue(file.Docs[0].Body, &s, yaml.Strict()); err != nil {
		t.Fatal(err)
	}

	lookUp := func(name string) string { return "value-of-" + name }
	cfg := steps.Config{
		File:       steps.NewFile(text, file.Docs, variable, lookUp),
		URL:        url + s.Delivery.URL,
		Timeout:    10 * time.Second,
		Headers:    s.Delivery.Headers,
		LookUps:    s.LookUps,
		Rules:      s.Delivery.On,
		RetryAfter: s.Delivery.RetryAfter,
		MaxAnswer:  s.Delivery.MaxAnswer,
		Now:        time.Now,
	}

	var defs []contract.Definition
	for i, c := range s.Contracts {
		defs = append(defs, c.Definition)
		if c.Steps.IsSet() {
			cfg.Contracts = append(
				cfg.Contracts,
				steps.Contract{Name: c.Name, Key: c.Key,
					Path: fmt.Sprintf("contracts[%d].steps", i), Steps: c.Steps},
			)
		}
	}

	set, err := contract.New(defs, contract.Limits{MaxBody: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}

	cfg.Messages = set
	for _, f := range change {
		f(&cfg)
	}

	return steps.New(cfg)
}

// newSender returns a sender whose CMS is a test server with the given handler.
func newSender(t *testing.T, text string, handler http.Handler,
	change ...func(*steps.Config)) *steps.Sender {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	s, err := compileSteps(t, text, server.URL, append([]func(*steps.Config){
		func(c *steps.Config) { c.Transport = transport }}, change...)...)
	if err != nil {
		t.Fatal(err)
	}

	return s
}

// newDelivery returns the first attempt of a message with this body. The message's contract is
// article.
func newDelivery(body string) weir.Delivery {
	return weir.Delivery{Fence: 7, Attempt: 1, Message: &weir.Message{
		ID: weir.ID{Epoch: 1, Lane: 0, Seq: 12, Nonce: "00112233445566778899"}, Contract: "article",
		Key:         "/news/1",
		ContentType: "application/xml", Body: []byte(body),
		AcceptedAt: time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)}}
}

func articleWithSteps(list string) string {
	return "contracts:\n  - name: article\n    root: article\n    key: ./@id\n    steps:\n" + list
}
