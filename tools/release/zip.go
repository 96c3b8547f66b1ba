package main

import (
	"archive/zip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	binaryName  = "handler" // the program's name in the app, as host.json has it
	commandName = "weir"    // the same program's name as a command
)

// zipFile is a file of a zip.
type zipFile struct{ name, path string }

// listFiles returns the files of a staged app, or the single file of the commands, and the path of the binary among
// them.
func listFiles(path string) (files []zipFile, binary string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, "", err
	}
	if !info.IsDir() {
		return []zipFile{{name: filepath.Base(path), path: path}}, path, nil
	}
	err = filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		// The settings of a developer's machine contain keys.
		if entry.Name() == "local.settings.json" {
			return fmt.Errorf("%s stands in the app, and a release must not hold it", at)
		}
		name, err := filepath.Rel(path, at)
		files = append(files, zipFile{name: filepath.ToSlash(name), path: at})
		return err
	})
	return files, filepath.Join(path, binaryName), err
}

// writeZip writes the files in their order, all with the same time, so that the same build makes the same zip.
func writeZip(path string, files []zipFile, at time.Time) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := out.Close(); err == nil {
			err = closeErr
		}
	}()
	w := zip.NewWriter(out)
	for _, f := range files {
		if err := addFile(w, f, at); err != nil {
			return fmt.Errorf("add %s: %w", f.name, err)
		}
	}
	return w.Close()
}

func addFile(w *zip.Writer, f zipFile, at time.Time) error {
	in, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer in.Close()
	header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
	header.SetMode(modeOf(f.name))
	entry, err := w.CreateHeader(header)
	if err != nil {
		return err
	}
	_, err = io.Copy(entry, in)
	return err
}

// modeOf returns the mode of a file of the zip. The programs are executable, because Functions does not make them
// executable on the Premium and Dedicated plans.
func modeOf(name string) fs.FileMode {
	switch strings.TrimSuffix(name, ".exe") {
	case binaryName, commandName:
		return 0o755
	}
	return 0o644
}
