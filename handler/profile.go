//go:build profile

package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"syscall"
)

// init is only in the build for measurements (make profile). A SIGUSR2 begins a CPU profile, and the next SIGUSR2
// ends it. The profile is a file in the folder WEIR_PROFILE, and gets its final name when it is complete. If
// WEIR_PROFILE is not set, no profile is written.
func init() {
	folder := os.Getenv("WEIR_PROFILE")
	if folder == "" {
		return
	}
	toggles := make(chan os.Signal, 1)
	signal.Notify(toggles, syscall.SIGUSR2)
	go func() {
		for n := 1; ; n++ {
			<-toggles
			path := filepath.Join(folder, fmt.Sprintf("%d-%d.pprof", os.Getpid(), n))
			if err := writeProfile(path, toggles); err != nil {
				fmt.Fprintln(os.Stderr, "profile:", err)
			}
		}
	}()
}

// writeProfile writes a CPU profile until the channel "end" receives a signal.
func writeProfile(path string, end <-chan os.Signal) error {
	file, err := os.Create(path + ".part")
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	<-end
	pprof.StopCPUProfile()
	return errors.Join(file.Close(), os.Rename(file.Name(), path))
}
