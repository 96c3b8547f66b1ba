package app

import (
	"runtime/debug"
	"testing"
)

func TestDescribeBuild(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-01-08T12:00:00Z"},
		{Key: "vcs.modified", Value: "true"}}}
	if got := describeBuild(info); got !=
		(Build{"v1.2.3", "abc of 2026-01-08T12:00:00Z, changed since"}) {
		t.Errorf("got %+v, want the stamped version, commit and time", got)
	}

	if got := describeBuild(&debug.BuildInfo{}); got != (Build{"unknown", "unknown"}) {
		t.Errorf("without a stamp: got %+v, want version and commit unknown", got)
	}
}
