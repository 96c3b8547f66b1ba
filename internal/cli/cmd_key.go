package cli

import (
	"github.com/spf13/cobra"

	"weir/internal/door"
)

const keyHelp = `Makes keys for the command weir serve. Give the key to a caller, and put its hash
into weir.yaml, under the names of the functions that the key opens. A function can have two keys, so
that callers can change to a new one before the old one is removed.

  keys:
    receive: [HASH]
    view: [HASH, NEXT-HASH]`

func newKeyCommand(s *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Make keys for weir serve",
		Long:  keyHelp,
		Args:  refuseUnknownCommand,
		RunE: func(*cobra.Command, []string) error {
			return &usageError{"give new: `weir key new` prints a key, and its hash for weir.yaml"}
		},
	}

	var asJSON bool
	create := &cobra.Command{
		Use:   "new",
		Short: "Print a new key, and the hash for weir.yaml",
		Long:  keyHelp,
		Args:  cobra.NoArgs,
	}

	addJSONFlag(create, &asJSON)
	create.RunE = func(*cobra.Command, []string) error {
		key := door.NewKey()
		hash := door.HashKey(key).String()
		if asJSON {
			return s.printJSON(struct {
				Key  string `json:"key"`
				Hash string `json:"sha256"`
			}{key, hash})
		}

		s.printLine("key     %s\nsha256  %s", key, hash)

		return nil
	}

	cmd.AddCommand(create)

	return cmd
}
