package httpio_test

import (
	"encoding/json"
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
		"Exactly64KiB": {"application/json",
			`{"reason":"` + strings.Repeat("x", 64<<10-13) + `"}`, 0},
		"CutInTheMiddle": {"application/json", `{"reason":"x`, http.StatusBadRequest},
		"NotATime":       {"application/json", `{"until":"tomorrow"}`, http.StatusBadRequest},
		"NumberForATime": {"application/json", `{"until":5}`, http.StatusBadRequest},
		"NoSuchDay": {"application/json", `{"until":"2026-02-30T00:00:00Z"}`,
			http.StatusBadRequest},
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
			if err != nil && (strings.Contains(err.Error(), "Go struct") ||
				strings.Contains(err.Error(), "2006") ||
				strings.Contains(err.Error(), "Unmarshal") ||
				strings.Contains(err.Error(), "here: json:")) {
				t.Errorf("got the error %v, want an error without the terms of Go", err)
			}

			if c.status == 0 && (err != nil || in.Reason == "") {
				t.Errorf("got error %v, reason %q; want no error and a reason", err, in.Reason)
			}

			if c.status != 0 &&
				(weir.KindOf(err) == weir.Internal || httpio.Status(err) != c.status) {
				t.Errorf("got the error %v, want the status %d", err, c.status)
			}
		})
	}
}

// If two names differ only in case, encoding/json takes the value of the last one. So ReadJSON
// refuses such names, as it refuses equal names.
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
		`{"meſſage":"x","message":"y"}`:               false,
		`{"\u212aey":"x","key":"y"}`:                  false,
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		var into map[string]any
		if err := httpio.ReadJSON(httptest.NewRecorder(), r, &into); (err == nil) != isAccepted {
			t.Errorf("%s: got %v, want it accepted: %t", body, err, isAccepted)
		}
	}
}

// encoding/json ignores the case of names. Weir does not, because the audit log and a gateway know
// a field by its name.
func TestReadJSON_RefusesAnotherCaseOfAName(t *testing.T) {
	t.Parallel()
	type inner struct {
		Key *string `json:"key"`
	}
	type embedded struct {
		Lane *int `json:"lane"`
	}

	for body, want := range map[string]string{
		`{"message":"x","filter":{"key":"k"},"list":[{"key":"k"}],"lane":1,"Plain":"p","any":{"Message":1}}`: "",
		`{"Message":"x"}`:         `the name "Message" is not known: it must be "message"`,
		`{"MESSAGE":"x"}`:         `it must be "message"`,
		`{"meſſage":"x"}`:         `it must be "message"`,
		`{"\u212aind":"x"}`:       `it must be "kind"`,
		`{"filter":{"Key":"k"}}`:  `the name "Key" is not known: it must be "key"`,
		`{"list":[{},{"KEY":1}]}`: `it must be "key"`,
		`{"map":{"A":{"Key":1}}}`: `it must be "key"`,
		`{"map":{"A":{"key":"k"},"B":{}},"list":[],"Filter":{}}`: `it must be "filter"`,
		`{"Lane":1}`:    `it must be "lane"`,
		`{"plain":"p"}`: `it must be "Plain"`,
		`{"until":"2030-01-01T00:00:00Z","UNTIL":1}`: `"UNTIL" comes twice`,
		`{"hidden":1}`: `unknown field`,
	} {
		var in struct {
			embedded
			Message string           `json:"message"`
			Kind    string           `json:"kind"`
			Filter  *inner           `json:"filter"`
			List    []inner          `json:"list"`
			Map     map[string]inner `json:"map"`
			Until   *time.Time       `json:"until"`
			Any     any              `json:"any"`
			Plain   string
			Hidden  int `json:"-"`
		}

		err := httpio.DecodeJSON([]byte(body), &in)
		if want == "" && err != nil || want != "" && (weir.KindOf(err) != weir.Malformed ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", body, err, want)
		}
	}
}

// FuzzDecodeJSON compares the check of names with encoding/json: no name that differs from
// "message" fills that field.
func FuzzDecodeJSON(f *testing.F) {
	for _, name := range []string{"message", "Message", "meſſage", "\u212a", "messagE",
		"me\u0073sage"} {
		f.Add(name)
	}

	f.Fuzz(func(t *testing.T, name string) {
		quoted, err := json.Marshal(name)
		if err != nil {
			return
		}

		var in struct {
			Message string `json:"message"`
		}
		err = httpio.DecodeJSON([]byte(`{`+string(quoted)+`:"x"}`), &in)
		if isRight := name == "message"; isRight != (err == nil) {
			t.Errorf("%q: got %v, want an error for each other name than message", name, err)
		}
	})
}

// Times in JSON are read as all other times: by RFC 3339, section 5.6.
func TestReadJSON_ReadsTimesOfRFC3339(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2030-01-31T08:00:00Z":               "2030-01-31T08:00:00Z",
		"2030-01-31t08:00:00z":               "2030-01-31T08:00:00Z",
		"2030-01-31t08:00:00.5+01:00":        "2030-01-31T07:00:00.5Z",
		`2030-01-31\u0074` + `08:00:00z`:     "2030-01-31T08:00:00Z",
		"2016-12-31T23:59:60Z":               "2017-01-01T00:00:00Z", // a leap second
		"2017-01-01T00:59:60.25+01:00":       "2017-01-01T00:00:00.25Z",
		"2016-12-30T23:59:60Z":               "",
		"9999-12-31T23:59:60Z":               "",
		"2030-01-31T08:00:00,5Z":             "",
		"2030-01-31T8:00:00Z":                "",
		"2030-01-31T08:00:00+24:00":          "",
		"2030-01-31T08:00:00":                "",
		"2030-01-31 08:00:00Z":               "",
		"2030-02-30T08:00:00Z":               "",
		"2030-01-31T08:00:00Z and then some": "",
		"":                                   "",
	} {
		type inner struct {
			At *time.Time `json:"at"`
		}
		var in struct {
			First  time.Time   `json:"first"`
			List   []time.Time `json:"list"`
			Nested inner       `json:"nested"`
			Text   string      `json:"text"`
		}

		body := strings.ReplaceAll(`{ "first" : "TIME", "list":["TIME" , "TIME"],
			"nested": {"at":"TIME"}, "text": "2030-01-31t08:00:00z"}`, "TIME", text)
		err := httpio.DecodeJSON([]byte(body), &in)
		if want == "" {
			if weir.KindOf(err) != weir.Malformed ||
				!strings.Contains(err.Error(), "is not a time by RFC 3339") {
				t.Errorf("%q: got %v, want it refused as no time by RFC 3339", text, err)
			}
			continue
		}

		if err != nil || len(in.List) != 2 || in.Nested.At == nil ||
			in.Text != "2030-01-31t08:00:00z" {
			t.Errorf("%q: got %+v, %v; want two times in the list, the nested one, and the text unchanged",
				text, in, err)
			continue
		}

		for _, at := range append(in.List, in.First, *in.Nested.At) {
			if got := at.UTC().Format(time.RFC3339Nano); got != want {
				t.Errorf("%q: got %s, want %s", text, got, want)
			}
		}
	}
}
