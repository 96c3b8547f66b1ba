package steps_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/weir"
)

// The result of a rejected message has the status of the CMS's answer. Without a status, the holder
// would think that no answer came. Then failures before and after the message would count as
// failures in a row.
func TestSender_RejectionIsAVerdict(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step   string
		answer func(http.ResponseWriter)
		status int
	}{
		"Rule": {
			"{ post: /a, json: {}, on: [ { when: json.slug != key, do: reject } ] }",
			answerWith(201, "", `{"slug":"news-2"}`), 201,
		},
		"RuleFor403": {
			"{ patch: /a, json: {}, on: [ { when: status == 403, do: reject } ] }",
			answerWith(403, "", `{}`), 403,
		},
		"GraphQL": {
			"{ graphql: 'mutation { a }' }",
			answerWith(200, "", `{"data":null,"errors":[{"message":"no",`+
				`"extensions":{"code":"BAD_USER_INPUT"}}]}`), 200,
		},
		"Fault": {
			"{ post: /x, xml: '<methodCall/>' }",
			answerWith(200, "text/xml", newFault("400", "no")), 200,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSender(t, articleWithSteps("      - "+c.step+"\n"),
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.answer(w) }))
			r := s.Send(t.Context(), newDelivery(`<article/>`))
			if r.Outcome != weir.OutcomeRejected || r.Status != c.status || r.Refused {
				t.Errorf("got %+v, want rejected with status %d", r, c.status)
			}
		})
	}
}

// Different CMSs report the end of a rate limit in different headers and forms: as seconds with or
// without a fraction, as a date, or as a Unix time.
func TestSender_RetryAfter(t *testing.T) {
	t.Parallel()
	written := func(text string) func(time.Time) string {
		return func(time.Time) string { return text }
	}
	for name, c := range map[string]struct {
		value     func(at time.Time) string
		low, high time.Duration
	}{
		"Seconds":  {written("7"), 7 * time.Second, 7 * time.Second},
		"Fraction": {written("0.2"), time.Second, time.Second},
		"Date": {func(at time.Time) string { return at.UTC().Format(http.TimeFormat) },
			30 * time.Minute, 50 * time.Minute},
		"UnixTime": {func(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) },
			30 * time.Minute, 50 * time.Minute},
		"Nonsense": {written("soon"), 0, 0},
		"None":     {written(""), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			// here, because parallel tests begin late
			value := c.value(time.Now().Add(50 * time.Minute))
			s := newSender(t, articleWithSteps("      - { get: /a, retryAfter: X-Limit-Reset }\n"),
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					answerWith(429, "", `{}`, "X-Limit-Reset", value)(w)
				}))

			r := s.Send(t.Context(), newDelivery(`<article/>`))
			if r.Outcome != weir.OutcomeUnavailable || r.RetryAfter < c.low ||
				r.RetryAfter > c.high {
				t.Errorf("got %+v, want a delay from %s to %s", r, c.low, c.high)
			}
		})
	}
}

// A sign-in, a proxy or a firewall in front of the CMS can answer 200 with a page of HTML. Even a
// step whose answer no expression reads must not take the page for the CMS's answer.
func TestSender_PageThatNoExpressionReads(t *testing.T) {
	t.Parallel()
	const page = "<!DOCTYPE html><html>sign in"
	const reason = "step1: 200, but the answer is a page of HTML, which no expression reads"
	for _, c := range []struct {
		step, body string
		want       weir.Outcome
		reason     string
	}{
		{"put: /a", page, weir.OutcomeRetry, reason},
		{"get: /a", page, weir.OutcomeUnavailable, reason},
		{"put: /a", "\xEF\xBB\xBF\n <HTML lang=en>", weir.OutcomeRetry, reason},
		{"put: /a", "<?xml version='1.0'?>\n<!-- proxy --><!doctype HTML public>",
			weir.OutcomeRetry, reason},
		{"put: /a", `{"text":"<html></html>"}`, weir.OutcomeDelivered, ""},
		{"put: /a", "<htm", weir.OutcomeDelivered, ""},
		{"put: /a", "<p>saved</p>", weir.OutcomeDelivered, ""},
		{"put: /a", "", weir.OutcomeDelivered, ""},
		{"put: /a, success: body contains 'sign in'", page, weir.OutcomeDelivered, ""},
		{"put: /a, on: [ { when: body contains 'sign in', do: unavailable } ]", page,
			weir.OutcomeUnavailable, ""},
	} {
		s := newSender(t, articleWithSteps("      - { "+c.step+" }\n"), http.HandlerFunc(
			func(w http.ResponseWriter,
				_ *http.Request) {
				answerWith(http.StatusOK, "", c.body)(w)
			}))

		r := s.Send(t.Context(), newDelivery(`<article/>`))
		if r.Outcome != c.want || !strings.HasPrefix(r.Reason, c.reason) {
			t.Errorf("%s, body %q: got %v %q, want %v %q", c.step, c.body, r.Outcome, r.Reason,
				c.want, c.reason)
		}
	}
}

// An expected 404 with a page of HTML comes from a proxy or from a CMS that is starting. After a
// look-up, Weir does not know whether the item exists, so the outcome is unavailable, and a refusal
// after a write. An answer that does not fit "success" is a refusal after a look-up, and a retry
// after a write.
func TestSender_SuccessOfAnUnreadableAnswer(t *testing.T) {
	t.Parallel()
	const page = "<!DOCTYPE html><html>not here"
	for _, success := range []string{"json.code == 'not_found'", "json?.code == 'not_found'"} {
		for _, c := range []struct {
			step, body string
			want       weir.Outcome
			reason     string
		}{
			{"get: /a", page, weir.OutcomeUnavailable,
				"step1: 404, but the answer is a page of HTML, which no " + "expression"},
			{"get: /a", "", weir.OutcomeUnavailable,
				"step1: 404, but the answer is empty and should be JSON"},
			{"delete: /a", page, weir.OutcomeUnavailable,
				"step1: 404, but the answer is a page of HTML, which " + "no expression"},
			{"get: /a", `{"code":"no_route"}`, weir.OutcomeUnavailable, ""},
			{"delete: /a", `{"code":"no_route"}`, weir.OutcomeRetry, ""},
			{"get: /a", `{"code":"not_found"}`, weir.OutcomeDelivered, ""},
		} {
			text := articleWithSteps("      - { " + c.step + ", expect: [200, 404], success: \"" +
				success + "\" }\n")
			s := newSender(t, text,
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					answerWith(http.StatusNotFound, "", c.body)(w)
				}))

			r := s.Send(t.Context(), newDelivery(`<article/>`))
			got := strings.Replace(r.Reason, "success: ", "", 1)
			if r.Outcome != c.want || !strings.HasPrefix(got, c.reason) {
				t.Errorf("%s, %s, body %q: got %v %q, want %v %q", success, c.step, c.body,
					r.Outcome, r.Reason, c.want, c.reason)
			}
		}
	}
}
