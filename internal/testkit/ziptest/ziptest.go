// Package ziptest writes zips for tests.
package ziptest

import (
	"archive/zip"
	"bytes"
	"io"
	"testing"
)

// New returns a zip. The parameter files has the name and the content of each file by turns: name,
// content, name, content. A name that ends with a slash is a directory. New ends the test if the
// zip cannot be written.
func New(t testing.TB, files ...string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		f, err := z.Create(files[i])
		if err == nil {
			_, err = io.WriteString(f, files[i+1])
		}

		if err != nil {
			t.Fatalf("write %s into a zip: %v", files[i], err)
		}
	}

	if err := z.Close(); err != nil {
		t.Fatalf("end a zip: %v", err)
	}

	return b.String()
}
