package azurite

import "runtime"

// startAndWait starts the child from a goroutine that keeps its thread until the child has
// ended: the death signal comes when the starting thread ends, not the process.
func (p *Process) startAndWait() error {
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
