package contract_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/contract"
)

// Each of these bodies takes minutes or gigabytes if the namespaces are copied for each element, or
// if an element is kept once for each way that leads to it.
func TestSet_Accept_CostsLittle(t *testing.T) {
	t.Parallel()
	prefixes, attributes := strings.Builder{}, strings.Builder{}
	for i := range 40_000 {
		fmt.Fprintf(&prefixes, ` xmlns:b%d="u"`, i)
		fmt.Fprintf(&attributes, ` b%d=""`, i)
	}
	nested := strings.Repeat("<a>", 250) + `<a id="1">` + strings.Repeat("<b/>", 90_000) + strings.Repeat("</a>", 251)
	for name, c := range map[string]struct{ key, body string }{
		"Namespaces": {"@id", `<r id="1"` + prefixes.String() + ">" + strings.Repeat(`<c xmlns:d="v"/>`,
			30_000) + "</r>"},
		"Attributes": {"@id", `<r id="1"` + attributes.String() + "/>"},
		"Filters": {"./i[t='x'][v]/@id",
			`<r><i id="1">` + strings.Repeat("<t>x</t>", 45_000) + strings.Repeat("<v/>", 45_000) + "</i></r>"},
		"Children": {"./i[t='x']/v/../@id",
			`<r><i id="1">` + strings.Repeat("<t>x</t>", 45_000) + strings.Repeat("<v/>", 45_000) + "</i></r>"},
		"Depth":    {".//a//a//b//../@id", "<r>" + nested + "</r>"},
		"Siblings": {"./*/../*/../*/../@id", `<r id="1">` + strings.Repeat("<b/>", 90_000) + "</r>"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := contract.New([]contract.Definition{{Name: "r", Root: "r", Key: c.key}},
				contract.Limits{MaxBody: 4 << 20})
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				m, err := s.Accept(t.Context(), "", []byte(c.body))
				if err == nil && m.Key != "1" {
					err = fmt.Errorf("key %q", m.Key)
				}
				done <- err
			}()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("not done after 20 s")
			}
		})
	}
}
