package steps_test

import (
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"weir/internal/weir"
)

// asset is a message with a picture in base64. The picture's four bytes are not valid UTF-8.
const asset = `<article><title>A "b"</title><file name="a&quot;b.png" type="image/png">/v+
	9AA==</file></article>`

// picture is the decoded picture of asset.
const picture = "\xfe\xff\xbd\x00"

// received is a request that a CMS got.
type received struct {
	header http.Header
	body   []byte
}

// sendAsset sends a message by a chain of one step. It returns the result, and the request that the
// CMS got.
func sendAsset(t *testing.T, step, message string) (weir.Result, received) {
	t.Helper()
	var got received
	s := newSender(t, articleWithSteps(step),
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			content, _ := io.ReadAll(r.Body)
			got = received{r.Header, content}
		}))

	return s.Send(t.Context(), newDelivery(message)), got
}

func TestSender_Multipart(t *testing.T) {
	t.Parallel()
	const step = `
      - post: /files
        multipart:
          - { name: title, content: "{{ text('./title') }}" }
          - { name: none, content: "{{ text('./none') }}" }
          - { name: gone, filename: gone.png, content: "{{ bytes(text('./none')) }}" }
          - { name: info, type: application/json, content: "{{ toJSON({'key': key}) }}" }
          - { name: file, filename: "{{ text('./file/@name') }}", type: "{{ text('./file/@type') }}",
              content: "{{ bytes(text('./file')) }}" }
`

	r, got := sendAsset(t, step, asset)
	again, second := sendAsset(t, step, asset)
	if r.Outcome != weir.OutcomeDelivered || again.Outcome != weir.OutcomeDelivered {
		t.Fatalf("got %+v and %+v, want delivered", r, again)
	}

	if string(got.body) != string(second.body) {
		t.Errorf("got the second body\n%q\nwant the first one\n%q", second.body, got.body)
	}

	kind, params, err := mime.ParseMediaType(got.header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" {
		t.Fatalf("got %s, %v, want multipart/form-data and no error", kind, err)
	}

	reader := multipart.NewReader(strings.NewReader(string(got.body)), params["boundary"])
	for _, want := range []struct{ disposition, kind, content string }{
		{`form-data; name="title"`, "", `A "b"`},
		{`form-data; name="info"`, "application/json", "{\n  \"key\": \"/news/1\"\n}"},
		{`form-data; name="file"; filename="a%22b.png"`, "image/png", picture},
	} {
		part, err := reader.NextRawPart()
		if err != nil {
			t.Fatal(err)
		}

		content, _ := io.ReadAll(part)
		if part.Header.Get("Content-Disposition") != want.disposition ||
			part.Header.Get("Content-Type") != want.kind ||
			string(content) != want.content {
			t.Errorf("got a part with the header %v and the content %q, want %+v", part.Header,
				content, want)
		}
	}

	if _, err := reader.NextRawPart(); err != io.EOF {
		t.Errorf("after the last part: got the error %v, want %v", err, io.EOF)
	}
}

func TestSender_RawBodies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step, kind, body string
		want             weir.Outcome
		reason           string
	}{
		"Bytes": {
			`{ post: /media, body: "{{ bytes(text('./file')) }}", headers: { Content-Type: "{{ text('./file/@type') }}" } }`,
			"image/png", picture, weir.OutcomeDelivered, "",
		},
		"DefaultType": {
			`{ post: /media, body: "{{ bytes(text('./file')) }}" }`,
			"application/octet-stream", picture,
			weir.OutcomeDelivered, "",
		},
		"Text": {
			`{ post: /notes, body: "{{ text('./title') }}!" }`,
			"text/plain; charset=utf-8", `A "b"!`,
			weir.OutcomeDelivered, "",
		},
		"NotBase64": {
			`{ post: /media, body: "{{ bytes(text('./title')) }}" }`, "", "", weir.OutcomeRejected,
			"the text is not base64",
		},
		"None": {
			`{ post: /media, body: "{{ bytes(text('./none')) }}" }`, "", "", weir.OutcomeRejected,
			"it is nil, and a body needs a value",
		},
		"InJSON": {
			`{ post: /a, json: { a: "{{ has('./file') ? bytes(text('./file')) : 'x' }}" } }`, "",
			"",
			weir.OutcomeRejected,
			"bytes belong to body",
		},
		"InText": {
			`{ post: /a, form: { a: "-{{ has('./file') ? bytes(text('./file')) : 'x' }}" } }`, "",
			"",
			weir.OutcomeRejected, "bytes belong to body",
		},
		"BadPartType": {
			`{ post: /a, multipart: [ { name: a, type: "{{ text('./title') }}", content: x } ] }`,
			"", "",
			weir.OutcomeRejected, "is not a content type",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, got := sendAsset(t, "      - "+c.step+"\n", asset)
			if r.Outcome != c.want || !strings.Contains(r.Reason, c.reason) ||
				string(got.body) != c.body ||
				got.header.Get("Content-Type") != c.kind {
				t.Errorf("got %+v with %s %q, want %s with %s %q", r,
					got.header.Get("Content-Type"), got.body, c.want, c.kind, c.body)
			}
		})
	}
}

// Weir itself must refuse a line break in a header. If net/http refused the header, the error would
// look like a CMS that cannot be reached, and the lane would pause.
func TestSender_LineBreakInAHeader(t *testing.T) {
	t.Parallel()
	r, _ := sendAsset(t, "      - { post: /a, headers: { X-Title: \"{{ text('./title') }}\" } }\n",
		"<article><title>a\nX-Other: b</title></article>")
	if r.Outcome != weir.OutcomeRejected ||
		!strings.Contains(r.Reason, "header X-Title: a line break") {
		t.Errorf("got %+v, want rejected because of a line break", r)
	}
}
