package cli

import (
	"context"

	"github.com/spf13/cobra"

	"weir/internal/remote"
	"weir/internal/wire"
)

const (
	versionsHelp = `Shows the newest delivered version of a key, for each contract with supersede. Messages of the key with
older versions are superseded. After a version that is too high by mistake (milliseconds for seconds), all later
messages of the key are superseded. Then forget that version by
  weir versions forget KEY --contract NAME`

	noVersionsText = "No version of this key is recorded. Weir records them for contracts with supersede."

	forgetHelp = `Forgets the newest delivered version of a key and contract, within about a second: the next version is
delivered, whatever its number. Messages that were superseded before that stay superseded: send them again.`
)

func newVersionsCommand(s *console) *cobra.Command {
	a := &apiCommand{console: s}
	var contract string
	cmd := &cobra.Command{Use: "versions KEY",
		Short: "Show or forget the delivered versions of a key",
		Long:  versionsHelp, Args: requireArguments(1, 1, "an ordering key")}
	a.addFlags(cmd)
	cmd.PersistentFlags().StringVar(&contract, "contract", "", "only this contract")
	cmd.RunE = a.wrapRun(func(ctx context.Context, args []string) error {
		list, err := a.client.Versions(ctx, args[0], contract)
		return a.printVersions(list, err)
	})

	forget := &cobra.Command{Use: "forget KEY", Short: "Forget the delivered version of a key",
		Long: forgetHelp, Args: requireArguments(1, 1, "an ordering key")}
	forget.RunE = a.wrapRun(func(ctx context.Context, args []string) error {
		if contract == "" {
			return &usageError{"--contract is needed"}
		}
		list, err := a.client.ForgetVersion(ctx, args[0], contract)
		return a.printVersions(list, err)
	})

	cmd.AddCommand(forget)

	return cmd
}

func (a *apiCommand) printVersions(list remote.Answer[wire.VersionList], err error) error {
	if err != nil {
		return err
	}

	if a.json {
		a.printLine("%s", list.JSON)
		return nil
	}

	rows := [][]string{{"CONTRACT", "VERSION", "MESSAGE", "WARNING"}}
	for _, v := range list.Value.Versions {
		rows = append(rows, []string{v.Contract, v.Version, v.MessageID, v.Warning})
	}

	return a.printRows(rows, noVersionsText, true)
}
