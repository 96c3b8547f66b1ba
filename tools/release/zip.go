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
	binaryName  = "handler" // name of the program in the app; host.json contains this name
	commandName = "weir"    // name of the same program in the zips that the flag -cli requests
)

// zipFile is a file to pack: its name in the zip, and its path on the disk.
type zipFile struct{ name, path string }

// listFiles returns the files to pack, and the path of the binary among them. path is the folder of
// a staged app, or a single binary.
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

		// local.settings.json has the settings of a developer's machine, which contain keys.
		if entry.Name() == "local.settings.json" {
			return fmt.Errorf("%s stands in the app, and a release must not hold it", at)
		}

		name, err := filepath.Rel(path, at)
		files = append(files, zipFile{name: filepath.ToSlash(name), path: at})

		return err
	})

	return files, filepath.Join(path, binaryName), err
}

// writeZip writes the files in their order. All files get the same time, so that the same build
// makes the same zip.
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

// modeOf returns the mode of a file in the zip. Programs are executable in the zip, because the
// Premium and Dedicated plans of Functions do not make them executable.
func modeOf(name string) fs.FileMode {
	switch strings.TrimSuffix(name, ".exe") {
	case binaryName, commandName:
		return 0o755
	}
	return 0o644
}
