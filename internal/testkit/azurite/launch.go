package azurite

import "runtime"

// startChild starts the child from a goroutine that keeps its thread until the child has ended.
// Linux sends the parent-death signal to the child when the thread that started it ends, even if
// the process lives on. startChild returns when the child has started.
func (p *Process) startChild() error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		endWithParent(p.cmd)
		if err := p.cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return <-started
}
