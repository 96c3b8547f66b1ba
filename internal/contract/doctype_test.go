package contract_test

import (
	"strings"
	"testing"

	"weir/internal/contract"
	"weir/internal/weir"
)

// declarations are document type declarations that Weir reads past. A quoted identifier can have
// any character but its quote.
var declarations = []string{
	"<!DOCTYPE html>", "<!DOCTYPE p:ping  >", "<!DOCTYPE\n\tping\r\n>",
	"<!DOCTYPE ping SYSTEM 'ping.dtd'>", `<!DOCTYPE ping SYSTEM "a[b]>c'<!ENTITY x 'y'>">`,
	"<!DOCTYPE ping SYSTEM ''>", `<!DOCTYPE ping SYSTEM 'http://[::1]/"ä".dtd' >`,
	`<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd">`,
	`<!DOCTYPE ping PUBLIC '' ''>`, `<!DOCTYPE ping PUBLIC "it's; #1" "s">`,
}

func newDoctypeSet(t testing.TB, doctype string) *contract.Set {
	t.Helper()
	s, err := contract.New([]contract.Definition{{Name: "ping", Root: "ping", Doctype: doctype,
		Key: contract.KeyPaths{"./@id"}}}, contract.Limits{MaxBody: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// With doctype: pass the body stays byte for byte; with drop only the declaration is missing; with
// refuse the reason has the declaration's place. This holds in each kind of encoding.
func TestAccept_AppliesDoctype(t *testing.T) {
	t.Parallel()
	const before, after = "<?xml version='1.0'?>\n<!-- ä -->", "\n<?p i?><ping id='ö'>x</ping>"
	encode := map[string]func(string) string{
		"UTF-8":    func(s string) string { return s },
		"Marked":   func(s string) string { return "\uFEFF" + s },
		"UTF-16BE": func(s string) string { return utf16Bytes(s, true) },
		"Latin1": func(s string) string {
			return strings.NewReplacer("'1.0'", "'1.0' encoding='iso-8859-1'", "ä", "\xe4", "ö", "\xf6").Replace(s)
		},
	}
	for name, in := range encode {
		for _, declaration := range declarations {
			if name == "Latin1" && strings.Contains(declaration, "ä") {
				continue
			}

			whole, cut := in(before+declaration+after), in(before+after)
			for doctype, want := range map[string]string{"": whole, "pass": whole, "drop": cut} {
				m, err := newDoctypeSet(t, doctype).Accept(t.Context(), "", []byte(whole))
				if err != nil || string(m.Body) != want || m.Size != len(want) || m.Key != "ö" {
					t.Errorf("%s, doctype %q, %s: got key %q, %d bytes, body %q, error %v; want the body %q", name, doctype,
						declaration, m.Key, m.Size, m.Body, err, want)
				}
			}

			_, err := newDoctypeSet(t, "refuse").Accept(t.Context(), "", []byte(whole))
			if p := problemOf(t, err); weir.KindOf(err) != weir.Invalid || p.Rule != "doctype" ||
				p.Line != 2 || p.Column != 11 {
				t.Errorf("%s, doctype refuse, %s: got %v, %+v; want rule doctype in line 2, column 11", name, declaration, err, p)
			}
		}
	}
}

// A document without a declaration is untouched, whatever the contract does with declarations.
func TestAccept_AppliesDoctypeOnlyToDeclarations(t *testing.T) {
	t.Parallel()
	const body = "<!-- <!DOCTYPE ping> --><ping id='1'><![CDATA[<!DOCTYPE ping>]]></ping>"
	for _, doctype := range []string{"pass", "drop", "refuse"} {
		m, err := newDoctypeSet(t, doctype).Accept(t.Context(), "", []byte(body))
		if err != nil || string(m.Body) != body {
			t.Errorf("doctype %s: got %q, %v; want the body as it came", doctype, m.Body, err)
		}
	}
}

func TestNew_RefusesUnknownDoctype(t *testing.T) {
	t.Parallel()
	_, err := contract.New([]contract.Definition{{Name: "a", Root: "a", Doctype: "skip"}},
		contract.Limits{MaxBody: 1})
	if err == nil || !strings.Contains(err.Error(),
		`doctype is "skip" and must be pass, drop or refuse`) {
		t.Errorf("got %v, want the values of doctype", err)
	}
}

// The parts of a document have no declaration, and their contracts get none.
func TestSplit_LeavesDoctypeOut(t *testing.T) {
	t.Parallel()
	for _, declaration := range declarations {
		parts, err := splitText(t,
			strings.NewReader("<?xml version='1.0'?>"+declaration+"<a><b/></a>"), "", "/a/b")
		if err != nil || len(parts) != 1 || !strings.Contains(parts[0], "<b/>") ||
			strings.Contains(parts[0], "DOCTYPE") {
			t.Errorf("%s: got %q, %v; want the part <b/>", declaration, parts, err)
		}
	}
}

// A redacting contract hides values behind a declaration, too.
func TestRedact_ReadsPastDoctype(t *testing.T) {
	t.Parallel()
	s, err := contract.New([]contract.Definition{{Name: "a", Root: "a", Redact: []string{"./b"}}},
		contract.Limits{MaxBody: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}

	got, err := s.Redact(t.Context(), "a", xml,
		[]byte("<!DOCTYPE a SYSTEM '>'><a><b>secret</b></a>"))
	if want := "<!DOCTYPE a SYSTEM '>'><a><b>[redacted]</b></a>"; err != nil ||
		string(got.Body) != want {
		t.Errorf("got %q, %v; want %q", got.Body, err, want)
	}
}

// Check reports whether the CMS gets the declaration.
func TestCheck_FindsDoctype(t *testing.T) {
	t.Parallel()
	for doctype, want := range map[string]bool{"": true, "pass": true, "drop": false} {
		found, err := newDoctypeSet(t, doctype).Check(t.Context(), xml,
			[]byte("<!DOCTYPE ping><ping id='1'/>"))
		if err != nil || found.HasDoctype != want {
			t.Errorf("doctype %q: got %t, %v; want %t", doctype, found.HasDoctype, err, want)
		}
	}
}
