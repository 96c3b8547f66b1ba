package weir_test

import (
	"strings"
	"testing"

	"weir/internal/weir"
)

func TestCheckContentEncoding(t *testing.T) {
	t.Parallel()
	for _, values := range [][]string{nil, {""}, {"identity"}, {"Identity"}, {"identity, identity"},
		{"", "identity"}} {
		if err := weir.CheckContentEncoding(values...); err != nil {
			t.Errorf("%q is refused: %v; want no error", values, err)
		}
	}

	for _, c := range []struct {
		values []string
		named  string
	}{
		{[]string{"gzip"}, "gzip"}, {[]string{"br"}, "br"}, {[]string{"GZIP"}, "GZIP"},
		{[]string{"utf-8"}, "utf-8"},
		{[]string{"identity, deflate"}, "deflate"}, {[]string{"identity", "zstd"}, "zstd"},
		{[]string{"x-" + strings.Repeat("a", 100)}, "…"},
	} {
		err := weir.CheckContentEncoding(c.values...)
		if weir.KindOf(err) != weir.Unsupported || !strings.Contains(err.Error(), c.named) {
			t.Errorf("%q: got %v, want Unsupported with %q", c.values, err, c.named)
		}
	}
}
