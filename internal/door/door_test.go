package door_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"weir/internal/door"
)

const page = "/api/dashboard"

// newDoor returns a door, and a key for each of the named functions.
func newDoor(
	t *testing.T,
	now func() time.Time,
	functions ...string,
) (d *door.Door, keys map[string]string) {
	t.Helper()
	keys = map[string]string{}
	hashes := door.Keys{}
	for _, name := range functions {
		keys[name] = door.NewKey()
		hashes[name] = []door.Hash{door.HashKey(keys[name])}
	}

	return door.New(
		door.Config{Keys: hashes, Page: page, Now: now, Log: slog.New(slog.DiscardHandler)},
	), keys
}

// answer is a handler that answers 204, and notes the key and the headers of the last request.
type answer struct{ headers http.Header }

func (a *answer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.headers = r.Header.Clone()
	w.WriteHeader(http.StatusNoContent)
}

func send(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestDoor_GuardsByTheKeyOfTheFunction(t *testing.T) {
	t.Parallel()
	d, keys := newDoor(t, time.Now, "receive", "view", door.All)
	for name, c := range map[string]struct {
		function, header, code string
		want                   int
	}{
		"KeyInHeader":      {"receive", keys["receive"], "", http.StatusNoContent},
		"KeyInParameter":   {"receive", "", keys["receive"], http.StatusNoContent},
		"HeaderComesFirst": {"receive", "wrong", keys["receive"], http.StatusUnauthorized},
		"KeyOfAll":         {"receive", keys[door.All], "", http.StatusNoContent},
		"OfAnother":        {"receive", keys["view"], "", http.StatusUnauthorized},
		"None":             {"receive", "", "", http.StatusUnauthorized},
		"TheHashItself": {"receive", door.HashKey(keys["receive"]).String(), "",
			http.StatusUnauthorized},
		"FunctionWithNoKey": {"write", keys["view"], "", http.StatusUnauthorized},
		"AllOpensWrite":     {"write", keys[door.All], "", http.StatusNoContent},
		"HealthNeedsNone":   {"health", "", "", http.StatusNoContent},
		"OpenAPINeedsNone":  {"openapi", "", "", http.StatusNoContent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodPost, "/api/x?code="+url.QueryEscape(c.code), nil)
			if c.header != "" {
				r.Header.Set("X-Functions-Key", c.header)
			}

			if got := send(d.Guard(c.function, &answer{}), r).Code; got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// Two keys of a function open it at the same time, so that callers can change from one to the
// other.
func TestKeys_Rotate(t *testing.T) {
	t.Parallel()
	former, next := door.NewKey(), door.NewKey()
	hashes := []string{door.HashKey(former).String(), strings.ToUpper(door.HashKey(next).String())}
	both, problems := door.ParseKeys(map[string][]string{"view": hashes})
	if problems != nil {
		t.Fatal(problems)
	}

	only, _ := door.ParseKeys(map[string][]string{"view": hashes[1:]})
	for i, got := range []bool{both.Open("view", former), both.Open("view", next),
		only.Open("view", next), !only.Open("view", former)} {
		if !got {
			t.Errorf("check %d: got false, want true", i)
		}
	}
}

func TestParseKeys_Refuses(t *testing.T) {
	t.Parallel()
	good := door.HashKey("a").String()
	for name, texts := range map[string]map[string][]string{
		"UnknownFunction": {"recieve": {good}},
		"Three":           {"view": {good, good, good}},
		"None":            {"view": {}},
		"TheKeyItself":    {"view": {door.NewKey()}},
		"TooShort":        {"view": {good[2:]}},
		"OfAnEmptyKey":    {"view": {door.HashKey("").String()}},
	} {
		if _, problems := door.ParseKeys(texts); len(problems) != 1 {
			t.Errorf("%s: got the problems %v, want one", name, problems)
		}
	}
}

// Without keys only names of this machine are served: another name is that of a page which rebound
// it by DNS.
func TestDoor_WithoutKeysServesThisMachineOnly(t *testing.T) {
	t.Parallel()
	open, _ := newDoor(t, time.Now)
	keyed, _ := newDoor(t, time.Now, "view")
	for host, want := range map[string][2]int{"localhost:7071": {204, 204},
		"127.0.0.1:7071": {204, 204}, "evil.example": {403, 204}} {
		for i, d := range []*door.Door{open, keyed} {
			r := httptest.NewRequest(http.MethodGet, "http://"+host+"/api/lanes", nil)
			if got := send(d.Wrap(&answer{}), r).Code; got != want[i] {
				t.Errorf("host %s, door %d: got %d, want %d", host, i, got, want[i])
			}
		}
	}
}

// A caller cannot imitate a host, nor a proxy where there is none.
func TestDoor_RemovesHeadersOfOthers(t *testing.T) {
	t.Parallel()
	for _, isBehindProxy := range []bool{false, true} {
		d := door.New(door.Config{IsBehindProxy: isBehindProxy, Page: page, Now: time.Now,
			Log: slog.New(slog.DiscardHandler)})
		r := httptest.NewRequest(http.MethodGet, "http://localhost/api/lanes", nil)
		for _, name := range []string{"X-Azure-Functions-InvocationId",
			"X-MS-CLIENT-PRINCIPAL-NAME", "X-Forwarded-For", "X-Forwarded-Host"} {
			r.Header.Set(name, "forged")
		}

		got := &answer{}
		send(d.Wrap(got), r)
		hasHost := got.headers.Get(
			"X-Azure-Functions-InvocationId",
		)+got.headers.Get(
			"X-MS-CLIENT-PRINCIPAL-NAME",
		) != ""

		hasProxy := got.headers.Get("X-Forwarded-For") != "" &&
			got.headers.Get("X-Forwarded-Host") != ""
		if hasHost || hasProxy != isBehindProxy {
			t.Errorf("behind a proxy %v: got the headers %v", isBehindProxy, got.headers)
		}
	}
}

func TestCheckAddress(t *testing.T) {
	t.Parallel()
	nothing, keys := door.Protection{}, door.Protection{HasKeys: true}
	tls := door.Protection{HasKeys: true, HasTLS: true}
	proxy := door.Protection{HasKeys: true, IsBehindProxy: true}

	// nothing, keys, TLS and keys, proxy and keys, proxy alone
	for address, want := range map[string][5]bool{
		"127.0.0.1:7071":    {true, true, true, true, false},
		"[::1]:0":           {true, true, true, true, false},
		"localhost:7071":    {true, true, true, true, false},
		"0.0.0.0:7071":      {false, false, true, true, false},
		":7071":             {false, false, true, true, false},
		"10.1.2.3:7071":     {false, false, true, true, false},
		"weir.example:7071": {false, false, true, true, false},
		"127.0.0.1":         {},
		"127.0.0.1:http":    {},
	} {
		for i, p := range []door.Protection{nothing, keys, tls, proxy, {IsBehindProxy: true}} {
			if err := door.CheckAddress(address, p); (err == nil) != want[i] {
				t.Errorf("CheckAddress(%q, %+v) = %v, want accepted: %v", address, p, err, want[i])
			}
		}
	}
}
