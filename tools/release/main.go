// Command release makes the files of a release from the programs that `make release` has built: a
// zip of the app for each Linux architecture, a zip of the commands for each system, a software
// bill of materials for each binary, and the checksums of all these files. With the address from
// which users download the zips, it also writes a formula of Homebrew and a manifest of winget.
//
//	release -out build/release -app linux-amd64=build/release/stage/linux-amd64 -cli darwin-arm64=…/weir
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// checksumsName is the name of the file of checksums. sha256sum -c can read this file.
const checksumsName = "SHA256SUMS"

func main() {
	if err := packRelease(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// targetPaths has the values of a flag that can be repeated. Each value has the form target=path.
type targetPaths []targetPath

type targetPath struct{ target, path string }

// String implements flag.Value.
func (p *targetPaths) String() string { return fmt.Sprint(*p) }

// Set implements flag.Value.
func (p *targetPaths) Set(text string) error {
	target, path, found := strings.Cut(text, "=")
	if !found || target == "" || path == "" {
		return fmt.Errorf("%q: want target=path", text)
	}
	*p = append(*p, targetPath{target, path})
	return nil
}

func packRelease(args []string, stdout io.Writer) error {
	var apps, clis, extra, beside targetPaths
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	out := flags.String("out", "build/release", "folder for the packages")
	flags.Var(&apps, "app", "target=folder of a staged app; repeatable")
	flags.Var(&clis, "cli", "target=binary of the commands; repeatable")
	flags.Var(&extra, "add", "name=file that every zip holds; repeatable")
	flags.Var(&beside, "addcli", "name=file that every zip of the commands holds; repeatable")
	base := flags.String("download", "",
		"address of the folder of the zips, for the formula and the manifest")
	if err := flags.Parse(args); err != nil {
		return err
	}

	if len(apps)+len(clis) == 0 {
		return errors.New("nothing to pack: give -app or -cli")
	}

	var made []string
	for _, p := range apps {
		names, _, err := packTarget(*out, targetPath{"app-" + p.target, p.path}, extra)
		if err != nil {
			return fmt.Errorf("pack %s: %w", p.target, err)
		}
		made = append(made, names...)
	}

	zips, version := map[string]string{}, ""
	for _, p := range clis {
		names, stamp, err := packTarget(*out, targetPath{"cli-" + p.target, p.path},
			append(extra, beside...))
		if err != nil {
			return fmt.Errorf("pack %s: %w", p.target, err)
		}

		made = append(made, names...)
		zips[p.target], version = names[0], stamp.versionText()
	}

	if *base != "" {
		names, err := writeManifests(*out, *base, version, zips)
		if err != nil {
			return fmt.Errorf("write manifests: %w", err)
		}
		made = append(made, names...)
	}

	if err := writeChecksums(*out, made); err != nil {
		return fmt.Errorf("write checksums: %w", err)
	}

	for _, name := range append(made, checksumsName) {
		fmt.Fprintln(stdout, filepath.Join(*out, name))
	}

	return nil
}

// packTarget makes the zip and the bill of materials of one target, and returns the names of both
// files and the build of the binary.
func packTarget(out string, p targetPath, extra targetPaths) ([]string, buildStamp, error) {
	files, binary, err := listFiles(p.path)
	if err != nil {
		return nil, buildStamp{}, err
	}

	stamp, err := readStamp(binary)
	if err != nil {
		return nil, buildStamp{}, err
	}

	for _, e := range extra {
		files = append(files, zipFile{name: e.target, path: e.path})
	}

	base := fmt.Sprintf("weir-%s-%s", stamp.fileVersion(), p.target)
	if err := writeZip(filepath.Join(out, base+".zip"), files, stamp.at); err != nil {
		return nil, buildStamp{}, err
	}

	if err := writeBill(filepath.Join(out, base+".cdx.json"), stamp); err != nil {
		return nil, buildStamp{}, err
	}

	return []string{base + ".zip", base + ".cdx.json"}, stamp, nil
}

func writeChecksums(folder string, names []string) error {
	var lines strings.Builder
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(content), name)
	}

	return os.WriteFile(filepath.Join(folder, checksumsName), []byte(lines.String()), 0o644)
}
