package cli

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// refuseUnknownCommand is the check of arguments of a command that has subcommands and takes no arguments. Its error
// suggests the subcommands with a name like the first argument.
func refuseUnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return &usageError{text}
}

// suggestFlag adds the most similar flag of a command to the error for an unknown flag. It returns other errors
// unchanged.
func suggestFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	given, nearest, distance := unknown.GetSpecifiedName(), "", 3 // a suggestion differs in at most two letters
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if d := levenshtein.ComputeDistance(given, f.Name); d < distance && d < len(given) {
			nearest, distance = f.Name, d
		}
	})
	if nearest == "" {
		return err
	}
	return &usageError{err.Error() + "; did you mean --" + nearest + "?"}
}

// messageIDPattern matches all ids, and other texts that are one segment of an address. With a text that it does not
// match, such as an empty one, a request could go to an address that is not a message's.
var messageIDPattern = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// parseMessageID returns the id that an argument names. The argument is an id or the address of a message, such as the
// Location of a 202. For any other argument the error is a *usageError.
func parseMessageID(argument string) (string, error) {
	id := argument
	if u, err := url.Parse(argument); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
		if _, rest, found := strings.Cut(u.Path, "/messages/"); found {
			id, _, _ = strings.Cut(rest, "/")
		}
	}
	if !messageIDPattern.MatchString(id) {
		shown, _, _ := strings.Cut(argument, "?") // the query may have a function key
		return "", &usageError{fmt.Sprintf("%q is neither a message's id nor its address", shown)}
	}
	return id, nil
}

// parseMessageIDs parses all arguments with parseMessageID. If one of them is wrong, it returns an error, and the
// command changes no message.
func parseMessageIDs(arguments []string) ([]string, error) {
	ids := make([]string, len(arguments))
	for i, a := range arguments {
		id, err := parseMessageID(a)
		if err != nil {
			return nil, err
		}
		ids[i] = id
	}
	return ids, nil
}

// scheduleNamePattern matches the names that schedules may have. For any other name the host answers 404, because no
// function has that address. The client would report that answer as "there is no Weir at this address".
var scheduleNamePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// requireScheduleName returns the check of requireArguments for a command whose first argument is a schedule's name.
// The check also refuses a name that no schedule can have.
func requireScheduleName(least, most int, expected string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := requireArguments(least, most, expected)(cmd, args); err != nil {
			return err
		}
		if !scheduleNamePattern.MatchString(args[0]) || args[0] == "." || args[0] == ".." {
			return fmt.Errorf("%q is no schedule's name: it has 1 to 64 of a-z, A-Z, 0-9, dot, underscore and hyphen",
				args[0])
		}
		return nil
	}
}

// requireArguments returns a check that a command has at least `least` and at most `most` arguments; a negative `most`
// means no limit. The text expected names the arguments in the error.
func requireArguments(least, most int, expected string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			return fmt.Errorf("give %s: got %s", expected, formatCount(len(args), "argument"))
		}
		return nil
	}
}
