package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxFile is the size in bytes of the largest request that the Functions host accepts.
const maxFile = 100 << 20

// resolveFiles returns the files that the arguments name. An argument is a file, a pattern, a
// directory (see listXMLFiles), or "-" for standard input. If any argument is wrong, resolveFiles
// returns no file, and an error that names every wrong argument.
func resolveFiles(args []string) ([]string, error) {
	var files, wrong []string
	for _, arg := range args {
		found := []string{arg}
		if _, err := os.Lstat(arg); err != nil && arg != "-" && strings.ContainsAny(arg, "*?[") {
			if found, err = filepath.Glob(arg); err != nil || len(found) == 0 {
				wrong = append(wrong, arg+" matches no file")
			}
		}

		for _, file := range found {
			if file == "-" {
				if slices.Contains(files, file) {
					wrong = append(wrong, "- may stand once")
				}
			} else if info, err := os.Stat(file); err != nil {
				wrong = append(wrong, describeFileError(err))
			} else if info.IsDir() {
				inside, err := listXMLFiles(file)
				if err != nil {
					wrong = append(wrong, err.Error())
				}
				files = append(files, inside...)
				continue
			}

			files = append(files, file)
		}
	}

	if len(wrong) > 0 {
		return nil, &usageError{strings.Join(wrong, "\n")}
	}

	return files, nil
}

// describeFileError returns the text of a file's error without the name of the system call, such as
// "open".
func describeFileError(err error) string {
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return failed.Path + ": " + failed.Err.Error()
	}
	return err.Error()
}

// listXMLFiles returns the files *.xml and *.XML of a directory, in the order of their names.
// Subdirectories are left out. If no file remains, listXMLFiles returns an error.
func listXMLFiles(directory string) ([]string, error) {
	entries, err := os.ReadDir(directory) // sorted by name
	if err != nil {
		return nil, err
	}

	var files []string
	for _, e := range entries {
		if !e.IsDir() && strings.EqualFold(filepath.Ext(e.Name()), ".xml") {
			files = append(files, filepath.Join(directory, e.Name()))
		}
	}

	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no file *.xml", directory)
	}

	return files, nil
}

// readContent reads a file; "-" means standard input. It stops waiting for standard input if ctx
// ends.
func (s *console) readContent(ctx context.Context, file string) ([]byte, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return readLimited(f)
	}

	type result struct {
		body []byte
		err  error
	}

	read := make(chan result, 1)
	go func() {
		body, err := readLimited(s.stdin)
		read <- result{body, err}
	}()

	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-read:
		return r.body, r.err
	}
}

// readLimited reads all bytes of in. More than maxFile bytes are an error.
func readLimited(in io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err == nil && len(body) > maxFile {
		err = fmt.Errorf("is over %d bytes", maxFile)
	}
	return body, err
}
