package embedded

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// networkTypes are the file systems of a network, by their number in statfs.
var networkTypes = map[int64]string{
	unix.NFS_SUPER_MAGIC: "nfs", unix.SMB_SUPER_MAGIC: "smb", unix.CIFS_SUPER_MAGIC: "cifs",
	unix.SMB2_SUPER_MAGIC: "smb", unix.V9FS_MAGIC: "9p", unix.CEPH_SUPER_MAGIC: "ceph",
	unix.AFS_SUPER_MAGIC: "afs", unix.CODA_SUPER_MAGIC: "coda", unix.NCP_SUPER_MAGIC: "ncp",
	unix.OCFS2_SUPER_MAGIC: "ocfs2", 0x01161970: "gfs2", 0x0BD00BD0: "lustre",
}

// networkFuse are the kinds of FUSE that keep their files on another machine.
var networkFuse = []string{"sshfs", "glusterfs", "s3fs", "gcsfuse", "rclone", "goofys", "blobfuse",
	"blobfuse2", "davfs", "curlftpfs", "cephfs", "mountpoint-s3", "juicefs", "seaweedfs"}

// networkName returns the name of the folder's file system if it is one of a network, or "".
func networkName(dir string) (string, error) {
	var found unix.Statfs_t
	if err := unix.Statfs(dir, &found); err != nil {
		return "", err
	}

	if found.Type != unix.FUSE_SUPER_MAGIC {
		return networkTypes[int64(uint32(found.Type))], nil
	}

	mounts, err := os.Open("/proc/self/mountinfo")
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer mounts.Close()

	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil {
		return "", err
	}

	return fuseName(mounts, strconv.Itoa(int(unix.Major(stat.Dev)))+":"+
		strconv.Itoa(int(unix.Minor(stat.Dev))))
}

// fuseName returns the name of the mounted device in the format of /proc/self/mountinfo if it is a
// FUSE of networkFuse, or "".
func fuseName(mounts io.Reader, device string) (string, error) {
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		mount, rest, _ := strings.Cut(lines.Text(), " - ")
		fields, kinds := strings.Fields(mount), strings.Fields(rest)
		if len(fields) < 5 || len(kinds) < 2 || fields[2] != device {
			continue
		}

		// The type is fuse.NAME, or fuse alone with the program as the source.
		name := strings.TrimPrefix(kinds[0], "fuse.")
		if name == "fuse" {
			name, _, _ = strings.Cut(filepath.Base(kinds[1]), "#")
		}

		for _, known := range networkFuse {
			if name == known {
				return name, nil
			}
		}
	}

	return "", lines.Err()
}
