package host

import (
	"fmt"
	"os/exec"
	"runtime"
	"sync/atomic"
	"time"
)

// process is one run of the handler.
type process struct {
	cmd      *exec.Cmd
	workerID string
	done     chan struct{} // closed when it has ended and its output is read
	code     int           // read after done; -1 = by a signal
	stdout   *lines
	stderr   *lines
	ours     atomic.Bool // we ended it: no error of the handler's
}

// stdoutLevel is Information, whatever the handler means its line to be.
func stdoutLevel(string) logLevel { return levelInformation }

// outputDelay is how long a dead handler's output is waited for: a grandchild may hold it open.
const outputDelay = time.Second

func (i *instance) startProcess(workerID string) (*process, error) {
	c, out, number := i.host.app.command, i.host.console, i.number
	p := &process{
		cmd:      exec.Command(c.path, c.args...),
		workerID: workerID,
		done:     make(chan struct{}),
		stdout:   &lines{console: out, prefix: fmt.Sprintf("[%d] ", number), level: stdoutLevel},
		stderr:   &lines{console: out, prefix: fmt.Sprintf("[%d] stderr: ", number), level: i.host.app.stderrLevel},
	}
	p.cmd.Dir, p.cmd.Env = c.dir, i.environment(workerID)
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	p.cmd.WaitDelay = outputDelay
	if !i.host.cfg.Orphan {
		dieWithParent(p.cmd)
	}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start handler %s: %w", c.path, err)
	}
	return p, nil
}

// run starts the child and waits for it, on one thread: the kernel sends the death signal
// when the thread that started the child ends, not the process.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	close(started)
	_ = p.cmd.Wait() // how it ended is in ProcessState
	p.stdout.flush()
	p.stderr.flush()
	p.code = p.cmd.ProcessState.ExitCode()
	close(p.done)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends it as the host does, without a word of warning.
func (p *process) kill() {
	p.ours.Store(true)
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.done
}
