package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"weir/internal/storage/embedded"
	"weir/internal/storage/folder"
)

// BackUpFolder writes a copy of the store in a folder to a new file, through the process that has
// the folder open, if there is one. It returns the size of the file. The file gets its name when it
// is whole.
func BackUpFolder(ctx context.Context, dir, file string) (size int64, err error) {
	if err := checkBackupFile(file); err != nil {
		return 0, err
	}

	if !embedded.Exists(dir) {
		return 0, fmt.Errorf("%s: %w", dir, embedded.ErrNoStore)
	}

	store, err := folder.Open(ctx, dir, embedded.Options{Program: "weir backup"})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	out, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*.tmp")
	if err != nil {
		return 0, describeBackupFile(file, err)
	}

	if size, err = writeBackup(ctx, store, out); err == nil {
		err = os.Rename(out.Name(), file)
	}

	if err != nil {
		return 0, errors.Join(describeBackupFile(file, err), os.Remove(out.Name()))
	}

	return size, nil
}

// checkBackupFile refuses a name of a file that exists, or whose folder does not.
func checkBackupFile(file string) error {
	folder := filepath.Dir(file)
	switch info, err := os.Stat(folder); {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("the folder %s does not exist: make it, or name another file", folder)
	case err == nil && !info.IsDir():
		return fmt.Errorf("%s is a file, and no folder: name another file", folder)
	}

	switch _, err := os.Stat(file); {
	case err == nil:
		return fmt.Errorf("%s exists: a back-up replaces no file", file)
	case !errors.Is(err, os.ErrNotExist):
		return describeBackupFile(file, err)
	}

	return nil
}

// describeBackupFile returns an error with the name of the back-up in place of the unfinished
// file's.
func describeBackupFile(file string, err error) error {
	if ofFile := (*fs.PathError)(nil); errors.As(err, &ofFile) {
		err = ofFile.Err
	}

	return fmt.Errorf("write %s: %w", file, err)
}

func writeBackup(ctx context.Context, store folder.Account, out *os.File) (size int64, err error) {
	err = store.Backup(ctx, out)
	if err == nil {
		err = out.Sync()
	}

	info, failed := out.Stat()
	if err = errors.Join(err, failed, out.Close()); err != nil {
		return 0, err
	}

	return info.Size(), nil
}

// RestoreFolder makes a folder with the store of a back-up, after it has checked the file.
func RestoreFolder(dir, file string) error { return embedded.Restore(dir, file) }

// CheckFolder reads everything in the store of the folder, and compares the checksums. It returns
// the damaged rows, blobs and messages; none for a storage account.
func (a *App) CheckFolder(ctx context.Context) ([]string, error) {
	f, isFolder := a.account.(folderAccount)
	if !isFolder {
		return nil, nil
	}

	r, err := f.Check(ctx)

	return r.Problems, err
}
