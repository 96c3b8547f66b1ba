package azure

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"weir/internal/storage"
	"weir/internal/storage/timelimit"
)

// fileBlockSize is the size of the blocks in which Write uploads a file; the last block can be
// smaller.
const fileBlockSize = 4 << 20

// folderName is the metadata key of blobs that represent folders, in an account with a hierarchical
// namespace.
const folderName = "hdi_isfolder"

// Files implements storage.Files on a container of the account.
type Files struct {
	container *container.Client
}

var _ storage.Files = (*Files)(nil)

// List implements storage.Files. Each page costs one request.
func (f *Files) List(ctx context.Context, prefix, marker string) (page storage.FilePage,
	err error) {
	items, next, err := listPage(ctx, f.container, "file list", prefix, marker)
	page.Next = next
	for _, item := range items {
		if !isFolder(item) {
			page.Files = append(page.Files, describeFile(item))
		}
	}

	return page, err
}

func isFolder(item *container.BlobItem) bool {
	for name, value := range item.Metadata {
		if strings.EqualFold(name, folderName) && strings.EqualFold(deref(value), "true") {
			return true
		}
	}
	return false
}

func describeFile(item *container.BlobItem) storage.File {
	found := storage.File{Name: deref(item.Name), Metadata: map[string]string{}}
	for name, value := range item.Metadata {
		found.Metadata[name] = deref(value)
	}

	if p := item.Properties; p != nil {
		found.ETag = quoteETag(deref(p.ETag))
		found.Size, found.ContentType = deref(p.ContentLength), deref(p.ContentType)
		found.ContentEncoding = deref(p.ContentEncoding)
		found.ModifiedAt = deref(p.LastModified).UTC()
		found.IsGrowing = p.BlobType != nil && *p.BlobType != container.BlobTypeBlockBlob
	}

	return found
}

// quoteETag adds quotes to an ETag: a condition needs quotes, but ETags in listings have none.
func quoteETag(tag azcore.ETag) storage.ETag {
	if tag == "" || strings.HasPrefix(string(tag), `"`) {
		return storage.ETag(tag)
	}
	return storage.ETag(`"` + tag + `"`)
}

// onlyVersion returns the condition that a blob has this version. For an empty version it returns
// nil: no condition.
func onlyVersion(version storage.ETag) *blob.AccessConditions {
	if version == "" {
		return nil
	}
	return &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{
		IfMatch: new(azcore.ETag(version))}}
}

// Read implements storage.Files.
func (f *Files) Read(ctx context.Context, name string, version storage.ETag, offset,
	length int64) (data []byte, err error) {
	o := &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: offset, Count: length},
		AccessConditions: onlyVersion(version)}
	err = doObjectRead(ctx, "file read", func(ctx context.Context) error {
		r, err := f.container.NewBlobClient(name).DownloadStream(ctx, o)
		if err != nil {
			return err
		}

		body := r.NewRetryReader(ctx, nil)
		defer body.Close()
		data, err = io.ReadAll(downloadBody{body, ctx})
		if err == nil && int64(len(data)) != length {
			return &storage.Error{Op: "file read", Kind: storage.Unreadable, Index: -1,
				Err: fmt.Errorf("%d bytes in place of %d", len(data), length)}
		}

		return err
	})
	if err != nil {
		return nil, err
	}

	return data, nil
}

// Write implements storage.Files. It sends a file smaller than fileBlockSize in one request.
func (f *Files) Write(ctx context.Context, name, contentType string, metadata map[string]string,
	body io.Reader) error {
	headers := &blob.HTTPHeaders{BlobContentType: &contentType}
	tags := map[string]*string{}
	for key, value := range metadata {
		tags[key] = &value
	}

	client, block := f.container.NewBlockBlobClient(name), make([]byte, fileBlockSize)
	var ids []string
	for {
		length, err := io.ReadFull(body, block)
		isLast := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !isLast {
			return err
		}

		content := block[:length]
		if isLast && len(ids) == 0 {
			return doIdempotent(ctx, "file write", func(ctx context.Context) error {
				_, err := client.Upload(ctx, uploadBody{bytes.NewReader(content), ctx},
					&blockblob.UploadOptions{HTTPHeaders: headers, Metadata: tags})
				return err
			})
		}

		if length > 0 {
			id := base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil,
				uint32(len(ids))))
			ids = append(ids, id)
			if err := stageBlock(ctx, client, id, content); err != nil {
				return err
			}
		}

		if isLast {
			return doIdempotent(ctx, "file write", func(ctx context.Context) error {
				timelimit.Moved(ctx)
				_, err := client.CommitBlockList(ctx, ids,
					&blockblob.CommitBlockListOptions{HTTPHeaders: headers, Metadata: tags})
				return err
			})
		}
	}
}

func stageBlock(ctx context.Context, client *blockblob.Client, id string, content []byte) error {
	return doIdempotent(ctx, "file write", func(ctx context.Context) error {
		_, err := client.StageBlock(ctx, id, uploadBody{bytes.NewReader(content), ctx}, nil)
		return err
	})
}

// Delete implements storage.Files. It does not repeat its request: after a success, the repeat
// would return NotFound.
func (f *Files) Delete(ctx context.Context, name string, version storage.ETag) error {
	return doOnce(ctx, "file delete", func(ctx context.Context) error {
		_, err := f.container.NewBlobClient(name).Delete(ctx,
			&blob.DeleteOptions{AccessConditions: onlyVersion(version)})
		return err
	})
}
