package cli

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newBatchServer returns a server with one batch, which is final from its second read on. The
// parameter "end" has the JSON fields of the final batch. For each post that the server receives,
// posts gets a text with the Content-Type, the query and the body.
func newBatchServer(t *testing.T, end string) (f *fakeServer, posts *[]string) {
	f, posts = newFakeServer(t), &[]string{}
	reads := 0
	const begin = `"id":"b1","mode":"valid","format":"xml","bytes":1,"acceptedAt":"2026-01-08T12:00:00Z",` +
		`"updatedAt":"2026-01-08T12:00:00Z",`
	f.mux.HandleFunc("POST /api/batches", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*posts = append(*posts,
			fmt.Sprintf("%s %s %s", r.Header.Get("Content-Type"), r.URL.Query().Encode(), body))
		if !strings.HasPrefix(r.Header.Get("Idempotency-Key"), "sha256-") {
			t.Errorf("got Idempotency-Key %q, want a hash", r.Header.Get("Idempotency-Key"))
		}

		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", f.server.URL+"/api/batches/b1")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, "{", begin, `"state":"checking","parts":0,"invalid":0,"filed":0}`)
	})

	f.mux.HandleFunc("GET /api/batches/{id}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if reads++; reads == 1 {
			fmt.Fprint(w, "{", begin, `"state":"filing","parts":3,"invalid":1,"filed":1}`)
			return
		}
		fmt.Fprint(w, "{", begin, end, "}")
	})

	return f, posts
}

func TestSendBatch(t *testing.T) {
	t.Parallel()
	f, posts := newBatchServer(t,
		`"state":"filed","parts":3,"invalid":1,"filed":2,"stages":{"delivered":2},`+
			`"problems":[{"part":2,"line":7,"message":"one problem","problems":[{"path":"./title","message":"is missing"}]}]`)
	file := filepath.Join(t.TempDir(), "feed.xml")
	if err := os.WriteFile(file, []byte("<feed/>"), 0o600); err != nil {
		t.Fatal(err)
	}

	f.runCommand("send", "--split", "/feed/a", "--mode", "valid", "--wait", file).expectEnd(t,
		exitOK,
		file+": batch b1 is filed; 2 of 3 parts filed, 1 invalid; 2 delivered\n",
		"part 2, line 7: ")

	if want := "application/xml mode=valid&split=%2Ffeed%2Fa <feed/>"; (*posts)[0] != want {
		t.Errorf("got %q, want %q", *posts, want)
	}
}

func TestSendBatch_Rejected(t *testing.T) {
	t.Parallel()
	f, posts := newBatchServer(t,
		`"state":"rejected","parts":3,"invalid":1,"filed":0,"reason":"1 of 3 parts are invalid"`)
	file := filepath.Join(t.TempDir(), "feed.ZIP")
	if err := os.WriteFile(file, []byte("PK"), 0o600); err != nil {
		t.Fatal(err)
	}

	f.runCommand("send", "--batch", file).expectEnd(t, exitRefused,
		"batch b1 is rejected; 0 of 3 parts filed, 1 invalid\n",
		"the batch is rejected: 1 of 3 parts are invalid")
	if want := "application/zip mode=all PK"; (*posts)[0] != want {
		t.Errorf("got %q, want %q", *posts, want)
	}
}

// If a message of the batch was discarded, the command must fail.
func TestSendBatch_Discarded(t *testing.T) {
	t.Parallel()
	f, _ := newBatchServer(t, `"state":"filed","parts":3,"invalid":0,"filed":3,"stages":{"delivered":1,"superseded":1,`+
		`"discarded":1}`)
	file := filepath.Join(t.TempDir(), "feed.xml")
	if err := os.WriteFile(file, []byte("<feed/>"), 0o600); err != nil {
		t.Fatal(err)
	}

	f.runCommand("send", "--batch", "--wait", file).expectEnd(t, exitFailed, "1 discarded",
		"not all parts were delivered")
}

func TestSendBatch_Usage(t *testing.T) {
	t.Parallel()
	f, _ := newBatchServer(t, "")
	f.runCommand("send", "--batch", "--mode", "some", "/dev/null").expectEnd(t, exitUsage, "",
		"--mode must be all or valid")
}
