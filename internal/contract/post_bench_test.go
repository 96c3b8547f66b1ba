package contract_test

import (
	"fmt"
	"strings"
	"testing"

	"weir/internal/contract"
)

// BenchmarkAccept measures the cost of a post: decoding, the check of the XML, and the rules.
func BenchmarkAccept(b *testing.B) {
	set, err := contract.New([]contract.Definition{{Name: "article", Root: "article", Key: contract.KeyPaths{"./@path"},
		Version: "./@version",
		Fields:  []contract.Field{{Path: "./title", Rule: "required,max=200"}},
		Show:    []contract.ShownField{{Name: "Title", Path: "./title"}}}},
		contract.Limits{MaxBody: 4 << 20})
	if err != nil {
		b.Fatal(err)
	}

	for _, size := range []int{1 << 10, 100 << 10, 1 << 20} {
		paragraph := "<p class='text'>The harbour <b>opens</b> at <i>eight</i> – as usual.</p>\n"
		body := []byte("<?xml version='1.0' encoding='UTF-8'?>\n<article path='/a' version='3'><title>Harbour</title><body>" +
			strings.Repeat(paragraph, size/len(paragraph)) + "</body></article>")
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := set.Accept(b.Context(), "", body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
