package embedded

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

// networkName returns the name of the folder's share if it is on a network, or "".
func networkName(dir string) (string, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}

	volume := filepath.VolumeName(path)
	if strings.HasPrefix(volume, `\\`) && !strings.HasPrefix(volume, `\\?\`) &&
		!strings.HasPrefix(volume, `\\.\`) {
		return volume, nil
	}

	root, err := windows.UTF16PtrFromString(volume + `\`)
	if err != nil {
		return "", err
	}
	if windows.GetDriveType(root) == windows.DRIVE_REMOTE {
		return volume, nil
	}

	return "", nil
}
