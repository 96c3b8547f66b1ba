package contract_test

import (
	"fmt"
	"testing"

	"weir/internal/contract"
	"weir/internal/weir"
)

// Accept removes only XML's white space around a key, so that Weir and the CMS read the same key.
// Accept refuses a key that begins or ends with another kind of space, or that has a control or
// invisible character. An empty want means that Accept must refuse the key.
func TestSet_Accept_KeysWithOtherSpace(t *testing.T) {
	t.Parallel()
	s, err := contract.New([]contract.Definition{{Name: "a", Root: "a", Key: contract.KeyPaths{"./@k"}}},
		contract.Limits{MaxBody: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}

	for text, want := range map[string]string{
		" /a&#x9; &#xD;&#xA;": "/a", "/a b": "/a b", "/a&#xA0;b": "/a\u00a0b",
		"/\u0627\u0644": "/\u0627\u0644",
		"/a&#xA0;":      "", "&#xA0;/a": "", "/a&#x3000;": "", "/a&#x2028;": "", "/a&#x2028;b": "",
		"/a&#x85;":    "",
		"/a&#x202E;b": "", "/a&#x2066;b": "", "&#xA0;": "",
	} {
		m, err := s.Accept(t.Context(), "", fmt.Appendf(nil, "<a k='%s'/>", text))
		if want == "" && weir.KindOf(err) != weir.Invalid ||
			want != "" && (err != nil || m.Key != want) {
			t.Errorf("%s: got %q %v, want %q", text, m.Key, err, want)
		}
	}
}

// Accept refuses extended parameters of the Content-Type (RFC 2231), because a CMS that ignores
// such parameters would decode the body with another charset.
func TestSet_Accept_RefusesExtendedParameters(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	for contentType, want := range map[string]bool{
		"application/xml; charset=utf-8":                true,
		`application/xml; charset="utf-8"; note="a*b"`:  true,
		"application/xml; charset*=UTF-8''iso-8859-1":   false,
		"application/xml; charset*0=iso-; charset*1=88": false,
		"text/xml ;CHARSET*=us-ascii'en'utf-8":          false,
	} {
		if _, err := s.Accept(t.Context(), contentType,
			[]byte("<ping/>")); (weir.KindOf(err) != weir.Unsupported) != want {
			t.Errorf("%s: got the error %v; want the Content-Type accepted: %t",
				contentType, err, want)
		}
	}
}
