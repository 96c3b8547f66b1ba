package cli

import (
	"context"

	"github.com/spf13/cobra"

	"weir/internal/remote"
	"weir/internal/wire"
)

const (
	rememberedHelp = `Shows the CMS's id of a key's item, for each contract whose steps remember it. The next message is written
to this item without a look-up. If it is the wrong item, forget the id by
  weir remembered forget KEY --contract NAME`

	forgetRememberedHelp = `Forgets the CMS's id of a key and contract, within about a second: the next message looks its item up. An
item that the look-up does not show is created again.`
)

func newRememberedCommand(s *console) *cobra.Command {
	a := &apiCommand{console: s}
	var contract string
	cmd := &cobra.Command{Use: "remembered KEY",
		Short: "Show or forget the CMS's id of a key's item",
		Long:  rememberedHelp, Args: requireArguments(1, 1, "an ordering key")}
	a.addFlags(cmd)
	cmd.PersistentFlags().StringVar(&contract, "contract", "", "only this contract")
	cmd.RunE = a.wrapRun(func(ctx context.Context, args []string) error {
		list, err := a.client.Remembered(ctx, args[0], contract)
		return a.printRemembered(list, err)
	})

	forget := &cobra.Command{Use: "forget KEY", Short: "Forget the CMS's id of a key's item",
		Long: forgetRememberedHelp, Args: requireArguments(1, 1, "an ordering key")}
	forget.RunE = a.wrapRun(func(ctx context.Context, args []string) error {
		if contract == "" {
			return &usageError{"--contract is needed"}
		}
		list, err := a.client.ForgetRemembered(ctx, args[0], contract)
		return a.printRemembered(list, err)
	})

	cmd.AddCommand(forget)

	return cmd
}

func (a *apiCommand) printRemembered(list remote.Answer[wire.RememberedList], err error) error {
	if err != nil {
		return err
	}

	if a.json {
		a.printLine("%s", list.JSON)
		return nil
	}

	rows := [][]string{{"CONTRACT", "ID"}}
	for _, r := range list.Value.Remembered {
		rows = append(rows, []string{r.Contract, r.ID})
	}

	return a.printRows(rows, "No id of this key is remembered.", true)
}
