package steps_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/contract"
	"weir/internal/steps"
	"weir/internal/weir"
)

// newTags returns an article with n different tags.
func newTags(n int) string {
	var b strings.Builder
	b.WriteString(`<article id="1">`)
	for i := range n {
		fmt.Fprintf(&b, "<t>%x</t>", i)
	}

	b.WriteString("</article>")
	return b.String()
}

// sendValue makes an attempt for a message with a recipe that sends the value of an expression. It
// returns the result, and the number of bytes that the CMS got.
func sendValue(t *testing.T, expression, body string,
	change ...func(*steps.Config)) (weir.Result, int64) {
	t.Helper()
	var received int64

	// also on a machine that is very busy
	change = append(change, func(c *steps.Config) { c.Timeout = time.Hour })
	s := newSender(t, articleWithSteps("      - name: write\n        post: /items\n        json: {value: \"{{ "+expression+
		" }}\"}\n"), http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) { received = r.ContentLength }),
		change...)

	return s.Send(t.Context(), newDelivery(body)), received
}

// A message has 10,000 different values. Each expression would be quadratic, would not end, or
// would fill the memory. The test is not parallel, because it would delay others that look at the
// clock.
func TestSend_BoundsTheWorkOfAnExpression(t *testing.T) {
	body := newTags(10_000)
	for name, expression := range map[string]string{
		"NestedAny":       "count(texts('./t'), any(texts('./t'), # == 'no'))",
		"NestedFilter":    "len(filter(texts('./t'), len(filter(texts('./t'), # == 'no')) > 0))",
		"NestedSearch":    "let tags = texts('./t'); count(texts('./t'), # + 'x' in tags)",
		"NestedJoin":      "count(texts('./t'), len(join(texts('./t'), ',')) == 1)",
		"GrowingText":     "reduce(texts('./t'), #acc + #, '')",
		"DoublingText":    "reduce(1..60, #acc + #acc, 'x')",
		"DoublingList":    "let tags = texts('./t'); let more = map(tags, tags); toJSON(more)",
		"ResultOfLists":   "let tags = texts('./t'); map(tags, tags)",
		"LargeSeparator":  "let tags = texts('./t'); join(tags, join(tags, ''))",
		"LargeReplace":    "let tags = join(texts('./t'), ''); replace(tags, '1', tags)",
		"LargeRepeat":     "repeat(join(texts('./t'), ''), 999999)",
		"HugeRepeat":      "repeat(join(texts('./t'), ''), 9223372036854775807)",
		"OwnPattern":      "let tags = join(texts('./t'), ''); tags matches tags",
		"UniqueLists":     "uniq(map(texts('./t'), [#]))",
		"ComparedLists":   "let tags = texts('./t'); let more = map(tags, tags); let others = map(tags, tags); more == others",
		"PartsOfALargeOn": "let tags = join(texts('./t'), ''); count(1..100000, tags[1:] == '')",
	} {
		t.Run(name, func(t *testing.T) {
			result, received := sendValue(t, expression, body)
			if result.Outcome != weir.OutcomeRejected || received > 0 ||
				!strings.Contains(result.Reason, "it needs too much work") &&
					!strings.Contains(result.Reason, "it makes a value of more than") &&
					!strings.Contains(result.Reason, "memory budget exceeded") {
				t.Errorf("got %q %.300q and %d bytes at the CMS, want the message rejected for the work of its expression",
					result.Outcome, result.Reason, received)
			}
		})
	}
}

// Expressions whose work is proportional to the message are evaluated, also for a message with very
// many values. The test is not parallel, because it would delay others that look at the clock.
func TestSend_EvaluatesLargeMessages(t *testing.T) {
	body := newTags(20_000)
	for name, expression := range map[string]string{
		"Texts": "texts('./t')", "Unique": "uniq(texts('./t'))", "Sorted": "sort(texts('./t'))",
		"Mapped":   "map(texts('./t'), ({'name': upper(#)}))",
		"Filtered": "filter(texts('./t'), # startsWith '1' and not (# contains '2'))",
		"Joined":   "join(map(texts('./t'), slug(#)), ', ')",
		"Split":    "split(join(texts('./t'), '-'), '-')",
		"Nested":   "uniq(map(filter(texts('./t'), len(#) > 1), #[0:1])) | map(({'letter': #}))",
	} {
		t.Run(name, func(t *testing.T) {
			if result, received := sendValue(t, expression, body); result.Outcome !=
				weir.OutcomeDelivered || received == 0 {
				t.Errorf("got %q %.300q and %d bytes at the CMS, want the message delivered",
					result.Outcome, result.Reason, received)
			}
		})
	}
}

// endingMessages ends the attempt while it reads the values of the message.
type endingMessages struct {
	steps.Messages
	end func()
}

func (m endingMessages) Extract(ctx context.Context, x *contract.Extractor, contentType string,
	body []byte) ([][]string, error) {
	values, err := m.Messages.Extract(ctx, x, contentType, body)
	m.end()
	return values, err
}

// The attempt is cut off while an expression is evaluated. The expression ends with it, long before
// its work is done.
func TestSend_EndsAnExpressionWithItsAttempt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := newSender(t, articleWithSteps("      - name: write\n        post: /items\n"+
		"        json: {value: \"{{ count(texts('./t'), any(texts('./t'), # == 'no')) }}\"}\n"),
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("got a request, want none") }),
		func(c *steps.Config) { c.Messages = endingMessages{c.Messages, cancel} })
	if result := s.Send(ctx, newDelivery(newTags(20_000))); result.Outcome != weir.OutcomeNone {
		t.Errorf("got %q %q, want the attempt cut off", result.Outcome, result.Reason)
	}
}

// The functions that Weir has in place of those of package expr return the same values.
func TestSend_OwnFunctions(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"uniq(['b', 'a', 'b', 1, 1.0, 2, true, nil, nil, [1], [1], {'a': 1}, {'a': 1}])": `["b","a",1,2,true,null,[1],{"a":1}]`,
		"uniq(1..3)":                                       `[1,2,3]`,
		"join(['a', 'b'])":                                 `"ab"`,
		"join(['a', 'b'], ', ')":                           `"a, b"`,
		"join(texts('./x'), ', ')":                         `""`,
		"replace('abab', 'a', 'xy')":                       `"xybxyb"`,
		"replace('abab', 'a', 'x', 1)":                     `"xbab"`,
		"repeat('ab', 3)":                                  `"ababab"`,
		"split('a,b,c', ',')":                              `["a","b","c"]`,
		"split('a,b,c', ',', 2)":                           `["a","b,c"]`,
		"splitAfter('a,b', ',')":                           `["a,","b"]`,
		"key matches '^/news/[0-9]+$'":                     `true`,
		"key matches ('^' + key + '$')":                    `true`,
		"reduce(['a', 'b'], #acc + #, '')":                 `"ab"`,
		"sum(map(['1', '2'], int(#)))":                     `3`,
		"'a' in ['a', 'b']":                                `true`,
		"1 in [1, 2]":                                      `true`,
		"all(['a'], # == 'a') and all(['a'], len(#) == 1)": `true`,
		"len(filter(['a', 'b'], # != 'a'))":                `1`,
		"sortBy(['bb', 'a'], len(#))":                      `["a","bb"]`,
		"groupBy(['bb', 'a'], len(#))[1]":                  `["a"]`,
		"'abc'[1:2]":                                       `"b"`,
		"max([1, 3, 2]) + 1":                               `4`,
		"('a' | upper()) + 'b'":                            `"Ab"`,
		"fromJSON('[1]')[0]":                               `1`,
	} {
		t.Run(expression, func(t *testing.T) {
			t.Parallel()
			var got string
			s := newSender(t, articleWithSteps("      - name: write\n        post: /items\n        json: {value: \"{{ "+
				expression+" }}\"}\n"),
				http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					content, err := io.ReadAll(r.Body)
					if err != nil {
						t.Error(err)
					}
					got = string(content)
				}))

			result := s.Send(t.Context(), newDelivery(`<article id="1"/>`))
			if got != `{"value":`+want+`}` {
				t.Errorf("got %q %q and the body %s, want the value %s", result.Outcome,
					result.Reason, got, want)
			}
		})
	}
}
