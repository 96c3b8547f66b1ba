package httpio_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/internal/httpio"
	"weir/internal/weir"
)

// The function key is the one that the host has checked, in whatever spelling the client has sent
// it.
func TestFunctionKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		headers []string
		query   string
		want    string
	}{
		"None":              {nil, "a=1", ""},
		"Header":            {[]string{"K=="}, "code=other", "K=="},
		"TwoHeaders":        {[]string{"K", "x"}, "", "K"},
		"JoinedHeaders":     {[]string{"K, x"}, "", "K"},
		"Query":             {nil, "a=1&code=K%3D%3D", "K=="},
		"UpperCase":         {nil, "CODE=K", "K"},
		"MixedCase":         {nil, "Code=K", "K"},
		"EscapedName":       {nil, "%63ode=K", "K"},
		"First":             {nil, "Code=K&code=x&CODE=y", "K"},
		"JoinedValues":      {nil, "code=K%2Cx", "K"},
		"OtherName":         {nil, "codes=x&xcode=y&code=K", "K"},
		"BehindAWrongQuery": {nil, "x=%zz&a=1;b&code=K", "K"},
		"EmptyHeader":       {[]string{""}, "code=K", "K"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.URL.RawQuery = c.query
		for _, one := range c.headers {
			r.Header.Add("X-Functions-Key", one)
		}

		if got := httpio.FunctionKey(r); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestCheckQuery(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"":                              "",
		"force=true":                    "",
		"force=true&code=K&clientId=me": "",
		"CODE=K&Clientid=me":            "",
		"Force=true":                    `"Force" is not a parameter here: there are force, note`,
		"force=true&force=false":        "force is given more than once",
		"dry=1&note=a&wet=2":            `"dry" is not a parameter here: there are force, note; "wet" is`,
		"note=a;code=K":                 "the query cannot be read",
		"note=%zz":                      "the query cannot be read",
		strings.Repeat("a", 100) + "=1": strings.Repeat("a", 40) + "…",
		"%00=1":                         `"\x00" is not a parameter here`,
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.URL.RawQuery = query
		err := httpio.CheckQuery(r, "force", "note")
		if want == "" && err != nil || want != "" && (weir.KindOf(err) != weir.Malformed ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", query, err, want)
		}
	}
}

// A query of thousands of unknown parameters gets an answer that is shorter than the query.
func TestCheckQuery_NamesFewOfManyUnknownParameters(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 5000 {
		names = append(names, fmt.Sprintf("a%04d=1", i))
	}

	r := httptest.NewRequest(http.MethodGet, "/?force=1&force=2&"+strings.Join(names, "&"), nil)
	err := httpio.CheckQuery(r, "force", "note")

	var refused *weir.Error
	if !errors.As(err, &refused) || len(refused.Problems) != 11 || len(refused.Message) > 1000 {
		t.Fatalf("got %v, want eleven problems in a short text", err)
	}

	for _, want := range []string{`"a0000" is not a parameter here: there are force, note; `,
		`"a0009" is not a parameter here, nor are 4990 others; `, "force is given more than once"} {
		if !strings.Contains(refused.Message, want) {
			t.Errorf("got %q, want %q in it", refused.Message, want)
		}
	}

	if strings.Count(refused.Message, "there are") != 1 {
		t.Errorf("got %q, want the known parameters once", refused.Message)
	}
}
