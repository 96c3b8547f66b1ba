package weir_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"weir/internal/weir"
)

func TestFingerprint_Normalised(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{
		"asset 4711 is missing":                                      "asset <n> is missing",
		`field "title" too long:  812 > 255`:                         "field <text> too long: <n> > <n>",
		"no such id 6F9619FF-8B86-D011-B42D-00C04FC964FF\n  in tree": "no such id <id> in tree",
		"commit deadbeef01 refused":                                  "commit <id> refused",
		"commit 01deadbeef refused":                                  "commit <id> refused",
		"decade facade":                                              "decade facade",
		"it can't be, it isn't":                                      "it can't be, it isn't",
		"value 'a b' is not one of 'c'":                              "value <text> is not one of <text>",
		"at 12:30:05.1 on 2026-01-31":                                "at <n> on <n>-<n>-<n>",
		"":                                                           "",
		`422 Unprocessable Entity: {"error":"asset 4711 is missing"}`:                                        "Unprocessable Entity: asset <n> is missing",
		`422 X: {"code":"E17","path":"/news/a","errors":[{"detail":"field \"lead\" is too long"}]}`:          "X: E<n>, field <text> is too long",
		`400 Bad Request: ["locked by an editor", "/news/a"]`:                                                "<n> Bad Request: locked by an editor",
		`400 Bad Request: {"error": "bad", "/news/a": "locked", "message": "cut of…`:                         "<n> Bad Request: bad, cut of…",
		`422 Unprocessable Entity: {"error":{"message":"section \"Sports\" does not exist","trace":"b4c1"}}`: "Unprocessable Entity: section <text> does not exist",
		`422 X: {"field":"lead","max":200}`:                                                                  "X: {field:<text>,max:<n>}",
		`400 Bad Request: value is not in ["a"]`:                                                             "<n> Bad Request: value is not in [<text>]",
	} {
		if _, got := weir.Fingerprint("c", 422, reason); got != want {
			t.Errorf("%q: got %q, want %q", reason, got, want)
		}
	}

	if _, got := weir.Fingerprint("c", 0, strings.Repeat("ä", 500)); utf8.RuneCountInString(got) !=
		200 ||
		!utf8.ValidString(got) {
		t.Errorf("got %d characters, want 200 of UTF-8", utf8.RuneCountInString(got))
	}
}

func TestFingerprint_Kinds(t *testing.T) {
	t.Parallel()
	name := func(contract string, status int, reason string) string {
		f, _ := weir.Fingerprint(contract, status, reason)
		return f
	}

	one := name("article", 422, "asset 1 is missing")
	if len(one) != 12 || one != name("article", 422, "asset 99 is missing") {
		t.Errorf("got the fingerprint %q, and with another number %q; want the same 12 characters",
			one, name("article", 422, "asset 99 is missing"))
	}

	if name("article", 422, `422: {"error":"title_missing"}`) == name("article", 422,
		`422: {"error":"asset_locked"}`) {
		t.Error("two errors in JSON have the same fingerprint, want two fingerprints")
	}

	for _, other := range []string{name("picture", 422, "asset 1 is missing"),
		name("article", 400, "asset 1 is missing"), name("article", 422, "asset 1 is locked")} {
		if other == one {
			t.Errorf("another kind of failure has the same fingerprint %q, want a different one",
				one)
		}
	}
}
