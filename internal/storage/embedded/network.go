package embedded

import "fmt"

// refuseNetwork refuses a folder on a network file system: its locks and syncs do not hold as the
// store needs them, and two machines could write to one file.
func refuseNetwork(dir string) error {
	name, err := networkName(dir)
	switch {
	case err != nil:
		return fmt.Errorf("find out the file system: %w", err)
	case name != "":
		return fmt.Errorf("the folder is on a network file system (%s), which keeps neither locks nor "+
			"syncs as a database needs them: take a folder on a disk of this machine", name)
	}

	return nil
}
