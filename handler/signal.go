//go:build !windows

package main

import "context"

// run calls serve. Other systems than Windows tell a service to stop by a signal.
func run(ctx context.Context, serve func(context.Context) int) int { return serve(ctx) }
