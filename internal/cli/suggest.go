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

// refuseUnknownCommand is a cobra.PositionalArgs that refuses any argument as an unknown
// subcommand. The error suggests subcommands with a similar name.
func refuseUnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}

	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); !cmd.HasParent() && usualWords[args[0]] != "" {
		text += "; did you mean " + usualWords[args[0]] + "?"
	} else if len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}

	return &usageError{text}
}

// usualWords maps words for a task that is not a command of the root to the command for this task.
var usualWords = map[string]string{
	"replay": "dead replay", "retry": "dead replay", "resend": "dead replay",
	"redeliver": "dead replay",
	"errors":    "dead list --errors", "error": "dead list --errors", "failed": "dead list",
	"show": "status or dead show", "get": "status", "search": "list", "find": "list",
	"post":     "send",
	"validate": "check", "delete": "discard or erase", "lane": "lanes",
}

// suggestFlag adds the most similar flag of cmd to an error about an unknown flag. It returns other
// errors unchanged.
func suggestFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}

	// a suggestion differs in at most two letters
	given, nearest, distance := unknown.GetSpecifiedName(), "", 3
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

// messageIDPattern matches every message id. A text that does not match, such as "" or "..", would
// change the path of a request.
var messageIDPattern = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// parseMessageID returns the id of a message. The argument is the id or the message's address, such
// as the Location of a 202 answer.
func parseMessageID(argument string) (string, error) {
	id := argument
	if u, err := url.Parse(argument); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
		if _, rest, found := strings.Cut(u.Path, "/messages/"); found {
			id, _, _ = strings.Cut(rest, "/")
		}
	}

	if !messageIDPattern.MatchString(id) {
		shown, _, _ := strings.Cut(argument, "?") // the query may contain a function key
		return "", &usageError{fmt.Sprintf("%q is neither a message's id nor its address", shown)}
	}

	return id, nil
}

// parseMessageIDs returns the ids of messages. If any argument is wrong, parseMessageIDs returns
// only an error, so the command changes no message.
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

// scheduleNamePattern matches the names that schedules can have. For any other name, the host would
// answer 404, and the client would report that there is no Weir at the address.
var scheduleNamePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// requireScheduleName returns a check of arguments. The check calls the check of requireArguments.
// Then it refuses the arguments if args[0] cannot be the name of a schedule.
func requireScheduleName(least, most int, expected string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := requireArguments(least, most, expected)(cmd, args); err != nil {
			return err
		}

		if !scheduleNamePattern.MatchString(args[0]) || args[0] == "." || args[0] == ".." {
			return fmt.Errorf(
				"%q is no schedule's name: it has 1 to 64 of a-z, A-Z, 0-9, dot, underscore and hyphen",
				args[0])
		}

		return nil
	}
}

// requireArguments returns a check of the number of arguments. The limits are the parameters
// "least" and "most"; a negative "most" means no limit. The error describes the arguments with the
// text in "expected".
func requireArguments(least, most int, expected string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			return fmt.Errorf("give %s: got %s", expected, formatCount(len(args), "argument"))
		}
		return nil
	}
}
