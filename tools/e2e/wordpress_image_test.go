package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/tools/realcms"
)

// imageMessage returns the recipe's sample message that has an image, with the given title instead
// of the sample's.
func imageMessage(t *testing.T, title string) string {
	t.Helper()
	sample := readFile(t, "../../recipes/wordpress/messages/image.xml")
	return strings.Replace(sample, "<title>Harbour</title>", "<title>"+title+"</title>", 1)
}

// attachment is an image in an answer of WordPress's API.
type attachment struct {
	Slug   string
	Source string `json:"source_url"`
	Mime   string `json:"mime_type"`
	Alt    string `json:"alt_text"`
	Title  struct{ Rendered string }
}

func readURL(t *testing.T, address string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: got %s, %v: %.300s, want status 200 and no error", address,
			resp.Status, err, body)
	}

	return body
}

// TestWordPress_Image sends one image twice, with different titles. WordPress then has one image,
// with the second title. Then it sends an article whose slug WordPress keeps for itself, to the
// same WordPress.
func TestWordPress_Image(t *testing.T) {
	w := newCMSRun(t, wordPressREST, realcms.Race{}, 1)
	for n, title := range []string{"Harbour", "Harbour, corrected"} {
		resp, err := http.Post(w.weir+"/api/messages", "application/xml",
			strings.NewReader(imageMessage(t, title)))
		if err != nil {
			t.Fatal(err)
		}

		resp.Body.Close()
		location := resp.Header.Get("Location")
		w.awaitCondition(fmt.Sprintf("message %d is delivered", n), time.Minute, func() bool {
			var status struct{ Stage, LastError string }
			if err := json.Unmarshal(readURL(t, location), &status); err != nil {
				t.Fatal(err)
			}

			if status.Stage == "dead" {
				t.Fatalf("message %d is dead: %s, want another stage", n, status.LastError)
			}

			return status.Stage == "delivered"
		})
	}

	var all []attachment
	if err := json.Unmarshal(readURL(t, w.proxy.URL+"/wp-json/wp/v2/media"), &all); err != nil ||
		len(all) != 1 {
		t.Fatalf("got %d attachments (%v), want 1: %+v", len(all), err, all)
	}

	got := all[0]
	if got.Slug != "harbour-at-dawn" || got.Title.Rendered != "Harbour, corrected" ||
		got.Mime != "image/png" ||
		got.Alt != "The harbour at dawn" {
		t.Errorf("got %+v, want the second title", got)
	}

	if picture := readURL(t, got.Source); !bytes.HasPrefix(picture, []byte("\x89PNG\r\n")) ||
		len(picture) != 70 {
		t.Errorf("got %d bytes that begin with %.8q, want the 70 of the PNG", len(picture), picture)
	}

	w.checkReservedSlug()
}

// checkReservedSlug sends an article with the slug rss twice. WordPress makes rss-2 of it, with
// status 201. The message must be dead with that reason, and WordPress must have no post of it, in
// no state.
func (w *cmsRun) checkReservedSlug() {
	w.t.Helper()
	for version := range 2 {
		id, err := w.postOnce(w.t.Context(), "rss", version+1)
		if err != nil {
			w.t.Fatal(err)
		}

		var status struct{ Stage, LastError string }
		w.awaitCondition("the message of the slug rss is dead", time.Minute, func() bool {
			status = getJSON[struct{ Stage, LastError string }](w.system,
				w.weir+"/api/messages/"+id)
			return status.Stage == "dead" || status.Stage == "delivered"
		})

		if status.Stage != "dead" ||
			!strings.Contains(status.LastError, "WordPress keeps this slug for its feeds") {
			w.t.Errorf("got %+v, want the message dead, because WordPress keeps the slug for its feeds", status)
		}
	}

	if posts, err := w.cms.Posts(w.t.Context(), "rss"); err != nil || len(posts) != 0 {
		w.t.Errorf("got the posts %+v (%v), want none", posts, err)
	}
}
