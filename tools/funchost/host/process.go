package host

import (
	"fmt"
	"os/exec"
	"runtime"
	"sync/atomic"
	"time"
)

// handlerProcess is one run of the handler.
type handlerProcess struct {
	cmd            *exec.Cmd
	workerID       string
	ended          chan struct{} // closed when the process has ended and its output is read
	exitCode       int           // -1 = ended by a signal; read it only after "ended" is closed
	stdout         *lineWriter
	stderr         *lineWriter
	isKilledByHost atomic.Bool // the host killed the process, so its end is no error
}

func stdoutLevel(string) logLevel { return levelInformation }

// outputDelay is the longest time for which the host reads output after the handler has ended.
// Without this limit, the host could wait for a child of the handler that keeps the output open.
const outputDelay = time.Second

func (i *instance) startProcess(workerID string) (*handlerProcess, error) {
	c, out, number := i.host.app.command, i.host.console, i.number
	p := &handlerProcess{
		cmd:      exec.Command(c.path, c.args...),
		workerID: workerID,
		ended:    make(chan struct{}),
		stdout: &lineWriter{console: out, prefix: fmt.Sprintf("[%d] ", number),
			level: stdoutLevel},
		stderr: &lineWriter{console: out, prefix: fmt.Sprintf("[%d] stderr: ", number),
			level: i.host.app.stderrLevel},
	}

	p.cmd.Dir, p.cmd.Env = c.dir, i.handlerEnvironment(workerID)
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	p.cmd.WaitDelay = outputDelay
	if !i.host.cfg.Orphan {
		dieWithParent(p.cmd)
	}

	started := make(chan error)
	go p.startAndWait(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start handler %s: %w", c.path, err)
	}

	return p, nil
}

// startAndWait starts the handler and waits for its end on one locked thread. The lock keeps the
// thread alive. If the thread ended, the kernel would kill the handler, because of dieWithParent.
func (p *handlerProcess) startAndWait(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}

	close(started)
	_ = p.cmd.Wait() // ProcessState has the result
	p.stdout.flushPartial()
	p.stderr.flushPartial()
	p.exitCode = p.cmd.ProcessState.ExitCode()
	close(p.ended)
}

func (p *handlerProcess) processID() int { return p.cmd.Process.Pid }

// killHandler ends the process by SIGKILL, as the real host does, and waits for its end.
func (p *handlerProcess) killHandler() {
	p.isKilledByHost.Store(true)
	_ = p.cmd.Process.Kill() // fails only if the process has ended by itself
	<-p.ended
}
