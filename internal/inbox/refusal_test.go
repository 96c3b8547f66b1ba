package inbox_test

import (
	"strings"
	"testing"
	"time"

	"weir/internal/testkit/ziptest"
)

// TestCollect_Refuses checks that Weir rejects each of these files: it moves the file to the
// rejected files, writes a problems file, and appends no message.
func TestCollect_Refuses(t *testing.T) {
	t.Parallel()
	with := func(name, value string) map[string]string { return map[string]string{name: value} }
	good := newArticle("/a", 1)
	for name, c := range map[string]struct {
		name, contentType string
		metadata          map[string]string
		content, want     string
	}{
		"Empty":      {content: "", want: "the file is empty"},
		"Spaces":     {content: " \n", want: "there is no element"},
		"Text":       {content: "hello", want: "line 1"},
		"JSON":       {contentType: "application/json", content: "{}", want: "Content-Type"},
		"JSONAsXML":  {content: `{"a":1}`, want: "line 1"},
		"Binary":     {content: "\x00\x01\x02\x03", want: "U+0000"},
		"CutOff":     {content: good[:20], want: "line 1"},
		"TwoRoots":   {content: good + good, want: "root"},
		"Unbalanced": {content: "<article path='/a'></title></article>", want: "line 1"},
		"DoctypeEntities": {content: `<!DOCTYPE a [<!ENTITY b "c">]>` + good,
			want: "document type"},
		"NoKey":   {content: "<article><title>t</title></article>", want: "contract"},
		"NoTitle": {content: "<article path='/a'/>", want: "contract"},
		"LongTitle": {content: strings.Replace(good, "<title>1",
			"<title>"+strings.Repeat("t", 21), 1), want: "at most 20"},
		"BadUTF8": {content: "<article path='/a'><title>\xff</title></article>",
			want: "UTF-8"},
		"UnknownCharset": {contentType: "text/xml; charset=klingon", content: good,
			want: "klingon"},
		"WrongCharset": {content: "<?xml version='1.0' encoding='utf-16'?>" + good,
			want: "the declaration says UTF-16, and the bytes are UTF-8"},
		"DueNotATime": {metadata: with("Weir_Deliver_At", "tomorrow"), content: good,
			want: "Weir-Deliver-At"},
		"DelayNotADuration": {metadata: with("weir_deliver_after", "soon"), content: good,
			want: "Weir-Deliver-After"},
		"EmptyDelay": {metadata: with("weir_deliver_after", "PT"), content: good,
			want: "Weir-Deliver-After"},
		"OwnKey": {metadata: with("idempotency_key", "k"), content: good,
			want: "a file has no metadata Idempotency_key"},
		"CallbackWithoutPrefix": {metadata: with("callback", "https://a.example/"), content: good,
			want: "did you mean weir_callback?"},
		"BothDueTimes": {metadata: map[string]string{"weir_deliver_after": "1s",
			"weir_deliver_at": "2030-01-01T00:00:00Z"},
			content: good, want: "only one of"},
		"TwoSpellings": {metadata: map[string]string{"weir_deliver_after": "1s",
			"WeirDeliverAfter": "2s"}, content: good, want: "only one of"},
		"UnknownWeirName": {metadata: with("weir_priority", "1"), content: good,
			want: "there is no metadata weir_priority"},
		"MisspeltDueTime": {metadata: with("Weir_Delivr_At", "x"), content: good,
			want: "did you mean weir_deliver_at"},
		"DueWithoutPrefix": {metadata: with("deliverat", "2030-01-01T00:00:00Z"), content: good,
			want: "weir_deliver_at"},
		"CallbackRefused": {metadata: with("weir_callback", "https://evil.example/"), content: good,
			want: "callback"},
		"WrongMode": {metadata: with("weir_mode", "some"), content: good,
			want: "weir_mode must be all or valid"},
		"BatchWithDueTime": {metadata: map[string]string{"weir_mode": "all",
			"weir_deliver_after": "1s"},
			content: "<feed>" + good + "</feed>", want: "a batch has no due time"},
		"SplitNotAPath": {metadata: with("weir_split", "/a["), content: good, want: "split path"},
		"SplitOfNothing": {metadata: with("weir_split", "/feed/item"), content: "<feed/>",
			want: "no part"},
		"UnknownRoot": {content: "<note/>", want: "no part"},
		"NotAZip":     {name: "a.zip", content: "PK nothing", want: "not a zip"},
		"ZipCutOff": {name: "a.zip", content: ziptest.New(t, "one.xml", good)[:40],
			want: "not a zip"},
		"ZipOfText": {name: "a.zip", content: ziptest.New(t, "one.xml", "hello"),
			want: "no part is valid"},
		"NoBoundary": {contentType: "multipart/mixed", content: good, want: "boundary"},
		"MultipartEmpty": {contentType: "multipart/mixed; boundary=b", content: "--b--\r\n",
			want: "the batch has no part"},
		"FeedCutOff": {content: "<feed>" + good, want: "element <feed> is not closed"},
		"FeedTooLargePart": {content: "<feed>" +
			strings.Replace(good, "<title>", "<title>"+strings.Repeat("t", maxBody), 1) + "</feed>",
			want: "the part is over 2000 bytes"},
		"LongName": {name: strings.Repeat("n", 1020) + ".xml", content: "<article/>",
			want: "contract"},
		"OddName": {name: "a/../b c\\%2F?#&+;=@ü.xml", content: "<article/>", want: "contract"},
	} {
		t.Run(name, func(t *testing.T) {
			simulateInbox(t, func(w *world) {
				p := w.startProcess()
				defer p.stopProcess()
				if c.name == "" {
					c.name = "a.xml"
				}

				w.dropAs(c.name, c.contentType, c.metadata, c.content)
				time.Sleep(time.Hour)
				p.takeFiles()
				if got := len(w.lanes.Messages()); got != 0 {
					t.Errorf("got %d messages, want none", got)
				}

				w.checkNames("inbox", w.inbox)
				w.checkNames("accepted", w.accepted)
				kept := c.name[:min(len(c.name), 900)]
				w.checkNames("rejected", w.rejected, kept, kept+".problems.json")
				if t.Failed() {
					return
				}

				got := w.problemsOf(w.rejected, kept)
				if text := w.contentOf(w.rejected, ".problems.json"); !strings.Contains(text, c.want) ||
					got.Detail == "" || got.RefusedAt.IsZero() {
					t.Errorf("got the problems file %s, want a detail with %q and a time",
						text, c.want)
				}

				if c.content != "" {
					if content := w.contentOf(w.rejected, kept); content != c.content {
						t.Errorf(
							"got the rejected content %q, want the content of the file unchanged",
							content)
					}
				}
			})
		})
	}
}

// TestCollect_RefusesWithoutSplitPaths checks that Weir treats no file as a batch if no contract
// splits documents. Weir rejects these files, because they are not valid messages.
func TestCollect_RefusesWithoutSplitPaths(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ content, want string }{
		"UnknownRoot": {"<note/>", "no contract accepts the root element note"},
		"TooLarge":    {strings.Repeat("x", maxBody+1), "may have 2000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulateWith(t, "", func(w *world) {
				p := w.startProcess()
				defer p.stopProcess()
				w.dropFile("a.xml", c.content)
				p.takeFiles()
				w.checkNames("rejected", w.rejected, "a.xml", "a.xml.problems.json")

				if got := w.contentOf(w.rejected, ".problems.json"); !strings.Contains(got,
					c.want) {
					t.Errorf("got %s, want %q", got, c.want)
				}
			})
		})
	}
}
