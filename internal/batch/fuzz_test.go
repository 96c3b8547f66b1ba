package batch

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"weir/internal/storage/memory"
	"weir/internal/testkit/ziptest"
	"weir/internal/weir"
)

// FuzzFiles reads zips and multipart bodies. Each damaged one is refused by a *weir.Error, as a
// whole or file by file.
func FuzzFiles(f *testing.F) {
	f.Add("", []byte(ziptest.New(f, "a.xml", "<a/>", "__MACOSX/._a.xml", "x", "b/", "")))
	f.Add("", []byte("PK\x05\x06"+strings.Repeat("\x00", 18)))
	f.Add("multipart/mixed; boundary=x", []byte("--x\r\nContent-Type: text/xml\r\n"+
		"Content-Transfer-Encoding: base64\r\n\r\nPGEvPg==\r\n--x--\r\n"))
	f.Add("multipart/form-data; boundary=x", []byte("--x\r\nContent-Disposition: form-data; "+
		"name=a\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n<a=2F>\r\n--x--"))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		blobs := memory.New(time.Now).Blobs()
		size, _, err := storeDocument(t.Context(), blobs, "a", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}

		d := &document{ctx: t.Context(), blobs: blobs, id: "a", size: size}
		var files fileReader
		if contentType == "" {
			files, err = openZip(d)
		} else {
			files, err = openMultipart(d, contentType)
		}

		files = withoutLitter{files}
		for n := 0; err == nil; n++ {
			var one postedFile
			if one, err = files.nextFile(); err != nil {
				break
			}

			if n > len(body) {
				t.Fatalf("got file %d of %d bytes", n, len(body))
			}

			if one.err != nil {
				checkRefusal(t, one.err)
				continue
			}
			if _, err := io.Copy(io.Discard, io.LimitReader(one.content, 1<<20)); err != nil {
				checkRefusal(t, err)
			}
		}

		if !errors.Is(err, io.EOF) {
			checkRefusal(t, err)
		}
	})
}

func checkRefusal(t *testing.T, err error) {
	t.Helper()
	var refused *weir.Error
	if !errors.As(err, &refused) || refused.Message == "" || refused.Kind == weir.Unavailable {
		t.Fatalf("got %v, want a *weir.Error with a reason", err)
	}
}
