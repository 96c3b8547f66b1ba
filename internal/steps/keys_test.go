package steps_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"weir/internal/weir"
)

// withKey returns the settings of a contract with the given key, and with steps.
func withKey(key, list string) string {
	return "contracts:\n  - name: article\n    root: article\n    key: " + key +
		"\n    steps:\n" + list
}

// Each part of the ordering key is read as the message has it, without the escapes of the whole
// key.
func TestSender_PartsOfTheKey(t *testing.T) {
	t.Parallel()
	var target, body string
	s := newSender(t, withKey("[./@slug, ./@lang]", `
      - put: /pages/{{ keys[0] }}?locale={{ keys[1] }}&whole={{ key }}
        json:
          parts: "{{ keys }}"
          upper: "{{ map(keys, upper(#)) }}"
          last: "{{ keys[-1] }}"
          names: "{{ keys({'x': 1}) }}"
`), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		read, _ := io.ReadAll(r.Body)
		target, body = r.RequestURI, string(read)
	}))

	d := newDelivery(`<article slug=" a|b\ " lang="en"/>`)
	d.Message.Key = `a\|b\\|en`
	if r := s.Send(t.Context(), d); r.Outcome != weir.OutcomeDelivered {
		t.Fatalf("got %+v, want delivered", r)
	}

	if want := `/pages/a%7Cb%5C?locale=en&whole=a%5C%7Cb%5C%5C%7Cen`; target != want {
		t.Errorf("got the address %s, want %s", target, want)
	}

	if want := `{"last":"en","names":["x"],"parts":["a|b\\","en"],"upper":["A|B\\","EN"]}`; body !=
		want {
		t.Errorf("got the body %s, want %s", body, want)
	}
}

// A contract with one path has one part, and a contract without a key has none.
func TestSender_PartsOfOtherKeys(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{"./@slug": `{"count":1,"parts":["a"]}`,
		`""`: `{"count":0,"parts":[]}`} {
		var body string
		s := newSender(t, withKey(key,
			`      - { post: /pages, json: { parts: "{{ keys }}", count: "{{ len(keys) }}" } }`),
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				read, _ := io.ReadAll(r.Body)
				body = string(read)
			}))

		r := s.Send(t.Context(), newDelivery(`<article slug="a"/>`))
		if r.Outcome != weir.OutcomeDelivered || body != want {
			t.Errorf("key %s: got %+v and the body %s, want %s", key, r, body, want)
		}
	}
}

// A part that the contract's key does not have is a mistake of the settings, with its place.
func TestNew_RefusesAbsentPartsOfTheKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"[./@slug, ./@lang]": "[6:24] contracts[0].steps[0].get: keys[2] does not exist, " +
			"because the last part of the contract's key is keys[1]",
		"./@slug": "because the last part of the contract's key is keys[0]",
		`""`:      "keys has no items, because the contract has no key",
	} {
		_, err := compileSteps(t, withKey(key, "      - get: /pages/{{ keys[2] }}\n"),
			"http://127.0.0.1")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("key %s: got %v, want %q", key, err, want)
		}
	}

	_, err := compileSteps(t, withKey("./@slug", "      - { name: keys, get: /pages }\n"),
		"http://127.0.0.1")
	if err == nil || !strings.Contains(err.Error(), "keys has a meaning in expressions") {
		t.Errorf("a step named keys: got %v, want a mistake", err)
	}
}
