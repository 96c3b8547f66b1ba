package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// stageApp builds the app as make release does, for the platform of this machine.
func stageApp(t *testing.T) string {
	t.Helper()
	app := filepath.Join(t.TempDir(), "app")
	cmd := exec.Command("make", "-C", "../..", "--no-print-directory", "build", "APP="+app,
		"ARCH="+runtime.GOARCH,
		"COMMAND="+filepath.Join(t.TempDir(), "weir"),
		"WEIR_CONFIG=internal/testkit/settings/weir.yaml")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}

	return app
}

// make build takes the settings that WEIR_CONFIG names, and ends with the lines of weir check if
// the file is wrong or missing. It needs no variable that the file names.
func TestBuild_TakesOtherSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const good = "lanes: 3\ndelivery: { url: \"${MY_CMS}\", timeout: \"${MY_TIMEOUT}\", headers: { X-Key: \"${MY_KEY}\" } }\n" +
		"contracts:\n  - { name: news, root: news, key: ./@id }\n"
	for name, c := range map[string]struct {
		text string // "" = there is no file
		want []string
	}{
		"Good":  {good, nil},
		"Wrong": {"lanes: 0\n" + good[len("lanes: 3\n"):], []string{"lanes is 0", "Wrong.yaml"}},
		"Slip": {strings.Replace(good, "root:", "roots:", 1),
			[]string{"unknown field", "roots"}},
		"Missing": {"", []string{"cannot be read", "Missing.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, app := filepath.Join(dir, name+".yaml"), filepath.Join(t.TempDir(), "app")
			if c.text != "" {
				if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			cmd := exec.Command("make", "-C", "../..", "--no-print-directory", "build", "APP="+app,
				"ARCH="+runtime.GOARCH, "COMMAND="+filepath.Join(t.TempDir(), "weir"),
				"WEIR_CONFIG="+file)
			out, err := cmd.CombinedOutput()
			if (err == nil) != (c.want == nil) {
				t.Fatalf("make build: %v\n%s\nwant an error: %v", err, out, c.want != nil)
			}

			for _, want := range c.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("got\n%s\nwant %q in it", out, want)
				}
			}

			staged, _ := os.ReadFile(filepath.Join(app, "weir.yaml"))
			if want := map[bool]string{true: c.text}[c.want == nil]; string(staged) != want {
				t.Errorf("the app has the settings %q, want %q", staged, want)
			}
		})
	}
}

func TestRelease_PackedAppRuns(t *testing.T) {
	t.Parallel()
	app, out := stageApp(t), t.TempDir()
	target := "linux-" + runtime.GOARCH
	command := filepath.Join(t.TempDir(), commandName)
	if err := os.Link(filepath.Join(app, binaryName), command); err != nil {
		t.Fatal(err)
	}

	args := []string{
		"-out", out, "-add", "LICENSE=../../LICENSE",
		"-app", target + "=" + app, "-cli", target + "=" + command,
	}
	if err := packRelease(args, io.Discard); err != nil {
		t.Fatal(err)
	}

	folder := unpackZip(t, findOnly(t, out, "weir-*-"+target+".zip", "-cli-"))
	checkVersion(t, filepath.Join(folder, binaryName))
	checkApp(t, folder)
	checkVersion(t, filepath.Join(unpackZip(t, findOnly(t, out, "weir-*-cli-"+target+".zip", "")),
		commandName))
	verifySums(t, out)
	verifyBill(t, findOnly(t, out, "weir-*-"+target+".cdx.json", "-cli-"))
}

// checkVersion checks that an unpacked program runs and prints its version and platform.
func checkVersion(t *testing.T, program string) {
	t.Helper()
	out, err := exec.Command(program, "version").Output()
	got, want := string(out), "linux/"+runtime.GOARCH
	if err != nil || !strings.HasPrefix(got, "weir ") || !strings.Contains(got, want) {
		t.Errorf("weir version: got %q, %v, want weir … %s", got, err, want)
	}
}

// findOnly returns the only file that matches a pattern. It ignores files whose name contains the
// text "without". If "without" is empty, it ignores no file.
func findOnly(t *testing.T, folder, pattern, without string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, pattern))
	found = slices.DeleteFunc(found, func(f string) bool {
		return without != "" && strings.Contains(filepath.Base(f), without)
	})
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: got %q, %v, want one file", pattern, found, err)
	}

	return found[0]
}

func unpackZip(t *testing.T, path string) string {
	t.Helper()
	r, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	folder := t.TempDir()
	for _, f := range r.File {
		content, err := r.Open(f.Name)
		if err != nil {
			t.Fatal(err)
		}

		at := filepath.Join(folder, f.Name)
		data, err := io.ReadAll(content)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(at), 0o755)
		}

		if err == nil {
			err = os.WriteFile(at, data, f.Mode())
		}

		if err != nil {
			t.Fatal(err)
		}
	}

	return folder
}

// checkApp checks that the root of the unpacked zip has the license, the settings, and each
// function's folder.
func checkApp(t *testing.T, folder string) {
	t.Helper()
	functions, err := filepath.Glob("../../functions/*/function.json")
	if err != nil || len(functions) == 0 {
		t.Fatalf("functions: %v, %v, want more than 0 functions and no error", functions, err)
	}

	want := []string{"LICENSE", "host.json", "weir.yaml"}
	for _, f := range functions {
		want = append(want, filepath.Join(filepath.Base(filepath.Dir(f)), "function.json"))
	}

	for _, name := range want {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			t.Errorf("the zip lacks %s: %v", name, err)
		}
	}
}

func verifySums(t *testing.T, folder string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, checksumsName))
	if err != nil {
		t.Fatal(err)
	}

	listed := 0
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		content, err := os.ReadFile(filepath.Join(folder, name))
		if got := fmt.Sprintf("%x", sha256.Sum256(content)); err != nil || got != sum {
			t.Errorf("%s: got %s, want %s, %v", name, got, sum, err)
		}
		listed++
	}

	entries, err := os.ReadDir(folder)
	if err != nil || listed != len(entries)-1 {
		t.Errorf("checksums of %d files, and the folder has %d beside them, %v, want %v and no error", listed,
			len(entries)-1, err, len(entries)-1)
	}
}

func verifyBill(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(&bom); err !=
		nil {
		t.Fatal(err)
	}

	const linked = "github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	// ../.. has weir's module
	out, err := exec.Command("go", "list", "-C", "../..", "-m", "-json", linked).Output()
	var module struct{ Path, Version string }
	if err == nil {
		err = json.Unmarshal(out, &module)
	}

	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{packageURL(module.Path, module.Version),
		packageURL("std", runtime.Version())} {
		if !slices.ContainsFunc(*bom.Components,
			func(c cdx.Component) bool { return c.PackageURL == want }) {
			t.Errorf("the bill of materials lacks %s", want)
		}
	}
}

func TestRelease_Refuses(t *testing.T) {
	t.Parallel()
	dev := t.TempDir()
	if err := os.WriteFile(filepath.Join(dev, "local.settings.json"), []byte("{}"), 0o600); err !=
		nil {
		t.Fatal(err)
	}

	for name, args := range map[string][]string{
		"nothing":           nil,
		"no path":           {"-app", "linux-amd64"},
		"missing":           {"-cli", "windows-amd64=" + filepath.Join(dev, "handler.exe")},
		"developer's keys":  {"-app", "linux-amd64=" + dev},
		"not a Go program":  {"-cli", "linux-amd64=main.go"},
		"unknown flag":      {"-sign"},
		"app has no binary": {"-app", "linux-amd64=" + t.TempDir()},
	} {
		if err := packRelease(append([]string{"-out", t.TempDir()}, args...), io.Discard); err ==
			nil {
			t.Errorf("%s: packRelease = no error, want one", name)
		}
	}
}

func TestStamp_FileVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"v1.2.3": "v1.2.3", "v1.2.3+dirty": "v1.2.3-dirty", "(devel)": "devel", "": "devel",
	} {
		s := buildStamp{info: &debug.BuildInfo{Main: debug.Module{Version: version}}}
		if got := s.fileVersion(); got != want {
			t.Errorf("%q: got %q, want %q", version, got, want)
		}
	}
}
