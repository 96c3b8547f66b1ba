package cli

import (
	"runtime"

	"github.com/spf13/cobra"

	"weir/internal/app"
)

func newVersionCommand(s *console) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "version", Short: "Print version, commit and Go version",
		Args: cobra.NoArgs}
	addJSONFlag(cmd, &asJSON)
	cmd.RunE = func(*cobra.Command, []string) error {
		v := app.ReadBuild()
		if asJSON {
			return s.printJSON(struct {
				Version string `json:"version"`
				Commit  string `json:"commit"`
				Go      string `json:"go"`
				OS      string `json:"os"`
				Arch    string `json:"arch"`
			}{v.Version, v.Commit, runtime.Version(), runtime.GOOS, runtime.GOARCH})
		}

		s.printLine("weir %s\ncommit %s\n%s %s/%s", v.Version, v.Commit, runtime.Version(),
			runtime.GOOS, runtime.GOARCH)
		return nil
	}

	return cmd
}
