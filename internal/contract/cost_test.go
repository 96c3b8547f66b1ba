package contract_test

import (
	encodingxml "encoding/xml"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"weir/internal/contract"
)

// Each body would take minutes or gigabytes with a simple algorithm. For example, Accept must not
// copy all namespaces for each element, and a path must not select the same element more than once.
func TestSet_Accept_CostsLittle(t *testing.T) {
	t.Parallel()
	prefixes, attributes := strings.Builder{}, strings.Builder{}
	for i := range 40_000 {
		fmt.Fprintf(&prefixes, ` xmlns:b%d="u"`, i)
		fmt.Fprintf(&attributes, ` b%d=""`, i)
	}

	nested := strings.Repeat("<a>", 250) + `<a id="1">` + strings.Repeat("<b/>", 90_000) +
		strings.Repeat("</a>", 251)
	for name, c := range map[string]struct{ key, body string }{
		"Namespaces": {"@id", `<r id="1"` + prefixes.String() + ">" +
			strings.Repeat(`<c xmlns:d="v"/>`, 30_000) + "</r>"},
		"PathByNamespace": {"./{v}c/../@{}id",
			`<r id="1"` + prefixes.String() + ">" + strings.Repeat(`<c xmlns="v"/>`,
				30_000) + "</r>"},
		"AttributeByNamespace": {"./c/@{u}x", `<r` + prefixes.String() + ` xmlns:p="u">` +
			strings.Repeat(`<c p:x="1"/>`, 20_000) + "</r>"},
		"Attributes": {"@id", `<r id="1"` + attributes.String() + "/>"},
		"Filters": {"./i[t='x'][v]/@id",
			`<r><i id="1">` + strings.Repeat("<t>x</t>", 45_000) + strings.Repeat("<v/>", 45_000) +
				"</i></r>"},
		"Children": {"./i[t='x']/v/../@id",
			`<r><i id="1">` + strings.Repeat("<t>x</t>", 45_000) + strings.Repeat("<v/>", 45_000) +
				"</i></r>"},
		"Parent": {"./i/t/..[text()][t='x']/../@id",
			`<r id="1"><i>` + strings.Repeat("<t>x</t>", 90_000) + "</i></r>"},
		"Depth": {".//a//a//b//../@id", "<r>" + nested + "</r>"},
		"Siblings": {"./*/../*/../*/../@id",
			`<r id="1">` + strings.Repeat("<b/>", 90_000) + "</r>"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := contract.New(
				[]contract.Definition{{Name: "r", Root: "r", Key: contract.KeyPaths{c.key}}},
				contract.Limits{MaxBody: 4 << 20})
			if err != nil {
				t.Fatal(err)
			}

			began := time.Now()
			if err := readTokens(c.body); err != nil {
				t.Fatal(err)
			}

			yardstick := time.Since(began)
			began = time.Now()
			m, err := s.Accept(t.Context(), "", []byte(c.body))
			if err != nil || m.Key != "1" {
				t.Fatalf("got key %q and error %v, want key 1", m.Key, err)
			}

			if ratio := float64(time.Since(began)) / float64(yardstick); ratio > maxCostRatio {
				t.Errorf("Accept took %.0f times as long as reading the tokens alone, want at most %d",
					ratio, maxCostRatio)
			}
		})
	}
}

// maxCostRatio limits the time of Accept, as a multiple of the time of readTokens. Accept takes up
// to about 20 times as long as readTokens. If the time of Accept grew with the square of the body's
// size, Accept would take thousands of times as long.
const maxCostRatio = 300

// readTokens is the baseline for the time of Accept: readTokens reads the body's tokens and builds
// nothing.
func readTokens(body string) error {
	d := encodingxml.NewDecoder(strings.NewReader(body))
	for {
		if _, err := d.RawToken(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}
