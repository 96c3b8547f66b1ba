package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/testkit/ziptest"
)

// postedBatch has the fields of a batch's state that the tests read.
type postedBatch struct {
	ID, State, Reason     string
	Parts, Invalid, Filed int
	Duplicate             bool
	Stages                map[string]int
	Problems              []struct{ Part, Line int }
}

// writeFeed returns a document with n versions of one article for each path. Version 1 of all
// articles comes first, then version 2 of all articles, and so on.
func writeFeed(paths, n int) string {
	var b strings.Builder
	b.WriteString("<feed>\n")

	for version := range n {
		for path := range paths {
			b.WriteString(versionedArticle(fmt.Sprintf("/p/%d", path), version+1) + "\n")
		}
	}

	b.WriteString("</feed>")

	return b.String()
}

// postBatch repeats a post until Weir accepts the batch, and returns the batch's address. Posts
// with the same query have the same Idempotency-Key.
func (s *system) postBatch(query, contentType, document string) string {
	s.t.Helper()
	address := ""
	s.awaitCondition("the batch is accepted", time.Minute, func() bool {
		req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost,
			s.weir+"/api/batches"+query, strings.NewReader(document))
		if err != nil {
			s.t.Fatal(err)
		}

		req.Header.Set("Content-Type", contentType)
		req.Header.Set("Idempotency-Key", "batch"+query)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		address = resp.Header.Get("Location")

		return resp.StatusCode == http.StatusAccepted
	})

	return address
}

// awaitBatch reads a batch's state until holds(state) is true, and returns that state. It ignores
// failed requests, because some tests kill handlers.
func (s *system) awaitBatch(address, condition string, limit time.Duration,
	holds func(postedBatch) bool) (b postedBatch) {
	s.t.Helper()
	s.awaitCondition(condition, limit, func() bool {
		resp, err := http.Get(address)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		b = postedBatch{}

		return resp.StatusCode == http.StatusOK &&
			json.NewDecoder(resp.Body).Decode(&b) == nil && holds(b)
	})

	return b
}

// The test kills handlers while Weir appends the 4,000 parts of a batch to the lanes. Weir still
// delivers each part, in order per key. After a kill, the next holder of a lane is allowed to
// repeat a write.
func TestBatch_HandlersKilled(t *testing.T) {
	s := newSystem(t, 2, "lanes: 1 ", "lanes: 4 ", "lease: 30s", "lease: 15s",
		"    root: article\n", "    root: article\n    split: /feed/article\n")
	const paths, versions = 100, 40
	address := s.postBatch("", "application/xml", writeFeed(paths, versions))
	for kill := range 2 {
		s.awaitBatch(address, "parts are filed", 2*time.Minute,
			func(b postedBatch) bool { return b.Filed >= 500+1200*kill || b.State == "filed" })
		s.killNext(kill)
		s.killNext(kill + 1)
	}

	began := time.Now()
	b := s.awaitBatch(address, "all are filed", 5*time.Minute,
		func(b postedBatch) bool { return b.State != "filing" })
	t.Logf("filed %s after the last kill", time.Since(began).Round(time.Second))

	if b.State != "filed" || b.Parts != paths*versions || b.Filed != paths*versions ||
		b.Invalid != 0 {
		t.Fatalf("got %+v, want %d parts filed", b, paths*versions)
	}

	s.awaitBatch(address, "all are delivered", 5*time.Minute,
		func(b postedBatch) bool { return b.Stages["delivered"] == paths*versions })
	st := s.readStats()
	if st.Duplicates != 0 || st.Overlaps != 0 || st.Inversions != 0 ||
		st.Writes-st.Repeats != paths*versions {
		t.Errorf("the CMS's record: got %+v, want each part written once, in order per key", st)
	}

	again := s.postBatch("", "application/xml", writeFeed(paths, versions))
	if again != address {
		t.Errorf("posted again: got %s, want the same batch %s", again, address)
	}

	if left := s.findInStorage("/p/99"); len(left) > 0 &&
		strings.Contains(strings.Join(left, " "), "/document/") {
		t.Errorf("left in storage: %v, want no document", left)
	}
}

// In the mode "all", Weir accepts no part of a batch if one part is invalid. In the mode "valid",
// Weir accepts and delivers the valid parts.
func TestBatch_AllOrNothing(t *testing.T) {
	s := newSystem(t, 1)
	document := strings.Replace(writeFeed(3, 20), "<title>Version 7</title>", "<title/>", 1)
	isFinal := func(b postedBatch) bool { return b.State == "filed" || b.State == "rejected" }
	all := s.awaitBatch(s.postBatch("?split=/feed/article", "text/xml", document), "it is final",
		time.Minute, isFinal)
	if all.State != "rejected" || all.Filed != 0 || all.Parts != 60 || len(all.Problems) != 1 ||
		all.Problems[0].Part != 19 ||
		all.Problems[0].Line != 20 {
		t.Errorf("mode all: got %+v, want no part filed, and a problem of part 19 in line 20", all)
	}

	address := s.postBatch("?mode=valid&split=/feed/article", "text/xml", document)
	valid := s.awaitBatch(address, "all are delivered", time.Minute,
		func(b postedBatch) bool { return isFinal(b) && b.Stages["delivered"] == b.Filed })
	if valid.State != "filed" || valid.Filed != 59 || valid.Invalid != 1 {
		t.Errorf("mode valid: got %+v, want 59 parts filed", valid)
	}

	if st := s.checkRecord(); st.Writes != 59 {
		t.Errorf("got %d writes, want 59", st.Writes)
	}
}

// Weir splits the files of a zip into parts, and delivers these parts in order per key. Each file
// of a multipart body is one part. Weir delivers each valid part.
func TestBatch_ZipAndMultipart(t *testing.T) {
	s := newSystem(t, 1)
	zipped := s.postBatch("?split=/feed/article", "application/zip",
		ziptest.New(t, "1.xml", writeFeed(3, 20), "empty/2.xml", "<feed/>"))
	b := s.awaitBatch(zipped, "the files of the zip are delivered", time.Minute,
		func(b postedBatch) bool { return b.State == "filed" && b.Stages["delivered"] == 60 })
	if b.Parts != 60 || b.Invalid != 0 {
		t.Errorf("zip: got %+v, want 60 parts", b)
	}

	var form strings.Builder
	for n := range 3 {
		form.WriteString("--x\r\nContent-Type: application/xml\r\n\r\n" +
			versionedArticle(fmt.Sprintf("/form/%d", n), 1) + "\r\n")
	}

	form.WriteString("--x\r\nContent-Type: text/plain\r\n\r\nno XML\r\n--x--\r\n")
	posted := s.postBatch("?mode=valid", "multipart/mixed; boundary=x", form.String())
	b = s.awaitBatch(posted, "the files of the multipart are delivered", time.Minute,
		func(b postedBatch) bool { return b.State == "filed" && b.Stages["delivered"] == 3 })
	if b.Parts != 4 || b.Invalid != 1 || len(b.Problems) != 1 || b.Problems[0].Part != 4 {
		t.Errorf("multipart: got %+v, want three parts filed and a problem of part 4", b)
	}

	if st := s.checkRecord(); st.Writes != 63 {
		t.Errorf("got %d writes, want 63", st.Writes)
	}
}

// The test stops storage while Weir appends parts to the lane. After storage is back, Weir delivers
// each part, in order per key. Weir is allowed to repeat a write whose commit failed.
func TestBatch_StorageAway(t *testing.T) {
	s := newSystemOnOwnStorage(t, 1)
	const paths, versions = 20, 100
	address := s.postBatch("?split=/feed/article", "application/xml", writeFeed(paths, versions))
	s.awaitBatch(address, "parts are filed", time.Minute,
		func(b postedBatch) bool { return b.Filed >= 200 })
	if err := s.storage.Stop(); err != nil {
		t.Fatal(err)
	}

	s.awaitCondition("the handler has logged that storage is away", time.Minute,
		func() bool { return strings.Contains(s.output.String(), `"job: run failed`) })
	s.storage.restart(t)
	b := s.awaitBatch(address, "all are delivered", 5*time.Minute,
		func(b postedBatch) bool {
			return b.State == "filed" &&
				b.Stages["delivered"] == paths*versions
		})
	if b.Parts != paths*versions || b.Invalid != 0 {
		t.Errorf("got %+v, want %d parts filed", b, paths*versions)
	}

	if st := s.checkRecord(); st.Writes-st.Repeats != paths*versions {
		t.Errorf("the CMS's record: got %+v, want each of %d parts once", st, paths*versions)
	}
}

// The test cancels a batch while Weir appends the parts to the lane. After that, Weir delivers
// exactly the appended parts.
func TestBatch_Cancelled(t *testing.T) {
	s := newSystem(t, 1)
	const all = 4000
	address := s.postBatch("?split=/feed/article", "application/xml", writeFeed(100, all/100))
	s.awaitBatch(address, "parts are filed", time.Minute,
		func(b postedBatch) bool { return b.Filed > 0 })
	s.requestStatus(http.StatusAccepted, "DELETE", strings.TrimPrefix(address, s.weir), "")
	b := s.awaitBatch(address, "it is cancelled, and its messages are delivered", 2*time.Minute,
		func(b postedBatch) bool {
			return b.State == "cancelled" &&
				b.Stages["delivered"] == b.Filed
		})
	if b.Filed == 0 || b.Filed == all || b.Parts != all {
		t.Errorf("got %+v, want some of %d parts filed", b, all)
	}

	s.requestStatus(http.StatusOK, "DELETE", strings.TrimPrefix(address, s.weir), "")
	if st := s.checkRecord(); st.Writes != b.Filed {
		t.Errorf("got %d writes, want %d", st.Writes, b.Filed)
	}
}
