package steps_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/internal/steps"
	"weir/internal/weir"
)

const articleWithoutSteps = "contracts: [ { name: article, root: article, key: ./@id } ]\n"

func TestSender_SingleRequest_RetryAfter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		setting string
		header  map[string]string
		want    time.Duration
	}{
		{"", map[string]string{"X-Reset": "40"}, 0},
		{"X-Reset", map[string]string{"X-Reset": "40"}, 40 * time.Second},
		{"X-Reset", map[string]string{"X-Reset": "40", "Retry-After": "7"}, 40 * time.Second},
		{"X-Reset", map[string]string{"X-Reset": "4", "Retry-After": "7"}, 7 * time.Second},
		{"X-Reset", map[string]string{"Retry-After": "7"}, 7 * time.Second},
		{"X-Reset", map[string]string{"X-Reset": "soon"}, 0},
	} {
		cms := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for name, value := range c.header {
				w.Header().Set(name, value)
			}
			w.WriteHeader(http.StatusTooManyRequests)
		})

		s := newSender(t, articleWithoutSteps, cms,
			func(cfg *steps.Config) { cfg.RetryAfter = c.setting })

		r := s.Send(t.Context(), newDelivery(`<article/>`))
		if r.Outcome != weir.OutcomeUnavailable || r.RetryAfter != c.want {
			t.Errorf("retryAfter %q, headers %v: got %v after %s, want %v after %s",
				c.setting, c.header, r.Outcome, r.RetryAfter, weir.OutcomeUnavailable, c.want)
		}
	}
}

func TestSender_SingleRequest_MaxAnswer(t *testing.T) {
	t.Parallel()
	const usual = 64 << 10
	for _, c := range []struct {
		maxAnswer      int64 // 0 = not set
		before, behind int   // bytes around the text that the setting "success" needs
		want           weir.Outcome
		reason         string
	}{
		{0, usual - len("saved"), 100, weir.OutcomeDelivered, ""},
		{0, usual - len("save"), 100, weir.OutcomeRetry,
			"200, but the first 65536 bytes of the answer (delivery.maxAnswer) do not match success"},
		{0, usual - len("save"), 0, weir.OutcomeRetry,
			"200, but the first 65536 bytes of the answer (delivery.maxAnswer) do not match success"},
		{usual + 1, usual - len("save"), 100, weir.OutcomeDelivered, ""},
		{1000, 1000, 0, weir.OutcomeRetry,
			"200, but the first 1000 bytes of the answer (delivery.maxAnswer) do not match success"},
	} {
		cms := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, strings.Repeat("x", c.before), "saved",
				strings.Repeat("x", c.behind))
		})

		s := newSender(t, articleWithoutSteps, cms, func(cfg *steps.Config) {
			cfg.MaxAnswer = c.maxAnswer
			cfg.SuccessRules = map[string]*regexp.Regexp{"article": regexp.MustCompile("saved")}
		})

		r := s.Send(t.Context(), newDelivery(`<article/>`))
		if r.Outcome != c.want || c.reason != "" && r.Reason != c.reason {
			t.Errorf("maxAnswer %d, success at byte %d: got %v %q, want %v %q",
				c.maxAnswer, c.before, r.Outcome, r.Reason, c.want, c.reason)
		}
	}
}
