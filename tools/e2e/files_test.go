package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/storage"
	"weir/internal/storage/azure"
)

// withFiles has pairs of old and new text for weir.yaml. The new texts switch the inbox on, and
// split feeds into articles.
var withFiles = []string{"log: { level: info }", "log: { level: info }\nintake: { files: {} }",
	"    root: article\n", "    root: article\n    split: /feed/article\n"}

// openAccount opens the system's storage, and makes missing tables, queues and containers.
func (s *system) openAccount() *azure.Account {
	s.t.Helper()
	account, err := azure.Open(azure.Config{ConnectionString: s.storage.ConnectionString(),
		Prefix: "weir", HasFiles: true})
	if err == nil {
		err = account.Ensure(s.t.Context())
	}

	if err != nil {
		s.t.Fatal(err)
	}

	s.t.Cleanup(account.Close)

	return account
}

// dropFile uploads a file to the inbox.
func (s *system) dropFile(a *azure.Account, name, content string, metadata map[string]string) {
	s.t.Helper()
	err := a.Inbox().Write(s.t.Context(), name, "application/octet-stream", metadata,
		strings.NewReader(content))
	if err != nil {
		s.t.Fatal(err)
	}
}

// sendEvent enqueues an event like those that Event Grid sends for new files.
func (s *system) sendEvent(a *azure.Account) {
	s.t.Helper()
	const event = `{"topic":"/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a",` +
		`"subject":"/blobServices/default/containers/weir-inbox/blobs/a.xml",` +
		`"eventType":"Microsoft.Storage.BlobCreated","id":"1","dataVersion":"","metadataVersion":"1",` +
		`"data":{"api":"PutBlob","contentLength":10,"blobType":"BlockBlob"}}`
	if err := a.InboxEvents().Put(s.t.Context(), event, 0); err != nil {
		s.t.Fatal(err)
	}
}

// listFiles returns the names of the files in a container. Weir puts each file of the archive into
// a folder. If isArchive is true, listFiles removes this folder from each name.
func (s *system) listFiles(files storage.Files, isArchive bool) (names []string) {
	s.t.Helper()
	for marker, more := "", true; more; more = marker != "" {
		page, err := files.List(s.t.Context(), "", marker)
		if err != nil {
			s.t.Fatal(err)
		}

		for _, f := range page.Files {
			name := f.Name
			if isArchive {
				_, name, _ = strings.Cut(name, "/")
			}
			names = append(names, name)
		}

		marker = page.Next
	}

	return names
}

// The test kills handlers while Weir takes files from the inbox. Weir still delivers each message,
// in order per key. After a kill, the next holder of a lane is allowed to repeat a write.
func TestFiles_HandlersKilled(t *testing.T) {
	s := newSystem(t, 2, append([]string{"lanes: 1 ", "lanes: 4 ", "lease: 30s", "lease: 15s"}, withFiles...)...)
	a := s.openAccount()
	const paths, versions = 10, 40
	for version := range versions {
		for path := range paths {
			s.dropFile(a, fmt.Sprintf("%04d/p%d.xml", version, path),
				versionedArticle(fmt.Sprintf("/p/%d", path), version+1), nil)
		}
	}

	s.dropFile(a, "feed.xml", strings.ReplaceAll(writeFeed(5, 20), "/p/", "/feed/"), nil)

	for kill := range 3 {
		s.sendEvent(a)
		s.awaitCondition("files are taken", 2*time.Minute, func() bool {
			return len(s.listFiles(a.Accepted(), true)) >= 100*(kill+1)
		})
		s.killNext(kill)
		s.killNext(kill + 1)
	}

	s.awaitCondition("all files are taken", 5*time.Minute, func() bool {
		s.sendEvent(a)
		return len(s.listFiles(a.Inbox(), false)) == 0
	})

	const writes = paths*versions + 5*20
	s.awaitCondition("all are delivered", 5*time.Minute, func() bool {
		st := s.readStats()
		return st.Writes-st.Repeats == writes
	})

	if st := s.readStats(); st.Duplicates != 0 || st.Overlaps != 0 || st.Inversions != 0 {
		t.Errorf("the CMS's record: got %+v, want each message written once, in order per key", st)
	}

	if got := len(s.listFiles(a.Accepted(), true)); got != paths*versions+1 {
		t.Errorf("got %d accepted files, want %d", got, paths*versions+1)
	}
}

// The sweep takes files for which no event came. Weir moves a file with a problem to the rejected
// files, and adds a problems file. A file with the name of an earlier file, but with other content,
// becomes another message.
func TestFiles_BySweepAndByEvent(t *testing.T) {
	s := newSystem(t, 1, withFiles...)
	a := s.openAccount()
	const name = "from the editors/it's ä 100% #1.xml"
	s.dropFile(a, name, versionedArticle("/a", 1), nil)
	s.dropFile(a, "bad.xml", "<article path='/b'/>", nil)
	s.dropFile(a, "feed.xml", strings.Replace(writeFeed(2, 2), "<title>Version 2</title>",
		"<title/>", 1), nil)
	s.dropFile(a, "later.xml", versionedArticle("/later", 1),
		map[string]string{"weir_deliver_after": "1h"})
	s.runSweep()
	s.awaitCondition("the sweep takes the files", time.Minute, func() bool {
		return len(s.listFiles(a.Inbox(), false)) == 0 && len(s.listFiles(a.Rejected(), true)) == 4
	})
	s.dropFile(a, name, versionedArticle("/a", 2), nil)
	s.sendEvent(a)
	s.awaitCondition("both versions are delivered, and the inbox is empty", time.Minute,
		func() bool {
			return s.readStats().Writes == 2 && len(s.listFiles(a.Inbox(), false)) == 0
		})

	s.checkRecord()
	got := strings.Join(s.listFiles(a.Rejected(), true), " ")
	if !strings.Contains(got, "bad.xml bad.xml.problems.json") ||
		!strings.Contains(got, "feed.xml feed.xml.problems.json") {
		t.Errorf("got the rejected files %s, want bad.xml and feed.xml with their problems", got)
	}

	accepted := s.listFiles(a.Accepted(), true)
	if got := strings.Join(accepted, " "); len(accepted) != 3 || strings.Count(got, name) != 2 {
		t.Errorf("got the accepted files %q, want both versions of %s, and later.xml",
			accepted, name)
	}
}
