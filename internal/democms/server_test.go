package democms_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/democms"
)

func startCMS(t *testing.T, latency time.Duration) (*democms.Server, string) {
	t.Helper()
	cms := democms.New(latency, 0)
	web := httptest.NewServer(cms)
	t.Cleanup(web.Close)
	return cms, web.URL
}

// postBody returns the status of the answer, or -1 if there was none.
func postBody(t *testing.T, url, body, id string) int {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}

	req.Header.Set("Idempotency-Key", id)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return -1
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)

	return resp.StatusCode
}

func articleXML(path string, version int) string {
	return fmt.Sprintf(`<article path="%s" version="%d"><title>t</title></article>`, path, version)
}

func TestServer_ConcurrentWritesMakeDuplicates(t *testing.T) {
	t.Parallel()
	cms, url := startCMS(t, 50*time.Millisecond)
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() { postBody(t, url+"/api/content", articleXML("/a", i), "") })
	}

	wg.Wait()

	if s := cms.Stats(); s.Duplicates == 0 || s.Overlaps == 0 || s.Writes != 5 ||
		s.MaxConcurrent < 2 {
		t.Errorf("got %+v, want 5 writes with overlaps and duplicates", s)
	}
}

func TestServer_OneWriterMakesNoDuplicates(t *testing.T) {
	t.Parallel()
	cms, url := startCMS(t, time.Millisecond)
	for i := range 6 {
		postBody(t, url+"/api/content", articleXML("/a", 1+i), fmt.Sprint(i/2)) // each id twice
	}

	postBody(t, url+"/api/content", articleXML("/a", 2), "late")

	if s := cms.Stats(); s.Items != 1 || s.Duplicates != 0 || s.Overlaps != 0 ||
		s.Inversions != 1 || s.Repeats != 3 {
		t.Errorf("got %+v, want one item, 1 inversion, 3 repeats", s)
	}
}

// The CMS takes the order of a write from Weir-Sequence. If the header is missing, the order is the
// number of the write.
func TestServer_CountsOvertakenWrites(t *testing.T) {
	t.Parallel()
	cms, url := startCMS(t, time.Millisecond)
	for _, sequence := range []string{"4", "6", "5", "", ""} {
		req, err := http.NewRequest(http.MethodPost, url+"/api/content",
			strings.NewReader(articleXML("/a", 1)))
		if err != nil {
			t.Fatal(err)
		}

		if sequence != "" {
			req.Header.Set("Weir-Sequence", sequence)
		}

		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}

		resp.Body.Close()
	}

	// Message 5 came after message 6. The last two writes have no Weir-Sequence: the CMS gives them
	// the orders 4 and 5, which are also below 6.
	if s := cms.Stats(); s.Overtaken != 3 || s.Writes != 5 {
		t.Errorf("got %+v, want 5 writes, 3 of them after a later message", s)
	}
}

// A message can have any root element. The CMS uses the ordering key as the path if the message has
// no path.
func TestServer_TakesEveryRoot(t *testing.T) {
	t.Parallel()
	cms, url := startCMS(t, time.Millisecond)
	req, err := http.NewRequest(http.MethodPost, url+"/api/content",
		strings.NewReader(`<p:product xmlns:p="u"/>`))
	if err != nil {
		t.Fatal(err)
	}

	req.Header.Set("Weir-Key", "sku%2F1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}

	resp.Body.Close()

	if got := cms.Requests(); resp.StatusCode != http.StatusCreated || len(got) != 1 ||
		got[0].Path != "sku/1" {
		t.Errorf("got %d and %+v, want 201 and the path sku/1", resp.StatusCode, got)
	}
}

// The page shows an example of each fault, and the CMS accepts each example.
func TestServer_PageShowsFaults(t *testing.T) {
	t.Parallel()
	_, url := startCMS(t, time.Millisecond)
	page := getBody(t, url+"/")
	of := reflect.TypeFor[democms.Faults]()
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		if !strings.Contains(page, "&#34;"+name+"&#34;: ") {
			t.Errorf("the page does not show the fault %s", name)
		}
	}

	for _, known := range democms.KnownFaults {
		var f democms.Faults
		if err := json.Unmarshal([]byte("{"+known[0]+"}"), &f); err != nil ||
			f == (democms.Faults{}) {
			t.Errorf("%s: got %+v and %v, want a fault", known[0], f, err)
		}
	}
}

func TestServer_Faults(t *testing.T) {
	t.Parallel()
	for fault, want := range map[string]int{
		`{"down":true}`: 503, `{"drop":true}`: -1, `{"tooMany":"2s"}`: 429, `{"failEvery":1}`: 500,
		`{"failFirst":"/"}`: 201, `{"failPath":"/a"}`: 500, `{"failPath":"/b"}`: 201,
		`{"failUnder":"/"}`: 500, `{"failUnder":"/b"}`: 201, `{"refuseUnder":"/a"}`: 403,
		`{"refuseUnder":"/a/"}`:    201,
		`{"rejectText":"<title>"}`: 400, `{"slow":"1ms"}`: 201,
	} {
		_, url := startCMS(t, 0)
		if got := postBody(t, url+"/faults", fault, ""); got != 200 {
			t.Errorf("set %s: got %d, want 200", fault, got)
		}

		if got := postBody(t, url+"/api/content", articleXML("/a", 1), ""); got != want {
			t.Errorf("%s: %d, want %d", fault, got, want)
		}
	}

	_, url := startCMS(t, 0)
	for _, wrong := range []string{`{"explode":true}`, `{"slow":"soon"}`, `x`} {
		if got := postBody(t, url+"/faults", wrong, ""); got != 400 {
			t.Errorf("set %s: got %d, want 400", wrong, got)
		}
	}
}

// Each body is one that Weir accepts. The CMS must read the title in each.
func TestServer_ReadsTheEncodingsOfWeir(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ contentType, body string }{
		"Latin1ByParameter": {"application/xml; charset=iso-8859-1",
			"<a path='/x'><title>H\xe4fen</title></a>"},
		"Latin1ByDeclaration": {"text/xml",
			"<?xml version='1.0' encoding='ISO-8859-1'?><a path='/x'><title>H\xe4fen</title></a>"},
		"UTF8WithMark": {"", "\xef\xbb\xbf<a path='/x'><title>Häfen</title></a>"},
		"UTF16": {"application/xml",
			"\xff\xfe" + littleEndian("<a path='/x'><title>Häfen</title></a>")},
	} {
		cms, _ := startCMS(t, 0)
		post := httptest.NewRequest(http.MethodPost, "/api/content", strings.NewReader(c.body))
		post.Header.Set("Content-Type", c.contentType)
		answer, page := httptest.NewRecorder(), httptest.NewRecorder()
		cms.ServeHTTP(answer, post)
		cms.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/", nil))

		if answer.Code != http.StatusCreated || !strings.Contains(page.Body.String(), "Häfen") {
			t.Errorf("%s: got %d %s and the page\n%s\nwant 201 and Häfen", name, answer.Code,
				answer.Body, page.Body)
		}
	}
}

// littleEndian returns a text of the Basic Multilingual Plane in UTF-16LE, without a byte order
// mark.
func littleEndian(text string) string {
	var b strings.Builder
	for _, r := range text {
		b.WriteByte(byte(r))
		b.WriteByte(byte(r >> 8))
	}
	return b.String()
}

func TestServer_FailFirst(t *testing.T) {
	t.Parallel()
	cms, _ := startCMS(t, 0)
	cms.SetFaults(democms.Faults{FailFirst: "/a/"})

	for _, c := range []struct {
		path, attempt string
		want          int
	}{{"/a/1", "1", 500}, {"/a/1", "2", 201}, {"/b/1", "1", 201}, {"/a/2", "", 201}} {
		req := httptest.NewRequest(http.MethodPost, "/api/content",
			strings.NewReader(articleXML(c.path, 1)))
		req.Header.Set("Weir-Attempt", c.attempt)
		w := httptest.NewRecorder()
		if cms.ServeHTTP(w, req); w.Code != c.want {
			t.Errorf("attempt %q of %s: %d, want %d", c.attempt, c.path, w.Code, c.want)
		}
	}
}

func TestServer_HangEndsWithTheFault(t *testing.T) {
	t.Parallel()
	_, url := startCMS(t, 0)
	postBody(t, url+"/faults", `{"hang":true}`, "")
	done := make(chan int)
	go func() { done <- postBody(t, url+"/api/content", articleXML("/a", 1), "") }()

	select {
	case got := <-done:
		t.Fatalf("answered %d, want it to hang", got)
	case <-time.After(100 * time.Millisecond):
	}

	postBody(t, url+"/faults", `{}`, "")
	if got := <-done; got != 201 {
		t.Errorf("got %d, want 201 after the fault", got)
	}
}

func TestServer_PageEscapes(t *testing.T) {
	t.Parallel()
	_, url := startCMS(t, 0)
	postBody(t, url+"/api/content",
		`<a path="/x"><title>&lt;script&gt;alert(1)&lt;/script&gt;</title></a>`, "")
	resp, err := http.Get(url + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if strings.Contains(string(body), "<script>") || !strings.Contains(string(body), "/x") {
		t.Errorf("got %s, want the path, and no script", body)
	}

	var stats democms.Stats
	resp, err = http.Get(url + "/stats")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&stats); err != nil || stats.Writes != 1 {
		t.Errorf("got %+v, %v, want 1 write", stats, err)
	}
}

func getBody(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}

	return string(body)
}
