package ziptest

import (
	"bytes"
	"compress/gzip"
	"strings"
)

// Gzip compresses a text by gzip.
func Gzip(text string) []byte {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, _ = zip.Write([]byte(text)) // a Buffer returns no error
	_ = zip.Close()
	return packed.Bytes()
}

// Bomb returns a small body that unpacks to a document of 16 MiB.
func Bomb() []byte { return Gzip("<a>" + strings.Repeat(" ", 16<<20) + "</a>") }
