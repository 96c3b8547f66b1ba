package realcms

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// mariadb is a MariaDB that listens on a Unix socket only.
type mariadb struct {
	dir                     string // folder of the socket and the data
	server, install, client string // MariaDB's programs
	log                     io.Writer
	process                 *process
}

// findPrograms finds MariaDB's programs.
func (m *mariadb) findPrograms() error {
	var problems []error
	find := func(name, debianPackage string) string {
		path, err := findProgram(name, debianPackage)
		problems = append(problems, err)
		return path
	}

	m.server = find("mariadbd", "mariadb-server-core")
	m.install = find("mariadb-install-db", "mariadb-server-core")
	m.client = find("mariadb", "mariadb-client-core")

	return errors.Join(problems...)
}

func (m *mariadb) socketPath() string { return filepath.Join(m.dir, "db.sock") }
func (m *mariadb) dataDir() string    { return filepath.Join(m.dir, "db") }
func (m *mariadb) tempDir() string    { return filepath.Join(m.dir, "tmp") }

// makeServer makes an empty database in the folder dir.
func (m *mariadb) makeServer(ctx context.Context, dir string, log io.Writer) error {
	if err := m.findPrograms(); err != nil {
		return err
	}

	m.dir, m.log = dir, log

	// MariaDB's server gets its own folder for temporary tables, because it removes all temporary
	// tables in that folder when it starts. In /tmp it could remove the tables of another server.
	if err := os.Mkdir(m.tempDir(), 0o700); err != nil {
		return err
	}

	// The database account "root" needs no password, because only the user of this process can open
	// the folder with the socket.
	_, err := runToEnd(ctx, exec.Command(m.install,
		append([]string{"--no-defaults", "--datadir=" + m.dataDir(),
			"--tmpdir=" + m.tempDir(), "--auth-root-authentication-method=normal",
			"--skip-test-db"},
			asRoot()...)...))

	return err
}

// startServer starts the server, for the first time or after killServer, and returns when it
// answers.
func (m *mariadb) startServer(ctx context.Context) (err error) {
	m.process, err = startProcess("MariaDB", exec.Command(m.server, append([]string{"--no-defaults",
		"--datadir=" + m.dataDir(), "--tmpdir=" + m.tempDir(), "--socket=" + m.socketPath(),
		"--skip-networking",
		"--skip-log-bin", "--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci",
		"--innodb-flush-log-at-trx-commit=2", "--pid-file=" + filepath.Join(m.dir, "db.pid")},
		asRoot()...)...), m.log)
	if err != nil {
		return err
	}

	return m.process.awaitReady(ctx, func(ctx context.Context) error {
		_, err := m.runSQL(ctx, "", "SELECT 1")
		return err
	})
}

func (m *mariadb) serverProcess() *process { return m.process }

// asRoot returns the flag that MariaDB needs to run as root. If this process is not root, asRoot
// returns no flag.
func asRoot() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// runSQL runs SQL, and returns the rows as lines of text.
func (m *mariadb) runSQL(ctx context.Context, database, sql string) (string, error) {
	return runToEnd(ctx, exec.Command(m.client, "--no-defaults", "--socket="+m.socketPath(),
		"--user=root",
		"--default-character-set=utf8mb4", "--batch", "--raw", "--skip-column-names",
		"--execute="+sql, database))
}
