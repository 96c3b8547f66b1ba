package contract

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// heavyBodies returns bodies that need much memory for their size. Each body is within the default
// limits.
func heavyBodies() map[string]string {
	var attributes strings.Builder
	for i := range 99_999 {
		fmt.Fprintf(&attributes, " a%05x=''", i)
	}

	wrap := func(text string, count int) string {
		return "<a>" +
			strings.Repeat(text, count) + "</a>"
	}

	return map[string]string{
		"Elements":               wrap("<b>xxxx</b>", 90_000),
		"EmptyElements":          wrap("<b/>", 99_999),
		"ElementsWithAttributes": wrap("<b a='' b=''/>x", 70_000),
		"Attributes":             "<a" + attributes.String() + "/>",
		"Instructions":           wrap("<?a?>", 200_000),
		"Pieces":                 wrap("<![CDATA[]]>", 85_000),
		"Text":                   wrap("xxxxxxxxx€", 90_000),
	}
}

// The test is not parallel, because it measures the heap.
func TestEstimateMemory(t *testing.T) {
	for name, body := range heavyBodies() {
		before := heapAlive()
		text, err := decodeBody([]byte(body), "")
		if err != nil {
			t.Fatal(err)
		}

		_, doc, err := scanDocument(text, Limits{}.orDefaults(), needAll)
		if err != nil {
			t.Fatal(err)
		}

		alive, weight := heapAlive()-before, estimateMemory([]byte(body))
		if alive > weight || weight > 60*int64(len(body)) {
			t.Errorf("%s: a body of %d bytes takes %d bytes of memory; got the estimate %d, want at least "+
				"that memory and at most 60 times the body",
				name, len(body), alive, weight)
		}

		runtime.KeepAlive(doc)
		runtime.KeepAlive(text)
	}
}

func heapAlive() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The scanner must refuse a tag with too many attributes before the decoder reads the tag. The
// decoder would have all attributes in memory at once: 16 million in a body of 100 MiB.
func TestScanDocument_RefusesAttributesBeforeTheyAreMade(t *testing.T) {
	t.Parallel()
	limits := Limits{Attributes: 3}.orDefaults()
	for text, want := range map[string]string{
		`<a b="=====" c='=">=' d=""/>`:                                   "",
		`<a><!-- = = = = = --><?p = = = = =?><![CDATA[=====]]>=====</a>`: "",
		`<a b="1"><c b="1" d="2"/><c b="1" d="2"/></a>`:                  "",
		"<a>\n<b c='' d='' e='' f=''/></a>":                              "line 2, column 1: an element has more than 3 attributes",
		`<a b="" c="" d="" e=""`:                                         "line 1, column 1: an element has more than 3 attributes",
		"<a b='>' c='>' d='' e='' f=''></a>":                             "line 1, column 1: an element has more than 3 attributes",
	} {
		_, _, err := scanDocument(text, limits, needAll)
		got := ""
		if err != nil {
			got = err.Error()
		}

		if !strings.HasSuffix(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func TestCountHighBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"": 0, "abc": 0, "ä": 2, strings.Repeat("xä", 9): 18,
		"12345678\xff": 1} {
		if got := countHighBytes([]byte(text)); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}
