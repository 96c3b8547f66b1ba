package realcms

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

const (
	// time limit of a start and of runToEnd; long, because a busy machine is slow
	readyTimeout = 5 * time.Minute
	stopTimeout  = 5 * time.Minute
	lookInterval = 50 * time.Millisecond
)

// process is a child process with its own process group. The kernel sends SIGTERM to the child when
// its parent process dies.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when the child has ended
	err  error         // result of Wait; read it after done is closed
}

// startProcess starts a child from a goroutine that stays on one thread until the child has ended.
// If that thread ended earlier, Linux would send the signal Pdeathsig to the child, although this
// process lives on.
func startProcess(name string, cmd *exec.Cmd, log io.Writer) (*process, error) {
	p := &process{name: name, cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = log, log
	attributes := cmd.SysProcAttr
	if attributes == nil {
		attributes = &syscall.SysProcAttr{}
	}

	attributes.Setpgid, attributes.Pdeathsig = true, syscall.SIGTERM
	cmd.SysProcAttr = attributes

	// WaitDelay limits the wait for grandchildren, which keep the output open.
	cmd.WaitDelay = time.Second
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()

		if err := cmd.Start(); err != nil {
			started <- err
			return
		}

		started <- nil
		p.err = cmd.Wait()
		close(p.done)
	}()

	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}

	return p, nil
}

// stopGroup sends SIGTERM to the child's process group, and waits until the child has ended. If
// that takes longer than stopTimeout, stopGroup sends SIGKILL and returns an error. A second call
// has no effect.
func (p *process) stopGroup() error {
	if p == nil {
		return nil
	}
	defer syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // ends the rest of the group

	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM); err != nil &&
		!errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}

	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()

	select {
	case <-p.done:
		return nil
	case <-timer.C:
		err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
		return errors.Join(fmt.Errorf("stop %s: killed, it did not end within %s", p.name,
			stopTimeout), err)
	}
}

// hasEnded reports whether the child has ended.
func (p *process) hasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// killGroup sends SIGKILL to the child's process group, and waits until the child has ended. A
// second call has no effect.
func (p *process) killGroup() error {
	if p == nil {
		return nil
	}

	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL); err != nil &&
		!errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}

	<-p.done
	return nil
}

// awaitReady waits until check succeeds. It returns an error if the child ends, ctx ends, or
// readyTimeout passes first.
func (p *process) awaitReady(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()

	for {
		err := check(ctx)
		if err == nil {
			return nil
		}

		select {
		case <-p.done:
			return fmt.Errorf("%s ended before it was ready: %w", p.name, errors.Join(p.err, err))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", p.name, errors.Join(ctx.Err(), err))
		case <-ticker.C:
		}
	}
}

// runToEnd runs a program, and returns its standard output and standard error as one text. It kills
// the program after readyTimeout, or when ctx ends.
func runToEnd(ctx context.Context, cmd *exec.Cmd) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		if cmd.Process != nil {
			cmd.Process.Kill()
		}
	})
	defer stop()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, out)
	}

	return string(out), nil
}

// findProgram searches PATH for a program, and then the sbin folders, which the PATH of ordinary
// users lacks.
func findProgram(name, debianPackage string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}

	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}

	return "", fmt.Errorf("%s is missing: apt-get install -y --no-install-recommends %s", name,
		debianPackage)
}

// findAbove returns the path of a folder that contains the file "marker". It looks for the folder
// first in the working directory, then in each directory above. If there is no such file, the error
// names howTo, the command that makes the file.
func findAbove(folder, marker, howTo string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}

	for {
		path := filepath.Join(dir, folder)
		if _, err := os.Stat(filepath.Join(path, marker)); err == nil {
			return path, nil
		}

		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is missing: run %s", filepath.Join(folder, marker), howTo)
		}

		dir = filepath.Dir(dir)
	}
}

// answersOK returns an error if the answer to a GET of the address does not have the status 200.
func answersOK(ctx context.Context, address string) error {
	return answersStatus(ctx, address, http.StatusOK)
}

// answersStatus returns an error if the answer to a GET of the address has another status.
func answersStatus(ctx context.Context, address string, want int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}

	resp, err := cmsClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != want {
		return fmt.Errorf("%s answers %s", address, resp.Status)
	}

	return nil
}
