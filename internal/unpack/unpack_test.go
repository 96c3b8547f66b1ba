package unpack_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"weir/internal/unpack"
	"weir/internal/weir"
)

func pack(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	return b.Bytes()
}

func TestAll(t *testing.T) {
	t.Parallel()
	const limit = 4 << 20
	packed, zeros := pack(t, "<a>text</a>"), strings.Repeat("\x00", 2<<20)
	damaged := bytes.Clone(packed)
	damaged[len(damaged)-6] ^= 1 // the checksum
	for name, c := range map[string]struct {
		packed []byte
		want   string
		kind   weir.Kind
		says   string
	}{
		"one":       {packed, "<a>text</a>", 0, ""},
		"two parts": {append(bytes.Clone(packed), pack(t, "more")...), "<a>text</a>more", 0, ""},
		// the XML reader refuses it
		"packed twice":      {pack(t, string(packed)), string(packed), 0, ""},
		"high ratio, small": {pack(t, zeros[:1<<20]), zeros[:1<<20], 0, ""},
		"bomb":              {pack(t, zeros), "", weir.TooLarge, "more than 200 times"},
		"too large":         {pack(t, randomText(5<<20)), "", weir.TooLarge, "over 4194304 bytes"},
		"cut":               {packed[:len(packed)-4], "", weir.Malformed, "ends early"},
		"cut header":        {packed[:5], "", weir.Malformed, "ends early"},
		"damaged":           {damaged, "", weir.Malformed, "not valid gzip"},
		"plain": {[]byte("<a>text, which is no gzip</a>"), "", weir.Malformed,
			"is not compressed by gzip"},
		"followed": {append(bytes.Clone(packed), "tail, which is no gzip"...), "",
			weir.Malformed, "not valid gzip"},
	} {
		got, err := unpack.All(c.packed, limit)
		if c.says == "" && (err != nil || string(got) != c.want) {
			t.Errorf("%s: got %d bytes, %v; want %d bytes", name, len(got), err, len(c.want))
		}

		if c.says != "" && (err == nil || weir.KindOf(err) != c.kind ||
			!strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: got %v, want kind %v and %q", name, err, c.kind, c.says)
		}
	}

	if got, err := unpack.All(nil, limit); err != nil || len(got) != 0 {
		t.Errorf("got %d bytes, %v of an empty body; want the same", len(got), err)
	}
}

// randomText returns a text with a low ratio.
func randomText(size int) string {
	b := make([]byte, size)
	state := uint32(1)
	for i := range b {
		state = state*1664525 + 1013904223
		b[i] = 'a' + byte(state>>24)%26
	}
	return string(b)
}

// The error of the connection, or of the check of a signature at the end of the body, is no error
// of the content.
func TestReader_ReturnsTheErrorOfThePackedBody(t *testing.T) {
	t.Parallel()
	failed := errors.New("no signature")
	for _, packed := range [][]byte{pack(t, "text"), nil, pack(t, "text")[:8]} {
		in := io.MultiReader(bytes.NewReader(packed), iotest.ErrReader(failed))
		if _, err := io.ReadAll(unpack.NewReader(in, 1<<10)); !errors.Is(err, failed) {
			t.Errorf("after %d bytes: got %v, want the error of the reader", len(packed), err)
		}
	}
}

func FuzzAll(f *testing.F) {
	f.Add(pack(f, "<a>text</a>"))
	f.Add([]byte("\x1f\x8b\x08"))
	f.Fuzz(func(t *testing.T, packed []byte) {
		got, err := unpack.All(packed, 1<<16)
		if len(got) > 1<<16 || err != nil && weir.KindOf(err) != weir.TooLarge &&
			weir.KindOf(err) != weir.Malformed {
			t.Errorf("got %d bytes and %v", len(got), err)
		}
	})
}
