package app

import (
	"runtime"
	"runtime/debug"

	"weir/internal/telemetry"
)

// Build is the version and the commit that the go command recorded in the binary. A value is
// "unknown" if the go command recorded none.
type Build struct{ Version, Commit string }

// ReadBuild returns the build of this binary.
func ReadBuild() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return describeBuild(info)
}

func describeBuild(info *debug.BuildInfo) Build {
	b := Build{Version: info.Main.Version, Commit: "unknown"}
	if b.Version == "" {
		b.Version = "unknown"
	}

	var at, changed string
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Commit = setting.Value
		case "vcs.time":
			at = " of " + setting.Value
		case "vcs.modified":
			if setting.Value == "true" {
				changed = ", changed since"
			}
		}
	}

	b.Commit += at + changed

	return b
}

func telemetryBuild() telemetry.Build {
	b := ReadBuild()
	return telemetry.Build{Version: b.Version, Commit: b.Commit, GoVersion: runtime.Version()}
}
