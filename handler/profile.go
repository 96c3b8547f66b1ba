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

	"weir/internal/panics"
)

// init lets the signal SIGUSR2 start a CPU profile. The next SIGUSR2 ends the profile. The
// environment variable WEIR_PROFILE names the folder of the profiles; without the variable, init
// does nothing. This file is only in the build for measurements (make profile).
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
			err := panics.Catch(func() error { return writeProfile(path, toggles) })
			if err != nil {
				fmt.Fprintln(os.Stderr, "profile:", err)
			}
		}
	}()
}

// writeProfile writes a CPU profile until the channel "end" has a signal. The file's name ends with
// .part until the profile is complete.
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
