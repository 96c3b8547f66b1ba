package realcms_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// machine is what a machine of TestInstallPackages has. The programs are stubs.
type machine struct {
	programs  []string // names of programs that succeed without output
	node, gov string   // versions; "" = not installed
	packages  string   // lines of dpkg-query; "-" = there is no apt
	system    string   // ID of os-release
	root      bool
	sudo      string // exit code of sudo, a word of the shell; "" = not installed
	env       string // name=value
}

// allPackages is the answer of dpkg-query on a machine with all packages.
const allPackages = "php-cli installed\nphp-mysql installed\nphp-xml installed\nphp-curl installed\n" +
	"mariadb-server-core installed\nmariadb-client-core installed\nrabbitmq-server installed\n"

// runInstall runs install-packages.sh on the machine, and returns its output and exit code. apt-get
// fails in the stub, and prints its arguments.
func (m machine) runInstall(t *testing.T, args ...string) (string, int) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, script string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	for _, name := range []string{"bash", "sed", "grep", "tee", "mktemp", "rm", "env", "seq", "sh",
		"cat", "chmod"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}

		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}

	for _, name := range m.programs {
		write(name, "")
	}

	write("id", map[bool]string{true: "echo 0", false: "echo 1000"}[m.root])

	if m.packages != "-" {
		write("dpkg-query", "cat <<'END'\n"+m.packages+"END")
		write("apt-get", `echo "apt-get $*"; exit 100`)
	}

	if m.node != "" {
		write("node", "echo "+m.node)
		write("npm", "")
	}

	if m.gov != "" {
		write("go", "echo "+m.gov)
	}

	if m.sudo != "" {
		write("sudo", "exit "+m.sudo)
	}

	write("os-release", "ID="+m.system)

	script, err := filepath.Abs("install-packages.sh")
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command(filepath.Join(dir, "bash"), append([]string{script}, args...)...)
	cmd.Env = []string{"PATH=" + dir, "OS_RELEASE=" + filepath.Join(dir, "os-release"), m.env}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}

	return strings.ReplaceAll(string(out), script, "install-packages.sh"),
		cmd.ProcessState.ExitCode()
}

func TestInstallPackages(t *testing.T) {
	t.Parallel()
	programs := []string{"make", "gcc", "curl", "chromium-headless-shell", "strace"}
	full := machine{programs: programs, node: "v20.1.0", gov: "go1.26.8", packages: allPackages,
		system: "debian"}
	bare := full
	bare.programs, bare.packages = []string{"make"}, ""
	whole := full
	whole.programs = []string{"make", "gcc", "curl", "chromium", "strace"}
	const joins = "installing chromium-headless-shell: with it the tests of pages take half of the processor time\n"
	const missing = "missing: curl gcc libc6-dev chromium-headless-shell strace php-cli php-mysql php-xml php-curl " +
		"mariadb-server-core mariadb-client-core rabbitmq-server\n"
	const noNode = "Node 20 with npm is missing: install it from https://nodejs.org"
	with := func(m machine, change func(*machine)) machine {
		change(&m)
		return m
	}

	for name, c := range map[string]struct {
		machine machine
		args    []string
		want    string
		code    int
	}{
		"nothing is missing":   {full, nil, "", 0},
		"check nothing":        {full, []string{"--check"}, "", 0},
		"check a bare machine": {bare, []string{"--check"}, missing, 1},
		"nothing is missing for real CMSs": {
			with(full, func(m *machine) {
				m.programs = append([]string{"g++", "python3"}, programs...)
				m.packages = allPackages +
					"postgresql installed\nphp-mbstring installed\nphp-intl installed\n"
			}), []string{"cms"}, "", 0,
		},
		"packages of real CMSs": {
			full, []string{"cms"},
			"missing: g++ python3 postgresql php-mbstring php-intl\nsu -c 'install-packages.sh cms'\n", 1,
		},
		"check packages of real CMSs": {
			full, []string{"cms", "--check"},
			"missing: g++ python3 postgresql php-mbstring php-intl\n", 1,
		},
		"neither root nor sudo": {bare, nil, missing + "su -c install-packages.sh\n", 1},
		"sudo wants a password": {
			with(bare, func(m *machine) { m.sudo = "1" }),
			nil, missing + "sudo install-packages.sh\n", 1,
		},
		"INSTALL=0 as root": {
			with(bare, func(m *machine) { m.root, m.env = true, "INSTALL=0" }),
			nil, missing + "install-packages.sh\n", 1,
		},
		"INSTALL=0 with sudo": {
			with(bare, func(m *machine) { m.sudo, m.env = "0", "INSTALL=0" }),
			nil, missing + "sudo install-packages.sh\n", 1,
		},
		"one package is removed": {with(full, func(m *machine) {
			m.packages = strings.Replace(allPackages, "php-xml installed",
				"php-xml config-files", 1)
		}), nil, "missing: php-xml\nsu -c install-packages.sh\n", 1},
		"no apt": {
			with(bare, func(m *machine) { m.packages = "-" }),
			nil, "the tests need packages of Debian or Ubuntu, and this system has no apt: " +
				"use the development container (CONTRIBUTING.md, Set up)\n", 2,
		},
		"no Node": {with(full, func(m *machine) { m.node = "" }), nil, noNode + "\n", 2},
		"an old Node": {
			with(full, func(m *machine) { m.node = "v18.20.4" }),
			nil, "Node is v18.20.4, and 20 is needed: install it from https://nodejs.org\n", 2,
		},
		"an old Go": {
			with(full, func(m *machine) { m.gov = "go1.19.8" }),
			nil, "Go is go1.19.8, and 1.26 is needed: install it from https://go.dev/dl\n", 2,
		},
		"sudo hides Node and Go": {
			with(full, func(m *machine) { m.node, m.gov, m.env = "", "", "SUDO_COMMAND=x" }),
			nil, "", 0,
		},
		"Chromium is a snap": {with(bare, func(m *machine) {
			m.system, m.programs = "ubuntu", []string{"make", "curl", "gcc", "strace"}
			m.packages = allPackages
		}), nil, "missing: chromium-headless-shell\nUbuntu has Chromium only as a snap, which the tests cannot use: " +
			"install Google Chrome, then sudo ln -s /usr/bin/google-chrome /usr/local/bin/chromium\n", 2},
		"Ubuntu with a Chromium": {with(whole,
			func(m *machine) { m.system, m.sudo = "ubuntu", "0" }), nil, "", 0},
		"a whole Chromium does": {whole, nil, "", 0},
		"a whole Chromium, check": {
			with(whole, func(m *machine) { m.sudo = "0" }), []string{"--check"}, "", 0,
		},
		"a whole Chromium, INSTALL=0": {
			with(whole, func(m *machine) { m.sudo, m.env = "0", "INSTALL=0" }), nil, "", 0,
		},
		"the shell joins a whole Chromium": {
			with(whole, func(m *machine) { m.sudo = "0" }), nil, joins, 0,
		},
		"no apt takes the shell": {
			with(whole, func(m *machine) { m.sudo = `$(test "$2" != env; echo $?)` }),
			nil, joins + "it was not installed: the tests take chromium\n", 0,
		},
		"nothing is asked for 0": {with(full, func(m *machine) { m.env = "INSTALL=0" }),
			nil, "", 0},
		"Node and Go are missing": {
			with(full, func(m *machine) { m.node, m.gov = "", "" }),
			nil, "Go 1.26 is missing: install it from https://go.dev/dl; " + noNode + "\n", 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, code := c.machine.runInstall(t, c.args...)
			if out != c.want || code != c.code {
				t.Errorf("got code %d and\n%s\nwant code %d and\n%s", code, out, c.code, c.want)
			}
		})
	}
}
