package embedded

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Owner is the process that has a folder.
type Owner struct {
	Program   string    `json:"program"`
	Process   int       `json:"process"`
	Host      string    `json:"host"` // name of the machine or container
	StartedAt time.Time `json:"startedAt"`
}

// InUseError means that another process has the folder.
type InUseError struct{ Owner Owner }

func (e *InUseError) Error() string {
	if e.Owner.Process == 0 {
		return "another process has this folder open: stop that process, or take another folder"
	}

	return fmt.Sprintf("%s has this folder open: process %d on %s, since %s; stop that process, or take "+
		"another folder", e.Owner.Program, e.Owner.Process, e.Owner.Host,
		e.Owner.StartedAt.Format(time.RFC3339))
}

// errLocked is the error of tryLock if another process has the lock.
var errLocked = errors.New("locked")

// folderLock is the lock of a folder. The system releases it when the process ends. The text of the
// file is only for the line that a second opener gets.
type folderLock struct{ file *os.File }

func lockFolder(dir, program string, now time.Time) (*folderLock, error) {
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}

	err = tryLock(file)
	if errors.Is(err, errLocked) {
		err = &InUseError{readOwner(file)}
	}

	if err == nil {
		err = writeOwner(file, program, now)
	}

	if err != nil {
		return nil, errors.Join(err, file.Close())
	}

	return &folderLock{file}, nil
}

// readOwner returns the owner in the lock file. The owner is empty if its process is writing it.
func readOwner(file *os.File) (o Owner) {
	text, err := io.ReadAll(io.NewSectionReader(file, 0, 1<<12))
	if err != nil || json.Unmarshal(text, &o) != nil {
		return Owner{}
	}

	return o
}

func writeOwner(file *os.File, program string, now time.Time) error {
	if program == "" {
		program = "weir"
	}

	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}

	text, err := json.Marshal(Owner{Program: program, Process: os.Getpid(), Host: host,
		StartedAt: now.UTC()})
	if err != nil {
		return err
	}

	if err := file.Truncate(0); err != nil {
		return err
	}

	_, err = file.WriteAt(text, 0)

	return err
}

// release releases the lock. The file stays, because a process could lock a removed file.
func (l *folderLock) release() error { return l.file.Close() }
