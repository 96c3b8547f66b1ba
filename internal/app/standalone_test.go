package app

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/dashboard"
	"weir/internal/door"
	"weir/internal/httpio"
	"weir/internal/settings"
)

// newStandaloneHandler returns the handler of all requests of a process without a host, with a key
// of the function view.
func newStandaloneHandler(t *testing.T, keys door.Keys) (*running, http.Handler) {
	t.Helper()
	r := newTestRunning(t)
	alone := &standalone{
		door: door.New(door.Config{Keys: keys, Page: dashboard.Base, Now: time.Now, Log: r.log}),
	}
	functions := httpio.PlainPathsOnly(
		r.log,
		newRouter(r.log, guardRoutes(alone.door, r.listRoutes())),
	)

	return r, alone.newHandler(functions)
}

func requestAlone(h http.Handler, method, path, key string) int {
	req := httptest.NewRequest(method, "http://127.0.0.1:7071"+path, nil)
	req.Header.Set("X-Functions-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w.Code
}

// Each address needs a key of its own function, except the health. No caller reaches the functions
// of queues and timers, which a host would call.
func TestStandalone_EachAddressNeedsItsKey(t *testing.T) {
	t.Parallel()
	wrong := door.NewKey()
	r, h := newStandaloneHandler(t, door.Keys{"view": {door.HashKey(wrong)}})
	checked := 0
	for _, one := range r.listRoutes() {
		method, path := http.MethodPost, parameter.ReplaceAllString(one.path, "x")
		if one.methods != nil {
			method = one.methods[0]
		}

		want, key := http.StatusUnauthorized, ""
		switch {
		case slices.Contains(triggers, one.path):
			want = http.StatusNotFound
		case slices.Contains(door.Public, one.function):
			continue
		case one.function != "view":
			key = wrong
		}

		checked++

		if got := requestAlone(h, method, path, key); got != want {
			t.Errorf(
				"%s %s: got %d without the key of %s, want %d",
				method,
				path,
				got,
				one.function,
				want,
			)
		}
	}

	if checked < 40 {
		t.Errorf("got %d addresses, want 40 at least", checked)
	}

	if got := requestAlone(h, http.MethodGet, "/api/health", ""); got == http.StatusUnauthorized {
		t.Error("the health needs a key, want none")
	}

	for path, want := range map[string]int{"/": http.StatusSeeOther,
		dashboard.Base + "/assets/app.css": http.StatusOK,
		dashboard.Base + "/sign-in":        http.StatusOK} {
		if got := requestAlone(h, http.MethodGet, path, ""); got != want {
			t.Errorf("GET %s: got %d without a key, want %d", path, got, want)
		}
	}
}

// The functions that need a key, and those that need none, are the same as under a host:
// function.json has the level of each.
func TestStandalone_NeedsTheKeysOfAHost(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("../../functions/*/function.json")
	if err != nil || len(names) < 10 {
		t.Fatalf("got %d functions and the error %v", len(names), err)
	}

	var keyed, public []string
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}

		function := filepath.Base(filepath.Dir(name))
		switch {
		case strings.Contains(string(text), `"authLevel": "function"`):
			keyed = append(keyed, function)
		case strings.Contains(string(text), `"authLevel": "anonymous"`):
			public = append(public, function)
		}
	}

	if known := slices.Sorted(slices.Values(door.Functions)); !slices.Equal(keyed, known) {
		t.Errorf("got %q as functions with keys in function.json, want those of door.Functions %q",
			keyed, known)
	}

	if !slices.Equal(public, door.Public) {
		t.Errorf("got %q as functions without keys in function.json, want those of door.Public %q",
			public, door.Public)
	}
}

func TestLoadSettings_Keys(t *testing.T) {
	t.Parallel()
	first, second := door.HashKey("first").String(), door.HashKey("second").String()
	s, err := settings.Load(
		newEnvironment(t, minimal+"keys: { view: ["+first+"], write: ["+first+"] }\n",
			"WEIR_KEY_VIEW", first+","+second, "WEIR_KEY_ALL", second),
	)
	if err != nil {
		t.Fatal(err)
	}

	keys, _ := door.ParseKeys(s.Keys)
	if len(keys["view"]) != 2 || len(keys["write"]) != 1 || !keys.Open("receive", "second") {
		t.Errorf(
			"got the keys %v, want those of weir.yaml, replaced by those of the environment",
			s.Keys,
		)
	}
}

func TestLoadSettings_WrongDoor(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"keys: { veiw: [] }\n":             "keys.veiw",
		"keys: { view: [secret] }\n":       "SHA-256",
		"tls: { certificate: a.crt }\n":    "both files",
		"tls: { certificat: a, key: b }\n": "unknown field",
	} {
		if _, err := settings.Load(newEnvironment(t, minimal+text)); err == nil ||
			!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret\n") {
			t.Errorf("%q: got the error %v, want one with %q", text, err, want)
		}
	}

	if _, err := settings.Load(newEnvironment(t, minimal, "WEIR_KEY_VIEW", "x")); err == nil {
		t.Error("got no error for a wrong variable WEIR_KEY_VIEW")
	}
}

// A folder takes the place of the storage account, except under a host, whose instances share it.
func TestLoadSettings_Folder(t *testing.T) {
	t.Parallel()
	alone := newEnvironment(t, minimal, settings.DataVariable, "/data", settings.StorageVariable, "")
	if s, err := settings.Load(alone); err != nil || s.Data != "/data" {
		t.Errorf("got the folder %q and the error %v, want /data", s.Data, err)
	}

	hosted := newEnvironment(t, minimal, settings.DataVariable, "/data", settings.HostPortVariable, "1",
		"WEIR_PREFIX", "weir")
	if s, err := settings.Load(hosted); err != nil || s.Data != "" || s.Storage == "" {
		t.Errorf("got the folder %q and the error %v, want the account under a host", s.Data, err)
	}

	files := newEnvironment(t, minimal+"intake: { files: {} }\n", settings.DataVariable, "/data")
	if _, err := settings.Load(files); err == nil || !strings.Contains(err.Error(), "intake.files") {
		t.Errorf("got the error %v, want one about intake.files", err)
	}
}
