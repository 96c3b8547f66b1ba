package cms_test

import (
	"net/http"
	"testing"

	"weir/internal/cms"
)

// XML that ends in the middle is in doubt, wherever it ends.
func TestAnswer_FindDoubt_CutXML(t *testing.T) {
	t.Parallel()
	for body, isCut := range map[string]bool{
		"<?xml version='1.0'?><a><b/></a>":        false,
		"<?xml version='1.0'?><a><b/>":            true,
		"<?xml version='1.0'?><a><![CDATA[text":   true,
		"<?xml version='1.0'?><a><!-- a comment":  true,
		"<?xml version='1.0'?><a><b attribute='v": true,
	} {
		a := cms.Answer{Status: 200, Header: http.Header{"Content-Type": {"application/xml"}},
			Body: []byte(body)}
		if got := a.FindDoubt(); (got != "") != isCut {
			t.Errorf("%s: got %q, want a doubt: %t", body, got, isCut)
		}
	}
}
