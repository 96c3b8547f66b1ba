package contract_test

import (
	"strings"
	"testing"

	"weir/internal/contract"
)

// CheckStart refuses what the first bytes show, and nothing else: a token can go on behind them.
func TestSet_CheckStart(t *testing.T) {
	t.Parallel()
	set := newSet(t)
	space, x := strings.Repeat(" ", contract.StartSize), strings.Repeat("x", contract.StartSize)
	for name, c := range map[string]struct{ kind, document, want string }{ // want "" = no error
		"whole":                  {"", "<a/>", ""},
		"prolog":                 {"", "<?xml version='1.0'?>\n<!-- c --><?p i?><a><b>", ""},
		"only space yet":         {"", space, ""},
		"a comment that goes on": {"", "<!--" + x, ""},
		"a root that goes on":    {"", "<a b='" + x, ""},
		"a text that goes on":    {"", "<a>" + x, ""},
		"wide characters":        {"", utf16Bytes("<!--"+x, false), ""},
		"cut off wide characters": {"text/xml; charset=utf-16le",
			utf16Bytes("<!--"+x, false)[2:], ""},
		"empty":                   {"", "", "the body is empty"},
		"no root":                 {"", " \n", "there is no element"},
		"cut off":                 {"", "<a", "unexpected EOF"},
		"text":                    {"", "hello" + x, "there is text outside the root element"},
		"document type":           {"", "<!DOCTYPE a><a>" + x, ""},
		"a document type goes on": {"", "<!DOCTYPE a SYSTEM '[" + x, ""},
		"internal subset": {"", "<!DOCTYPE a [<!ENTITY b 'c'>]><a/>" + x,
			"line 1, column 1: the document type declaration has an internal subset"},
		"a subset that goes on": {"", "\n<!DOCTYPE a [<!ENTITY b '" + x,
			"line 2, column 1: the document type declaration has an internal subset"},
		"encoding":           {"text/xml; charset=utf-7", "<a/>", "utf-7"},
		"second declaration": {"", "\n<?xml version='1.0'?><a/>" + x, "declaration"},
	} {
		head := c.document[:min(len(c.document), contract.StartSize)]
		err := set.CheckStart(c.kind, []byte(head))
		if c.want == "" && err != nil ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
