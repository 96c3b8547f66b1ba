package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// The formula and the manifest name each zip with its checksum.
func TestWriteManifests(t *testing.T) {
	t.Parallel()
	dir, zips := t.TempDir(), map[string]string{}
	for _, target := range described {
		zips[target] = "weir-v1.2.3-cli-" + target + ".zip"
		if err := os.WriteFile(filepath.Join(dir, zips[target]), []byte(target), 0o600); err !=
			nil {
			t.Fatal(err)
		}
	}

	made, err := writeManifests(dir, "https://example.com/weir/", "v1.2.3", zips)
	if err != nil || len(made) != 2 {
		t.Fatalf("got the files %v and the error %v, want two", made, err)
	}

	formula, err := os.ReadFile(filepath.Join(dir, "weir.rb"))
	if err != nil {
		t.Fatal(err)
	}

	pairs := regexp.MustCompile(`url "(.*)"\s+sha256 "(.*)"`).FindAllStringSubmatch(string(formula),
		-1)
	if len(pairs) != 4 {
		t.Errorf("got %d downloads in the formula, want 4", len(pairs))
	}

	for _, pair := range pairs {
		_, target, _ := strings.Cut(strings.TrimSuffix(pair[1], ".zip"), "-cli-")
		if want := fmt.Sprintf("%x", sha256.Sum256([]byte(target))); pair[2] != want ||
			!strings.HasPrefix(pair[1], "https://example.com/weir/weir-v1.2.3-cli-") {
			t.Errorf("got %s with the checksum %s, want %s", pair[1], pair[2], want)
		}
	}

	text, err := os.ReadFile(filepath.Join(dir, "weir.winget.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	var manifest struct {
		Installers []struct{ InstallerUrl, InstallerSha256 string } `yaml:"Installers"`
	}
	if err := yaml.Unmarshal(text, &manifest); err != nil || len(manifest.Installers) != 2 {
		t.Errorf("got %d installers and the error %v, want 2", len(manifest.Installers), err)
	}

	delete(zips, "linux-arm64")
	if _, err := writeManifests(dir, "https://example.com", "v1.2.3", zips); err == nil {
		t.Error("got no error without the zip for linux-arm64")
	}
}
