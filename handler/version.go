package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (s *shell) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "version", Short: "Print version, commit and Go version", Args: cobra.NoArgs}
	addJSON(cmd, &asJSON)
	cmd.RunE = func(*cobra.Command, []string) error {
		info, ok := debug.ReadBuildInfo()
		if !ok {
			info = &debug.BuildInfo{}
		}
		v := versionOf(info)
		if asJSON {
			return s.document(struct {
				Version string `json:"version"`
				Commit  string `json:"commit"`
				Go      string `json:"go"`
				OS      string `json:"os"`
				Arch    string `json:"arch"`
			}{v.version, v.commit, runtime.Version(), runtime.GOOS, runtime.GOARCH})
		}
		fmt.Fprintf(s.stdout, "weir %s\ncommit %s\n%s %s/%s\n", v.version, v.commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return nil
	}
	return cmd
}

// build is what a binary knows of how it was made.
type build struct{ version, commit string }

// versionOf reads what the go command stamps into a binary that is built inside a checkout.
func versionOf(info *debug.BuildInfo) build {
	b := build{version: info.Main.Version, commit: "unknown"}
	if b.version == "" {
		b.version = "unknown"
	}
	var at, changed string
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.commit = setting.Value
		case "vcs.time":
			at = " of " + setting.Value
		case "vcs.modified":
			if setting.Value == "true" {
				changed = ", changed since"
			}
		}
	}
	b.commit += at + changed
	return b
}
