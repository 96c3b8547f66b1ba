package azurite

import "runtime"

// startChild returns when the child has started. Linux sends the parent-death signal to the child
// when the thread that started the child ends, even if the process lives on. So a goroutine starts
// the child, and keeps its thread until the child has ended.
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
