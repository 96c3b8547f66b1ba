package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// download is a zip of the commands, as the manifests of package managers describe it.
type download struct{ URL, Sum string }

// manifests has the data of the manifests.
type manifests struct {
	Version string
	By      map[string]download // by target, such as darwin-arm64
}

// formulaText is a formula of Homebrew.
const formulaText = `# The formula of the command weir for Homebrew. make release writes it.
class Weir < Formula
  desc "Durable queue in front of a CMS"
  version "{{.Version}}"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "{{(index .By "darwin-arm64").URL}}"
      sha256 "{{(index .By "darwin-arm64").Sum}}"
    end
    on_intel do
      url "{{(index .By "darwin-amd64").URL}}"
      sha256 "{{(index .By "darwin-amd64").Sum}}"
    end
  end

  on_linux do
    on_arm do
      url "{{(index .By "linux-arm64").URL}}"
      sha256 "{{(index .By "linux-arm64").Sum}}"
    end
    on_intel do
      url "{{(index .By "linux-amd64").URL}}"
      sha256 "{{(index .By "linux-amd64").Sum}}"
    end
  end

  def install
    bin.install "weir"
  end

  service do
    run [opt_bin/"weir", "serve", "--data", var/"weir", "--config", etc/"weir/weir.yaml"]
    keep_alive true
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/weir version")
  end
end
`

// wingetText is a manifest of winget in one file (a singleton).
const wingetText = `# The manifest of the command weir for winget. make release writes it.
PackageIdentifier: Weir.Weir
PackageVersion: {{.Version}}
PackageLocale: en-US
Publisher: Weir
PackageName: Weir
License: Apache-2.0
ShortDescription: Durable queue in front of a CMS
InstallerType: zip
NestedInstallerType: portable
NestedInstallerFiles:
  - RelativeFilePath: weir.exe
    PortableCommandAlias: weir
Installers:
  - Architecture: x64
    InstallerUrl: {{(index .By "windows-amd64").URL}}
    InstallerSha256: {{(index .By "windows-amd64").Sum}}
  - Architecture: arm64
    InstallerUrl: {{(index .By "windows-arm64").URL}}
    InstallerSha256: {{(index .By "windows-arm64").Sum}}
ManifestType: singleton
ManifestVersion: 1.6.0
`

// described are the targets that the manifests need.
var described = []string{"darwin-amd64", "darwin-arm64", "linux-amd64", "linux-arm64",
	"windows-amd64", "windows-arm64"}

// writeManifests writes the formula and the manifest of the zips of the commands. zips has their
// names by target. base is the address of the folder from which users download them.
func writeManifests(out, base, version string, zips map[string]string) ([]string, error) {
	m := manifests{Version: version, By: map[string]download{}}
	for _, target := range described {
		name := zips[target]
		if name == "" {
			return nil, fmt.Errorf("the manifests need the commands of %s: give -cli", target)
		}

		content, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			return nil, err
		}

		m.By[target] = download{URL: strings.TrimSuffix(base, "/") + "/" + name,
			Sum: fmt.Sprintf("%x", sha256.Sum256(content))}
	}

	var made []string
	for name, text := range map[string]string{"weir.rb": formulaText,
		"weir.winget.yaml": wingetText} {
		var b bytes.Buffer
		if err := template.Must(template.New("").Parse(text)).Execute(&b, m); err != nil {
			return nil, err
		}

		if err := os.WriteFile(filepath.Join(out, name), b.Bytes(), 0o644); err != nil {
			return nil, err
		}

		made = append(made, name)
	}

	return made, nil
}
