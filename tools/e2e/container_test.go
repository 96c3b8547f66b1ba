package e2e_test

import (
	"bufio"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// imageBuild is a stage of the Dockerfile: a FROM and the instructions that follow.
type imageBuild struct {
	name    string   // the name after AS; without AS, the image after FROM
	folder  string   // the argument of WORKDIR
	user    string   // the argument of USER
	args    []string // the arguments of ARG
	env     []string // name=value
	runs    []string // the commands of RUN
	copying []string // source and target of each COPY from the first stage
}

// The test runs the RUN commands of the Dockerfile in a copy of the build context, without a
// container. Then it starts the built app with the image's environment variables, and checks that
// the app delivers a message. The test does not use the two base images.
func TestDockerfile_MakesAnAppThatStarts(t *testing.T) {
	s := newBareSystem(t)
	builds := readDockerfile(t)
	if len(builds) != 2 || len(builds[0].runs) < 2 || len(builds[1].copying) != 2 {
		t.Fatalf("got %+v, want a stage that builds the app, and one that copies it", builds)
	}

	build, image := builds[0], builds[1]
	if user, _, _ := strings.Cut(image.user, ":"); user == "" ||
		strings.Trim(user, "0123456789") != "" || user == "0" {
		t.Errorf("the image has the user %q, want a number that is not root", image.user)
	}

	if !slices.Contains(build.args, "WEIR_CONFIG=weir.yaml") {
		t.Errorf("the stage that builds the app has the arguments %q, want WEIR_CONFIG=weir.yaml",
			build.args)
	}

	context := t.TempDir()
	copyContext(t, context)

	for _, command := range build.runs {
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", command)
		cmd.Dir, cmd.Env = context, append(os.Environ(), "GOPROXY=off", "GOWORK=off",
			"WEIR_CONFIG=internal/testkit/settings/weir.yaml")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("RUN %s: %v\n%s", command, err, out)
		}
	}

	source, isBuilt := strings.CutPrefix(image.copying[0], build.folder)
	if root := "AzureWebJobsScriptRoot=" + image.copying[1]; !isBuilt ||
		!slices.Contains(image.env, root) {
		t.Fatalf("got %+v, want a COPY from %s to the folder of AzureWebJobsScriptRoot", image,
			build.folder)
	}

	s.app = filepath.Join(context, source)
	s.startStagedHost(image.env, nil)
	address, _ := s.postBody(articleXML("/container", 1))
	s.awaitStageAt(address, "delivered")
}

func readDockerfile(t *testing.T) (builds []imageBuild) {
	t.Helper()
	text := regexp.MustCompile(`\\\n\s*`).ReplaceAllString(readFile(t,
		filepath.Join("..", "..", "Dockerfile")), "")
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		instruction, rest, _ := strings.Cut(lines.Text(), " ")
		words := strings.Fields(rest)
		if instruction == "FROM" {
			builds = append(builds, imageBuild{name: words[len(words)-1]})
		}

		if len(builds) == 0 {
			continue // ARG and comments before the first FROM
		}

		last := &builds[len(builds)-1]
		switch instruction {
		case "WORKDIR":
			last.folder = rest
		case "USER":
			last.user = rest
		case "ARG":
			last.args = append(last.args, rest)
		case "RUN":
			last.runs = append(last.runs, rest)
		case "ENV":
			last.env = append(last.env, words...)
		case "COPY":
			if words[0] == "--from="+builds[0].name {
				last.copying = append(last.copying, words[1:]...)
			}
		}
	}

	return builds
}

// copyContext copies the repository to a folder, except .git and the files that .dockerignore
// names.
func copyContext(t *testing.T, to string) {
	t.Helper()
	root := filepath.Join("..", "..")
	ignored := strings.Fields(readFile(t, filepath.Join(root, ".dockerignore")))
	isIgnored := func(path string) bool {
		return slices.ContainsFunc(ignored, func(pattern string) bool {
			whole := path
			name, isAnywhere := strings.CutPrefix(pattern, "**/")
			if isAnywhere {
				whole = filepath.Base(path)
			}

			matches, err := filepath.Match(name, whole)
			return err == nil && matches
		})
	}

	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case name == ".git" || isIgnored(name):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil

		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		}

		info, err := entry.Info()
		if err != nil {
			return err
		}

		writeFile(t, filepath.Join(to, name), readFile(t, path), info.Mode().Perm())

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
