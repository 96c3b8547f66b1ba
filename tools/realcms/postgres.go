package realcms

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// postgres is a PostgreSQL that listens on a Unix socket only.
type postgres struct {
	dir     string              // folder of the socket and the data
	bin     string              // folder of PostgreSQL's programs
	as      *syscall.Credential // user of PostgreSQL's processes; nil = the user of this process
	log     io.Writer
	process *process
}

// postgresUser is the superuser of each cluster. It needs no password.
const postgresUser = "postgres"

// makeServer makes an empty database cluster in a folder below dir.
func (p *postgres) makeServer(ctx context.Context, dir string, log io.Writer) error {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return errors.New("PostgreSQL is missing: run tools/realcms/install-packages.sh cms")
	}

	p.bin, p.dir, p.log = filepath.Dir(found[len(found)-1]), filepath.Join(dir, "pg"), log
	if err := p.makeFolder(dir); err != nil {
		return err
	}

	_, err = runToEnd(ctx, p.newCommand("initdb", "--auth=trust", "--username="+postgresUser,
		"--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "-D", p.dataDir()))

	return err
}

func (p *postgres) dataDir() string { return filepath.Join(p.dir, "data") }

// makeFolder makes the cluster's folder. If this process is root, makeFolder gives the folder to
// the user postgres, because PostgreSQL refuses to run as root.
func (p *postgres) makeFolder(dir string) error {
	if err := os.Mkdir(p.dir, 0o700); err != nil || os.Geteuid() != 0 {
		return err
	}

	owner, err := user.Lookup("postgres")
	if err != nil {
		return err
	}

	uid, uidErr := strconv.Atoi(owner.Uid)
	gid, gidErr := strconv.Atoi(owner.Gid)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return err
	}

	p.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}

	return errors.Join(os.Chmod(dir, 0o711), os.Chown(p.dir, uid, gid))
}

// startServer starts the server, for the first time or after killServer, and returns when it
// answers.
//
// The backends of a killed server are in no group with it, and end a moment later. Until then a new
// server refuses to start, so startServer tries several times.
func (p *postgres) startServer(ctx context.Context) (err error) {
	for range 20 {
		p.process, err = startProcess("PostgreSQL",
			p.newCommand("postgres", "-D", p.dataDir(), "-k", p.dir, "-c",
				"listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200"), p.log)
		if err != nil {
			return err
		}

		err = p.process.awaitReady(ctx, func(ctx context.Context) error {
			_, err := p.runSQL(ctx, "postgres", "SELECT 1")
			return err
		})
		if err == nil || !p.process.hasEnded() {
			return err
		}
	}

	return err
}

func (p *postgres) serverProcess() *process { return p.process }

func (p *postgres) newCommand(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, name), args...)
	cmd.Dir = p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.as}
	return cmd
}

// runSQL runs SQL in a database, and returns the rows as lines of text.
func (p *postgres) runSQL(ctx context.Context, database, sql string) (string, error) {
	return runToEnd(ctx, p.newCommand("psql", "--no-psqlrc", "--quiet", "--host="+p.dir,
		"--username="+postgresUser,
		"--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "--command="+sql, database))
}
