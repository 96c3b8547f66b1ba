package main

import (
	"cmp"
	"debug/buildinfo"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// buildStamp is the build information that the go command has written into a binary.
type buildStamp struct {
	info   *debug.BuildInfo
	commit string
	at     time.Time // time of the commit
}

func readStamp(binary string) (buildStamp, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return buildStamp{}, fmt.Errorf("read the build info of %s: %w", binary, err)
	}

	// If the build information has no commit, s.at stays the earliest time that a zip can contain.
	s := buildStamp{info: info, at: time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			s.commit = setting.Value
		case "vcs.time":
			if s.at, err = time.Parse(time.RFC3339, setting.Value); err != nil {
				return buildStamp{}, fmt.Errorf("time of the commit: %w", err)
			}
		}
	}

	return s, nil
}

// versionText returns the version in the build information: the tag of the commit, or a version
// with the commit's time and hash if the commit has no tag. If the build information has no
// version, versionText returns "devel".
func (s buildStamp) versionText() string {
	return cmp.Or(strings.Trim(s.info.Main.Version, "()"), "devel")
}

// fileVersion returns the version for file names. It replaces plus signs, because some servers
// change a plus sign in the name of a file.
func (s buildStamp) fileVersion() string { return strings.ReplaceAll(s.versionText(), "+", "-") }

// writeBill writes a bill of materials in the format CycloneDX: the modules in the binary, and Go's
// standard library.
func writeBill(path string, s buildStamp) error {
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: s.at.Format(time.RFC3339),
		Component: &cdx.Component{
			BOMRef: "weir", Type: cdx.ComponentTypeApplication, Name: s.info.Main.Path,
			Version:    s.versionText(),
			PackageURL: packageURL(s.info.Main.Path, s.versionText()),
			Properties: buildProperties(s),
		},
	}

	components := []cdx.Component{newLibrary("std", s.info.GoVersion)}
	for _, module := range s.info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		components = append(components, newLibrary(module.Path, module.Version))
	}

	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}

	bom.Components, bom.Dependencies = &components,
		&[]cdx.Dependency{{Ref: "weir", Dependencies: &refs}}
	out, err := os.Create(path)
	if err != nil {
		return err
	}

	if err := cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err !=
		nil {
		return fmt.Errorf("encode the bill of materials: %w", err)
	}

	return out.Close()
}

func newLibrary(path, version string) cdx.Component {
	url := packageURL(path, version)
	return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version,
		PackageURL: url}
}

func packageURL(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// buildProperties returns the commit, and the build settings that change the binary.
func buildProperties(s buildStamp) *[]cdx.Property {
	all := []cdx.Property{{Name: "weir:commit", Value: s.commit}}
	for _, setting := range s.info.Settings {
		switch setting.Key {
		case "GOOS", "GOARCH", "GOAMD64", "GOARM64", "CGO_ENABLED", "-tags", "-trimpath",
			"vcs.modified":
			all = append(all, cdx.Property{Name: "go:" + setting.Key, Value: setting.Value})
		}
	}

	return &all
}
