package lane

import (
	"bytes"
	"compress/flate"
	"fmt"
	"testing"
)

// Bodies of every size that is stored without compression have the bytes that a flate.Writer
// writes, so all releases read and write the same.
func TestWrapBytes(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.NoCompression)
	if err != nil {
		t.Fatal(err)
	}

	for n := range storedLimit + 1 {
		data := bytes.Repeat([]byte("<ä>\x00"), n/4+1)[:n]
		b.Reset()
		w.Reset(&b)
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}

		if err := w.Close(); err != nil {
			t.Fatal(err)
		}

		got := wrapBytes(data)
		if !bytes.Equal(got, b.Bytes()) {
			t.Fatalf("%d bytes: got %.20x, want %.20x", n, got, b.Bytes())
		}

		if read, err := decompressBytes(got); err != nil || !bytes.Equal(read, data) {
			t.Fatalf("%d bytes: got %.20q, %v, want %.20q and no error", n, read, err, data)
		}

		if read, isWrapped := unwrapBytes(got); isWrapped != (n > 0) || !bytes.Equal(read, data) {
			t.Fatalf("%d bytes: got %.20q, wrapped: %v, want %.20q and %v", n, read, isWrapped,
				data, n > 0)
		}
	}
}

// Bytes that differ from wrapped ones in any place are read as the deflate format has it: they are
// never taken for other data.
func TestUnwrapBytes_LeavesOtherBytes(t *testing.T) {
	t.Parallel()
	packed := wrapBytes([]byte("data"))
	for i := range packed {
		if i >= blockHeader && i < len(packed)-blockHeader {
			continue // the data
		}

		changed := bytes.Clone(packed)
		changed[i] ^= 0x10
		if got, isWrapped := unwrapBytes(changed); isWrapped {
			t.Errorf("byte %d: got %q, want other bytes to be left", i, got)
		}
	}

	for name, other := range map[string][]byte{
		"Empty": nil, "Cut": packed[:len(packed)-1], "Longer": append(bytes.Clone(packed), 0),
		"TwoBlocks": append(bytes.Clone(packed[:blockHeader+4]), packed...),
	} {
		if got, isWrapped := unwrapBytes(other); isWrapped {
			t.Errorf("%s: got %q, want other bytes to be left", name, got)
		}
	}
}

// A small body is stored without a flate.Writer, and a large one is compressed.
func TestCompressBytes(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, storedLimit, storedLimit + 1, 1 << 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			data := bytes.Repeat([]byte("x"), n)
			packed, err := compressBytes(data)
			if err != nil {
				t.Fatal(err)
			}

			if isCompressed := len(packed) < n; isCompressed != (n > storedLimit) {
				t.Errorf("got %d bytes, compressed: %v, want %v", len(packed), isCompressed,
					n > storedLimit)
			}

			if read, err := decompressBytes(packed); err != nil || !bytes.Equal(read, data) {
				t.Errorf("got %d bytes back, %v, want %d and no error", len(read), err, n)
			}
		})
	}
}
