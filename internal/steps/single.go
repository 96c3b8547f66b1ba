package steps

import (
	"weir/internal/cms"
	"weir/internal/weir"
)

// singleName is the name of a single request in trials and in files of answers.
const singleName = "request"

// placeholderName is the name in an environment under which a single request stores the message for
// its placeholders.
const placeholderName = "\x00message"

// placeholders has the value of each placeholder of delivery.url.
var placeholders = map[string]func(m *weir.Message) string{
	"key":      func(m *weir.Message) string { return m.Key },
	"contract": func(m *weir.Message) string { return m.Contract },
	"version":  func(m *weir.Message) string { return m.Version },
	"id":       func(m *weir.Message) string { return m.Public().String() },
}

// newSingle returns the chain of all contracts without steps. Its only step writes the message's
// own bytes to the address, which can have placeholders such as {key}. An attempt runs it like any
// chain. The contract's settings and the stored rows do not name a step, so these differences
// remain:
//
//   - The request has the message's own Idempotency-Key, and no header Accept. A placeholder can
//     be empty.
//   - Nothing of the message and of the answer is parsed. Of the answer, the first bytes count
//     (Config.MaxAnswer): a longer one is no failure.
//   - Package cms alone judges the answer, and the attempt never begins again.
//   - Neither reasons nor records of requests name the step.
func newSingle(cfg Config) *chain {
	url := cfg.URL
	to := &template{}
	for len(url) > 0 {
		at := cms.Placeholder.FindStringSubmatchIndex(url)
		if at == nil {
			to.parts = append(to.parts, templatePart{literal: url})
			break
		}

		value := &expression{source: url[at[0]:at[1]], placeholder: placeholders[url[at[2]:at[3]]]}
		to.parts = append(to.parts, templatePart{literal: url[:at[0]]},
			templatePart{expression: value})
		url = url[at[1]:]
	}

	st := &step{name: singleName, method: cfg.Method, body: messageBody{},
		retryAfter: cfg.RetryAfter, address: &address{text: to, takesEmpty: true}}

	return &chain{isSingle: true, steps: []*step{st}}
}
