package httpio_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/internal/httpio"
	"weir/internal/weir"
)

func TestReadJSON(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		contentType, body string
		status            int // status of the error; 0 = no error
	}{
		"OK":             {"application/json; charset=utf-8", `{"reason":"x"} `, 0},
		"NotJSON":        {"text/plain", `{"reason":"x"}`, http.StatusUnsupportedMediaType},
		"NoContentType":  {"", `{"reason":"x"}`, http.StatusUnsupportedMediaType},
		"Empty":          {"application/json", "", http.StatusBadRequest},
		"UnknownField":   {"application/json", `{"why":"x"}`, http.StatusBadRequest},
		"NumberForAText": {"application/json", `{"reason":1}`, http.StatusBadRequest},
		"SecondValue":    {"application/json", `{"reason":"x"} {}`, http.StatusBadRequest},
		"Over64KiB": {"application/json", `{"reason":"` + strings.Repeat("x", 64<<10) + `"}`,
			http.StatusRequestEntityTooLarge},
		"Exactly64KiB":    {"application/json", `{"reason":"` + strings.Repeat("x", 64<<10-13) + `"}`, 0},
		"CutInTheMiddle":  {"application/json", `{"reason":"x`, http.StatusBadRequest},
		"NotATime":        {"application/json", `{"until":"tomorrow"}`, http.StatusBadRequest},
		"NumberForATime":  {"application/json", `{"until":5}`, http.StatusBadRequest},
		"NoSuchDay":       {"application/json", `{"until":"2026-02-30T00:00:00Z"}`, http.StatusBadRequest},
		"ListForAnObject": {"application/json", `["x"]`, http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.body))
			r.Header.Set("Content-Type", c.contentType)
			var in struct {
				Reason string     `json:"reason"`
				Until  *time.Time `json:"until"`
			}
			err := httpio.ReadJSON(httptest.NewRecorder(), r, &in)
			if err != nil && (strings.Contains(err.Error(), "Go struct") || strings.Contains(err.Error(), "2006") ||
				strings.Contains(err.Error(), "Unmarshal") || strings.Contains(err.Error(), "here: json:")) {
				t.Errorf("got the error %v, want an error without the terms of Go", err)
			}
			if c.status == 0 && (err != nil || in.Reason == "") {
				t.Errorf("got error %v, reason %q; want no error and a reason", err, in.Reason)
			}
			if c.status != 0 && (weir.KindOf(err) == weir.Internal || httpio.Status(err) != c.status) {
				t.Errorf("got the error %v, want the status %d", err, c.status)
			}
		})
	}
}

// If two names differ only in case, encoding/json takes the value of the last one. So ReadJSON refuses such names, as
// it refuses equal names.
func TestReadJSON_RefusesANameThatComesTwice(t *testing.T) {
	t.Parallel()
	for body, isAccepted := range map[string]bool{
		`{"all":true,"lane":0}`:                       true,
		`{"all":true,"all":false,"lane":0}`:           false,
		`{"all":true,"ALL":false}`:                    false,
		`{"\u0061ll":true,"all":false}`:               false,
		`{"inner":[{"x":"x"},{"x":{"x":["x","x"]}}]}`: true,
		`{"inner":[{"x":1},{"x":1,"y":2,"x":3}]}`:     false,
		`{"lane":"all","all":true}`:                   true,
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		var into map[string]any
		if err := httpio.ReadJSON(httptest.NewRecorder(), r, &into); (err == nil) != isAccepted {
			t.Errorf("%s: got %v, want it accepted: %t", body, err, isAccepted)
		}
	}
}
