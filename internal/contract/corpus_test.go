package contract_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"weir/internal/contract"
)

// corpus has a document for each format that the trade sends (testdata/corpus), a contract for it,
// and the values that the contract reads. If split is set, the contract is one of the document's
// parts.
var corpus = map[string]struct {
	definition contract.Definition
	split      string
	key        string // of the message, or of the first part
	version    string
	dueAt      string // "" = none
	title      string // "" = the contract shows none
	parts      int    // 0 = the document is one message
}{
	"onix21-reference.xml": {contract.Definition{Root: "Product",
		Key:       contract.KeyPaths{"./RecordReference"},
		DeliverAt: "./PublicationDate"}, "/ONIXMessage/Product", "vm.1", "", "2030-01-30T23:00:00Z",
		"./Title/TitleText=Die Füße", 2},
	"onix21-short.xml": {contract.Definition{Root: "product", Key: contract.KeyPaths{"./a001"},
		DeliverAt: "./b003"},
		"/ONIXmessage/product", "h.1", "", "2030-01-30T23:00:00Z", "./title/b203=“Quoted” – €5", 1},
	"onix3-reference.xml": {contract.Definition{Root: "Product",
		Key:     contract.KeyPaths{"./RecordReference"},
		Version: "./@datestamp"}, "/*/Product", "h.3", "20300131T080000+0100", "",
		".//TitleText=Harbour opens", 1},
	"onix3-short.xml": {contract.Definition{Root: "product", Key: contract.KeyPaths{"./a001"},
		Version: "./@datestamp"}, "product", "h.4", "20300131", "", ".//b203=Harbour", 1},
	"newsml12.xml": {contract.Definition{Root: "NewsML",
		Key:     contract.KeyPaths{"./NewsItem//ProviderId", "./NewsItem//NewsItemId"},
		Version: ".//RevisionId", DeliverAt: ".//StatusWillChange/DateAndTime"}, "",
		"example.com|n.1", "3", "2030-01-31T08:00:00Z", "", 0},
	"newsmlg2.xml": {contract.Definition{Root: "newsItem", Key: contract.KeyPaths{"./@guid"},
		Version:   "./itemMeta/versionCreated",
		DeliverAt: "./itemMeta/embargoed"}, "", "urn:newsml:example.com:20300131:1",
		"2030-01-31T08:00:00+01:00",
		"2030-02-01T08:00:00Z", ".//headline=Harbour opens", 0},
	"nitf.xml": {contract.Definition{Root: "nitf", Key: contract.KeyPaths{".//doc-id/@id-string"},
		Version:   ".//date.issue/@norm",
		DeliverAt: ".//date.release/@norm"}, "", "n.7", "20300131T080000+0100",
		"2030-01-31T09:00:00Z", ".//hl1=Harbour opens", 0},
	"jats.xml": {contract.Definition{Root: "article",
		Key:     contract.KeyPaths{".//article-id[@pub-id-type='doi']"},
		Version: ".//pub-date/@iso-8601-date"}, "", "10.7554/eLife.1",
		"2030-01-31T00:00:00+01:00", "",
		".//article-title=Growth of E. coli in milk", 0},
	"dita.xml": {contract.Definition{Root: "topic", Key: contract.KeyPaths{"./@id"},
		Version: ".//revised/@modified"}, "",
		"harbour", "2030-01-31T00:00:00+01:00", "", "./title=The harbour", 0},
	"rss.xml": {contract.Definition{Root: "item", Key: contract.KeyPaths{"./guid"},
		Version: "./pubDate"}, "/rss/channel/item", "g.1",
		"Thu, 31 Jan 2030 08:00:00 +0300", "", "./title=Гавань открыта", 2},
	"atom.xml": {contract.Definition{Root: "{http://www.w3.org/2005/Atom}entry",
		Match: "!has('./content/properties')",
		Key:   contract.KeyPaths{"./id"}, Version: "./updated", DeliverAt: "./published"}, "",
		"urn:e:1", "2030-01-31T08:00:00Z",
		"2030-01-31T07:00:00Z", "./title=Less: <", 0},
	"wxr.xml": {contract.Definition{Root: "item", Key: contract.KeyPaths{"./wp:post_id"},
		Version:   "./wp:post_date",
		DeliverAt: "./pubDate"}, "/rss/channel/item", "12", "2030-01-31T09:00:00+01:00",
		"2030-01-31T08:00:00Z", "./title=Hello", 1},
	"sitemap.xml": {contract.Definition{Root: "url", Key: contract.KeyPaths{"./loc"},
		Version: "./lastmod"}, "/urlset/url",
		"https://example.com/a?b=1&c=2", "2030-01-31T00:00:00+01:00", "", "", 2},
	"cxml.xml": {contract.Definition{Root: "cXML", Match: "has('./Request/OrderRequest')",
		Key: contract.KeyPaths{".//OrderRequestHeader/@orderID"}, Version: "./@timestamp"}, "",
		"DO1", "2030-01-31T08:00:00-07:00", "", "", 0},
	"idoc.xml": {contract.Definition{Root: "ORDERS05",
		Key: contract.KeyPaths{"./IDOC/E1EDK01/BELNR"}, Version: "./IDOC/EDI_DC40/DOCNUM",
		DeliverAt: "./IDOC/EDI_DC40/CREDAT"}, "", "4500000001", "0000000000471100",
		"2030-01-30T23:00:00Z", "", 0},
	"ubl.xml": {contract.Definition{Root: "Invoice", Key: contract.KeyPaths{"./cbc:ID"},
		Version:   "./cbc:IssueDate",
		DeliverAt: "./cbc:DueDate"}, "", "INV-1", "2030-01-31T00:00:00+01:00",
		"2030-02-27T23:00:00Z", "", 0},
	"tei.xml": {contract.Definition{Root: "TEI", Key: contract.KeyPaths{"./@xml:id"},
		Version:   ".//edition/@n",
		DeliverAt: ".//edition/date/@when"}, "", "t1", "2", "2030-01-30T23:00:00Z",
		".//titleStmt/title=Briefe an Ada", 0},
	"soap.xml": {contract.Definition{Root: "Envelope", Match: "has('./Body/{urn:shop}order')",
		Key: contract.KeyPaths{"./Body/{urn:shop}order/@id"}, Version: ".//placed"}, "", "o.1",
		"2030-01-31T08:00:00+01:00", "", "", 0},
	"odata.xml": {contract.Definition{Root: "entry", Match: "has('./content/properties')",
		Key:     contract.KeyPaths{".//d:ID"},
		Version: "./updated"}, "", "9223372036854775808", "2030-01-31T08:00:00Z", "",
		".//d:Name=Harbour", 0},
}

func TestCorpus(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/corpus/*.xml")
	if err != nil || len(files) != len(corpus) {
		t.Fatalf("got %d files, %v; want %d, one for each contract", len(files), err, len(corpus))
	}

	for name, c := range corpus {
		document, err := os.ReadFile(filepath.Join("testdata/corpus", name))
		if err != nil {
			t.Fatal(err)
		}

		d, title := c.definition, ""
		d.Name, d.Supersede, d.TimeZone = name, d.Version != "", "Europe/Berlin"
		if path, text, hasTitle := bytes.Cut([]byte(c.title), []byte("=")); hasTitle {
			d.Show, title = []contract.ShownField{{Name: "Title", Path: string(path)}}, string(text)
		}

		set, err := contract.New([]contract.Definition{d}, contract.Limits{MaxBody: 1 << 16})
		if err != nil {
			t.Fatal(err)
		}

		bodies, contentType := [][]byte{document}, "application/xml"
		if c.split != "" {
			bodies, contentType = splitCorpus(t, set, document, c.split)
		}

		if len(bodies) != max(c.parts, 1) {
			t.Errorf("%s: got %d parts, want %d", name, len(bodies), c.parts)
		}

		for i, body := range bodies {
			m, err := set.Accept(t.Context(), contentType, body)
			due := ""
			if !m.DueAt.IsZero() {
				due = m.DueAt.Format(time.RFC3339)
			}

			isWrong := m.Key != c.key || m.Version != c.version || due != c.dueAt ||
				m.Shown["Title"] != title
			if err != nil || !bytes.Equal(m.Body, body) || i == 0 && isWrong {
				t.Errorf("%s: got key %q, version %q, due %q, shown %q, %v; want %q, %q, %q, %q",
					name, m.Key, m.Version, due, m.Shown, err, c.key, c.version, c.dueAt, title)
			}
		}
	}
}

func splitCorpus(t *testing.T, set *contract.Set, document []byte, given string) (bodies [][]byte,
	contentType string) {
	t.Helper()
	path, err := contract.CompileSplitPath(given)
	if err != nil {
		t.Fatal(err)
	}

	split, err := set.Split(bytes.NewReader(document), "", path)
	if err != nil {
		t.Fatal(err)
	}

	for {
		part, err := split.Next()
		if err != nil {
			return bodies, split.PartType()
		}
		bodies = append(bodies, part.Body)
	}
}
