package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"weir/internal/app"
	"weir/internal/settings"
)

const backupHelp = `Writes a copy of everything that a folder of weir serve stores to a new file, also while weir serve
runs. The copy is the state at one moment. It has no bytes of messages that were erased before;
messages that are erased later stay in it. The folder needs free space for one more copy.`

const restoreHelp = `Makes a folder for weir serve from a file that weir backup wrote. The folder must not have a store.
The file is checked first. Then run weir verify, and start weir serve.`

func newBackupCommand(s *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the folder of weir serve to a file",
		Long:  backupHelp,
		Args:  cobra.ExactArgs(1),
	}

	s.addDataFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir, err := s.dataFolder()
		if err != nil {
			return err
		}

		size, err := app.BackUpFolder(cmd.Context(), dir, args[0])
		if err != nil {
			return asFailure(err, false)
		}

		s.printLine("%s: %d bytes", args[0], size)

		return nil
	}

	return cmd
}

func newRestoreCommand(s *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make a folder for weir serve from a back-up",
		Long:  restoreHelp,
		Args:  cobra.ExactArgs(1),
	}

	s.addDataFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		dir, err := s.dataFolder()
		if err != nil {
			return err
		}

		if err := app.RestoreFolder(dir, args[0]); err != nil {
			return asFailure(err, false)
		}

		s.printLine("%s is restored", dir)

		return nil
	}

	return cmd
}

// dataFolder returns the folder that the flag or the environment names.
func (s *console) dataFolder() (string, error) {
	if dir := s.env(settings.DataVariable); dir != "" {
		return dir, nil
	}
	return "", &usageError{"name the folder: --data DIR, or " + settings.DataVariable}
}

var errDamagedFolder = errors.New("the store of the folder is damaged: restore a back-up")
