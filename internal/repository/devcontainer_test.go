package repository_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The development container must build on the Go image of the app's Dockerfile, and forward the
// ports of make run. The files that the container's own Dockerfile copies from tools must exist.
// The build context must be the repository.
func TestDevcontainer_MatchesTheRepository(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	read := func(path ...string) string {
		text, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}

	image := regexp.MustCompile(`(?m)^ARG GO_IMAGE=(\S+)$`)
	deployed, own := image.FindStringSubmatch(read("Dockerfile")),
		image.FindStringSubmatch(read(".devcontainer", "Dockerfile"))
	if deployed == nil || own == nil || deployed[1] != own[1] {
		t.Errorf("the development container builds on %q, want the image of Dockerfile, %q",
			own, deployed)
	}

	var container struct {
		Build struct{ Dockerfile, Context string }
		Ports []int `json:"forwardPorts"`
	}
	if err := json.Unmarshal([]byte(read(".devcontainer", "devcontainer.json")), &container); err !=
		nil {
		t.Fatal(err)
	}

	if want := []int{7071, 7072}; !slices.Equal(container.Ports, want) {
		t.Errorf("got the forwarded ports %v, want the ports of make run, %v",
			container.Ports, want)
	}

	for _, copied := range regexp.MustCompile(`(?m)^COPY (tools/\S+)`).FindAllStringSubmatch(
		read(".devcontainer", "Dockerfile"), -1) {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(copied[1]))); err != nil ||
			strings.HasPrefix(copied[1], "/") {
			t.Errorf("%s of the development container: %v, want a file of the repository",
				copied[1], err)
		}
	}

	if context := filepath.Join(root, ".devcontainer", container.Build.Context); filepath.Clean(context) != root {
		t.Errorf("the build's context is %s, want the repository, %s",
			filepath.Clean(context), root)
	}
}
