package azure_test

import (
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"weir/internal/storage"
	"weir/internal/storage/azure"
	"weir/internal/testkit/azurite"
)

// Storage answers 412 if another client has a lease on a file, as it does if the file has another
// version. Precondition would mean that the file has a newer version.
func TestFiles_DeleteOfALeasedFileIsAConflict(t *testing.T) {
	t.Parallel()
	prefix := newPrefix()
	files := onAzurite(t, azure.Config{HasFiles: true, Prefix: prefix}).Inbox()
	must(t, files.Write(t.Context(), "a.xml", "text/xml", nil, strings.NewReader("<a/>")))
	page, err := files.List(t.Context(), "", "")
	must(t, err)
	client, err := azblob.NewClientFromConnectionString(azurite.Shared(t), nil)
	must(t, err)
	inbox := client.ServiceClient().NewContainerClient(prefix + "-inbox")
	writer, err := lease.NewBlobClient(inbox.NewBlobClient("a.xml"), nil)
	must(t, err)
	_, err = writer.AcquireLease(t.Context(), -1, nil) // without end
	must(t, err)

	for _, version := range []storage.ETag{page.Files[0].ETag, ""} {
		if err := files.Delete(t.Context(), "a.xml", version); !storage.Is(err, storage.Conflict) {
			t.Errorf("version %q: got %v, want a conflict", version, err)
		}
	}

	_, err = writer.ReleaseLease(t.Context(), nil)
	must(t, err)
	must(t, files.Delete(t.Context(), "a.xml", page.Files[0].ETag))
}
