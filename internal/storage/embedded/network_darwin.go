package embedded

import "golang.org/x/sys/unix"

// networkName returns the name of the folder's file system if it is one of a network, or "".
func networkName(dir string) (string, error) {
	var found unix.Statfs_t
	if err := unix.Statfs(dir, &found); err != nil {
		return "", err
	}

	if found.Flags&unix.MNT_LOCAL != 0 {
		return "", nil
	}

	return unix.ByteSliceToString(found.Fstypename[:]), nil
}
