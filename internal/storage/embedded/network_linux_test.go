package embedded

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNetworkTypes(t *testing.T) {
	t.Parallel()
	for _, kind := range []int64{unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC,
		unix.V9FS_MAGIC} {
		if networkTypes[kind] == "" {
			t.Errorf("the type %x is not refused, want it refused", kind)
		}
	}

	if name, err := networkName(t.TempDir()); err != nil || name != "" {
		t.Errorf("got %q, %v for a folder of the tests, want no network", name, err)
	}

	if name, err := networkName("/proc"); err != nil || name != "" {
		t.Errorf("got %q, %v for /proc, want no network", name, err)
	}
}

func TestFuseName(t *testing.T) {
	t.Parallel()
	const mounts = `26 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
91 26 0:45 / /mnt/remote rw,nosuid shared:2 - fuse.sshfs user@host:/data rw,user_id=0
92 26 0:46 / /mnt/bucket rw,nosuid - fuse s3fs rw,user_id=0
93 26 0:47 / /mnt/ntfs rw,relatime - fuseblk /dev/sdb1 rw,user_id=0
94 26 0:48 / /mnt/local rw,relatime - fuse.mergerfs a:b rw
`

	for device, want := range map[string]string{"0:45": "sshfs", "0:46": "s3fs", "0:47": "",
		"0:48": "", "8:1": "", "9:9": ""} {
		got, err := fuseName(strings.NewReader(mounts), device)
		if err != nil || got != want {
			t.Errorf("device %s: got %q, %v, want %q", device, got, err, want)
		}
	}
}
