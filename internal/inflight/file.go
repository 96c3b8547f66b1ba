package inflight

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	// filePattern matches the names of the files of all hosts.
	filePattern = "weir-requests-*"
	// staleAfter is the age after which a file belongs to a host that has ended. A running handler
	// writes at least one mark a day, because monitors read its health.
	staleAfter = 24 * time.Hour
)

// OpenFile opens the file of marks of the host with the process id "host", whose handler listens on
// the port. The caller must already listen there. OpenFile removes files of hosts that have ended
// long ago.
func OpenFile(dir string, host int, port string, now time.Time) (*os.File, error) {
	removeStaleFiles(dir, now)

	path := filepath.Join(dir, fmt.Sprintf("weir-requests-%d-%s", host, port))
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return openExisting(path)
	}

	return file, err
}

// folderFile is the name of the file in the folder of weir serve.
const folderFile = "weir.requests"

// OpenFolderFile opens the file of marks in the folder of weir serve. The caller must have the
// folder's lock, so that no other process writes the file.
func OpenFolderFile(dir string) (*os.File, error) {
	path := filepath.Join(dir, folderFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return openExisting(path)
	}

	return file, err
}

// openExisting opens the file of an earlier process. The folder for temporary files belongs to all
// users of the machine, so openExisting refuses a link: it could lead to another file of this user.
func openExisting(path string) (*os.File, error) {
	named, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}

	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}

	opened, err := file.Stat()
	if err == nil && (!named.Mode().IsRegular() || !os.SameFile(named, opened)) {
		err = fmt.Errorf("%s is not a regular file", path)
	}

	if err != nil {
		return nil, errors.Join(err, file.Close())
	}

	return file, nil
}

// removeStaleFiles removes files that no process has written for the time staleAfter. Files that
// cannot be removed stay: they do no harm.
func removeStaleFiles(dir string, now time.Time) {
	paths, _ := filepath.Glob(filepath.Join(dir, filePattern)) // only a wrong pattern is an error
	for _, path := range paths {
		if info, err := os.Lstat(path); err == nil && now.Sub(info.ModTime()) > staleAfter {
			_ = os.Remove(path)
		}
	}
}

// rowLength is the length of a row of the file in bytes, with the line feed.
const rowLength = 64

// maxRows bounds the file. Further requests run without a mark.
const maxRows = 1024

// row is the mark of a request in the file.
type row struct {
	key       string // hash of method and target, in hex
	deaths    int
	diedAt    time.Time // time at which a process noticed the last death, to the second
	isRunning bool
}

// format returns the row as a line of rowLength bytes. A row without a key is blank.
func (r row) format() []byte {
	text := ""
	if r.key != "" {
		running := 0
		if r.isRunning {
			running = 1
		}
		text = fmt.Sprintf("%s %d %d %d", r.key, r.deaths, running, max(0, r.diedAt.Unix()))
	}

	return fmt.Appendf(nil, "%-*s\n", rowLength-1, text)
}

// parseRow returns the row of a line. A line that is not a row is blank: the mark is lost, and the
// request runs.
func parseRow(line string) row {
	fields := strings.Fields(line)
	if len(fields) != 4 || len(fields[0]) != keyLength {
		return row{}
	}

	deaths, errDeaths := strconv.Atoi(fields[1])
	diedAt, errDied := strconv.ParseInt(fields[3], 10, 64)
	if errDeaths != nil || errDied != nil || deaths < 0 {
		return row{}
	}

	return row{key: fields[0], deaths: deaths, isRunning: fields[2] == "1",
		diedAt: time.Unix(diedAt, 0)}
}

// readRows returns the rows of a file, in order.
func readRows(file io.ReaderAt) ([]row, error) {
	data, err := io.ReadAll(io.NewSectionReader(file, 0, maxRows*rowLength))
	if err != nil {
		return nil, err
	}

	var rows []row
	for ; len(data) >= rowLength; data = data[rowLength:] {
		rows = append(rows, parseRow(string(data[:rowLength])))
	}

	return rows, nil
}
