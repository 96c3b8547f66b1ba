package e2e_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
)

// The test copies a storage account while Weir accepts and delivers messages. The rows of this copy
// do not fit together, and `weir verify` reports that. A second copy, made while no host runs, is
// consistent, and Weir can run on it.
func TestRestore_CopyOfAnAccount(t *testing.T) {
	s := newFleetSystem(t, 1)
	posted := make(chan []postedMessage, 1)
	go func() { posted <- s.postBurst(t.Context(), 20, 60) }()
	s.awaitCondition("the burst is under way", startLimit,
		func() bool { return s.readStats().Writes >= 150 })
	torn := newBareSystemBeside(t, 20*time.Millisecond)
	copyAccount(t, s.storage, torn.storage)
	if out, code := torn.runVerify(s.app); code != 1 || !strings.Contains(out, "NOT whole") {
		t.Errorf("verify of a copy that was made meanwhile ended with %d, want 1:\n%s", code, out)
	}

	messages := <-posted
	s.setFaults(`{"rejectText":"bad"}`)
	s.postRejectedOnce()
	s.awaitCondition("the bad message is dead", startLimit,
		func() bool { return s.sumBooks().Dead == 1 })
	s.setFaults(`{"slow":"200ms"}`)
	more := s.postBurstFrom(t.Context(), 20, 3, 61)
	h := s.livingHosts()[0]
	if err := h.Stop(); err != nil {
		t.Fatal(err)
	}

	<-h.Done()
	whole := newBareSystemBeside(t, 20*time.Millisecond)
	copyAccount(t, s.storage, whole.storage)

	if out, code := whole.runVerify(s.app); code != 0 {
		t.Errorf("verify of a copy that was made with the app stopped ended with %d, want 0:\n%s",
			code, out)
	}

	checkVerifyOfEmptyTable(t, s.system, newBareSystemBeside(t, 20*time.Millisecond))
	whole.startHost(s.app)
	whole.awaitStages(slices.Concat(messages, more), "delivered", 3*time.Minute)

	if b := whole.sumBooks(); b.Dead != 1 || b.Waiting != 0 ||
		b.Accepted != len(messages)+len(more)+1 {
		t.Errorf("the books of the copy: %+v; want %d accepted, 1 dead, none waiting", b,
			len(messages)+len(more)+1)
	}

	if m, err := whole.postMessageOnce("/p/0", 1000, keyOf("/p/0", 1000)); err != nil ||
		m.Duplicate {
		t.Errorf("the copy answered a new message with %+v, %v, want Duplicate false and no error",
			m, err)
	}

	if m, err := whole.sendPost("/p/0", 1, keyOf("/p/0", 1)); err != nil || !m.Duplicate {
		t.Errorf("the copy answered an old message with %+v, %v; want a duplicate", m, err)
	}
}

// checkVerifyOfEmptyTable creates the tables of "s" in the storage of "empty", without rows. It
// checks that `weir verify` fails on the storage of "empty" and writes nothing.
func checkVerifyOfEmptyTable(t *testing.T, s, empty *system) {
	t.Helper()
	tables, err := aztables.NewServiceClientFromConnectionString(s.storage.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}

	copies, err := aztables.NewServiceClientFromConnectionString(empty.storage.ConnectionString(),
		nil)
	if err != nil {
		t.Fatal(err)
	}

	page, err := tables.NewListTablesPager(nil).NextPage(t.Context())
	if err != nil || len(page.Tables) == 0 {
		t.Fatalf("got %d tables, %v; want one at least and no error", len(page.Tables), err)
	}

	for _, table := range page.Tables {
		if _, err := copies.CreateTable(t.Context(), *table.Name, nil); err != nil {
			t.Fatal(err)
		}
	}

	if out, code := empty.runVerify(s.app); code != 1 ||
		!strings.Contains(out, "no record of lanes") {
		t.Errorf("verify of a copy without rows ended with %d, want 1 and the reason:\n%s", code,
			out)
	}

	for _, table := range page.Tables {
		rows, err := copies.NewClient(*table.Name).NewListEntitiesPager(nil).NextPage(t.Context())
		if err != nil || len(rows.Entities) != 0 {
			t.Errorf("after verify: got %d rows in %s, %v; want none", len(rows.Entities),
				*table.Name, err)
		}
	}
}

func (s *system) runVerify(app string) (out string, code int) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), filepath.Join(app, "handler"), "verify")
	cmd.Dir, cmd.Env = app, append(os.Environ(), s.handlerEnv()...)
	text, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		s.t.Fatal(err)
	}

	return string(text), cmd.ProcessState.ExitCode()
}

func (s *system) startHost(app string) {
	s.t.Helper()
	s.app = app
	s.startStagedHost(nil, nil)
}

// postRejectedOnce posts a message with the text "bad". The test must have set the fault that lets
// the CMS reject this text.
func (s *system) postRejectedOnce() {
	s.t.Helper()
	body := `<article path="/bad" version="1"><title>bad</title></article>`
	res, err := http.Post(s.weir+"/api/messages", "application/xml", strings.NewReader(body))
	if err != nil || res.StatusCode != http.StatusAccepted {
		s.t.Fatalf("post a bad message: %v %v, want status 202 and no error", res, err)
	}

	_ = res.Body.Close()
}

// books has counters, summed over all lanes.
type books struct{ Accepted, Delivered, Dead, Waiting int }

func (s *system) sumBooks() books {
	s.t.Helper()
	return getJSON[struct{ Totals books }](s, s.weir+"/api/lanes").Totals
}

// copyAccount copies all tables and then all blobs. If Weir runs meanwhile, the copied rows are
// from different times.
func copyAccount(t *testing.T, from, to *storageAccount) {
	t.Helper()
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	tables, err := aztables.NewServiceClientFromConnectionString(from.ConnectionString(), nil)
	check(err)
	copies, err := aztables.NewServiceClientFromConnectionString(to.ConnectionString(), nil)
	check(err)

	for pages := tables.NewListTablesPager(nil); pages.More(); {
		page, err := pages.NextPage(ctx)
		check(err)

		for _, table := range page.Tables {
			_, err := copies.CreateTable(ctx, *table.Name, nil)
			check(err)
			copyRows(t, tables.NewClient(*table.Name), copies.NewClient(*table.Name))
		}
	}

	blobs, err := azblob.NewClientFromConnectionString(from.ConnectionString(), nil)
	check(err)
	blobCopies, err := azblob.NewClientFromConnectionString(to.ConnectionString(), nil)
	check(err)

	for pages := blobs.NewListContainersPager(nil); pages.More(); {
		page, err := pages.NextPage(ctx)
		check(err)

		for _, c := range page.ContainerItems {
			_, err := blobCopies.CreateContainer(ctx, *c.Name, nil)
			check(err)
			copyBlobs(t, *c.Name, blobs, blobCopies)
		}
	}
}

func copyRows(t *testing.T, from, to *aztables.Client) {
	t.Helper()

	// rows in a page; small pages make the copy slow, so that Weir changes rows meanwhile
	top := int32(100)
	for pages := from.NewListEntitiesPager(&aztables.ListEntitiesOptions{Top: &top}); pages.More(); {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		for _, row := range page.Entities {
			if _, err := to.AddEntity(t.Context(), withoutSystemColumns(t, row), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// withoutSystemColumns returns a row without the columns that storage itself sets.
func withoutSystemColumns(t *testing.T, row []byte) []byte {
	t.Helper()
	columns := map[string]json.RawMessage{}
	if err := json.Unmarshal(row, &columns); err != nil {
		t.Fatal(err)
	}

	for name := range columns {
		if strings.HasPrefix(name, "odata.") || strings.HasPrefix(name, "Timestamp") {
			delete(columns, name)
		}
	}

	row, err := json.Marshal(columns)
	if err != nil {
		t.Fatal(err)
	}

	return row
}

func copyBlobs(t *testing.T, name string, from, to *azblob.Client) {
	t.Helper()
	for pages := from.NewListBlobsFlatPager(name,
		&azblob.ListBlobsFlatOptions{
			Include: azblob.ListBlobsInclude{Metadata: true}}); pages.More(); {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		for _, b := range page.Segment.BlobItems {
			got, err := from.DownloadStream(t.Context(), name, *b.Name, nil)
			var gone *azcore.ResponseError
			if errors.As(err, &gone) && gone.StatusCode == 404 {
				continue
			}

			if err != nil {
				t.Fatal(err)
			}

			data, err := io.ReadAll(got.Body)
			if err != nil {
				t.Fatal(err)
			}

			if _, err := to.UploadBuffer(t.Context(), name, *b.Name, data,
				&azblob.UploadBufferOptions{Metadata: b.Metadata}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
