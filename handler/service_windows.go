package main

import (
	"context"
	"errors"

	"golang.org/x/sys/windows/svc"

	"weir/internal/panics"
)

// errServiceStops is the reason of the end of a Windows service.
var errServiceStops = errors.New("the service was told to stop")

// run calls serve with a context that ends at Ctrl-C, or if the process is a Windows service, at
// the stop of the service or the shutdown of the machine.
func run(ctx context.Context, serve func(context.Context) int) int {
	isService, err := svc.IsWindowsService()
	if err != nil || !isService {
		return serve(ctx)
	}

	s := &service{ctx: ctx, serve: serve}
	if err := svc.Run("weir", s); err != nil {
		return 1
	}

	return s.code
}

// service is a Windows service.
type service struct {
	ctx   context.Context
	serve func(context.Context) int
	code  int
}

// Execute implements svc.Handler. Windows starts the service again after an exit code other than 0,
// if its recovery is set so.
func (s *service) Execute(_ []string, requests <-chan svc.ChangeRequest,
	status chan<- svc.Status) (bool, uint32) {
	ctx, stop := context.WithCancelCause(s.ctx)
	defer stop(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := panics.Catch(func() error { s.code = s.serve(ctx); return nil })
		if err != nil {
			s.code = 1
		}
	}()

	status <- svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}

	for {
		select {
		case <-done:
			return true, uint32(s.code)
		case request := <-requests:
			switch request.Cmd {
			case svc.Interrogate:
				status <- request.CurrentStatus
			case svc.Stop, svc.Shutdown:
				status <- svc.Status{State: svc.StopPending, WaitHint: 10_000}
				stop(errServiceStops)
			}
		}
	}
}
