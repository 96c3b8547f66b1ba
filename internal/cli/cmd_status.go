package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/clock"
	"weir/internal/remote"
	"weir/internal/weir"
	"weir/internal/wire"
)

const statusHelp = `Prints the history of a message. If the CMS was away before the first attempt, it prints that. For a
waiting message it also prints the reason, and when the message is expected to be delivered. ID may
also be the address of the message, which is the Location of the answer to its post.

--wait waits until the message is final. The command then ends with 1 if the message is dead,
cancelled or discarded, or if it is still not final after the time of --wait.

--json prints the answer of the API in one line.`

const (
	// With --wait the command reads the message's state repeatedly. The first pause between two
	// reads is firstPollPause. Each further pause is twice as long, up to lastPollPause.
	firstPollPause = 300 * time.Millisecond
	lastPollPause  = 5 * time.Second
	// unavailableLimit is the time after which a series of requests ends with an error if Weir
	// stays unavailable. The posts of the command "send" use --give-up instead.
	unavailableLimit = 5 * time.Minute
)

func newStatusCommand(s *console) *cobra.Command {
	a, wait := &apiCommand{console: s}, waitFlag{}
	cmd := &cobra.Command{Use: "status ID", Short: "Show the state of a message", Long: statusHelp,
		Args: requireArguments(1, 1, "a message's id")}
	a.addFlags(cmd)
	addWaitFlag(cmd, &wait, "wait until the message is final")
	cmd.RunE = a.wrapRun(func(ctx context.Context, args []string) error {
		id, err := parseMessageID(args[0])
		if err != nil {
			return err
		}
		return a.showStatus(ctx, id, wait.Duration)
	})

	return cmd
}

// waitFlag is the value of --wait: the longest time to wait. 0 means that the flag is not given;
// foreverDuration means that the flag has no value, or the value "forever".
type waitFlag struct{ time.Duration }

const (
	forever         = "forever"
	foreverDuration = 100 * 365 * 24 * time.Hour
)

// Set implements pflag.Value.
func (w *waitFlag) Set(text string) (err error) {
	if text == forever {
		w.Duration = foreverDuration
		return nil
	}

	if w.Duration, err = time.ParseDuration(text); err != nil {
		err = errDuration
	} else if w.Duration <= 0 {
		err = errors.New("must be more than nothing")
	}

	return err
}

// Type implements pflag.Value.
func (w *waitFlag) Type() string { return "duration" }

// String implements pflag.Value.
func (w *waitFlag) String() string {
	if w.Duration == 0 {
		return ""
	}
	return w.Duration.String()
}

// addWaitFlag adds --wait, whose optional value must follow "=". So in "--wait 10m" the text 10m is
// an argument of the command. After --wait without a value, the command refuses a first argument
// that is a duration: the user probably meant --wait=10m. If a file has this name, the command
// accepts the argument, because some commands take files.
func addWaitFlag(cmd *cobra.Command, wait *waitFlag, text string) {
	cmd.Flags().Var(wait, "wait", text+"; --wait=10m for no longer than that")
	cmd.Flags().Lookup("wait").NoOptDefVal = forever
	known := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if wait.Duration == foreverDuration && len(args) > 0 {
			if _, err := time.ParseDuration(args[0]); err == nil && !isFile(args[0]) {
				return fmt.Errorf("--wait takes its value with '=': --wait=%s", args[0])
			}
		}
		return known(cmd, args)
	}
}

func isFile(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// showStatus prints the state of a message. If the parameter "wait" is more than 0, showStatus
// first waits until the message is final, or until this time is over. After the wait, each stage
// except delivered and superseded is an error.
func (a *apiCommand) showStatus(ctx context.Context, id string, wait time.Duration) error {
	var m remote.Answer[wire.Message]
	var err error
	if wait > 0 {
		m, err = a.awaitFinal(ctx, id, wait)
	}

	if err == nil {
		m, err = a.client.Outlook(ctx, id)
	}

	if err != nil {
		return err
	}

	if a.json {
		a.printLine("%s", m.JSON)
	} else {
		a.printStory(&m.Value)
	}

	switch stage := m.Value.Stage; {
	case wait == 0 || isGoodEnd(stage):
		return nil
	case !stage.Final():
		return fmt.Errorf("the message is still %s after %s", stage, wait)
	default:
		return fmt.Errorf("the message is %s", stage)
	}
}

// isGoodEnd reports whether the message, or a newer version in its place, was delivered.
func isGoodEnd(s weir.Stage) bool { return s == weir.Delivered || s == weir.Superseded }

// awaitFinal reads a message repeatedly until the message is final or the time limit is over. It
// returns the last answer.
func (a *apiCommand) awaitFinal(ctx context.Context, id string, limit time.Duration) (
	m remote.Answer[wire.Message], err error) {
	deadline, patience := time.Now().Add(limit), a.newPatience(unavailableLimit)
	for pause := firstPollPause; ; pause = min(2*pause, lastPollPause) {
		err = patience.Do(ctx, func(ctx context.Context) error {
			m, err = a.client.Message(ctx, id)
			return err
		})

		left := time.Until(deadline)
		if err != nil || m.Value.Stage.Final() || left <= 0 {
			return m, err
		}
		if !clock.Sleep(ctx, min(pause, left)) {
			return m, ctx.Err()
		}
	}
}

// printStory prints the history and the forecast of a message.
func (a *apiCommand) printStory(m *wire.Message) {
	key := "no key"
	if m.Key != "" {
		key = m.Key
	}

	a.printLine("Message %s is %s.", sanitizeText(m.ID), m.Stage)
	from := ""
	if m.Upstream != "" {
		from = " from " + sanitizeText(m.Upstream)
	}

	a.printLine("%s  accepted%s as %s for %s%s, number %d of lane %d",
		formatTime(m.AcceptedAt), from,
		sanitizeText(m.Contract), sanitizeText(key), formatVersion(m.Version), m.Sequence, m.Lane)
	if !m.DeliverAt.IsZero() {
		a.printLine("%s  due", formatTime(m.DeliverAt))
	}

	actions := listActions(m)
	for i, t := range m.AttemptLog {
		if i > 0 && t.Number > m.AttemptLog[i-1].Number+1 {
			left := t.Number - m.AttemptLog[i-1].Number - 1
			a.printLine("%-20s  … and %s more", "", formatCount(left, "attempt"))
		}

		actions = a.printActions(actions, t.At)
		if past := m.Uncounted.Sentence(); i == 0 && past != "" {
			a.printLine("%-20s  %s", "", past)
		}

		if t.Number == 0 || i > 0 && t.Number == m.AttemptLog[i-1].Number {
			a.printLine("%s  not counted: %s", formatTime(t.At), formatOutcome(t))
		} else {
			a.printLine("%s  attempt %d, %s: %s", formatTime(t.At), t.Number,
				time.Duration(t.Duration), formatOutcome(t))
		}

		a.printSteps(t.Steps)
	}

	actions = a.printActions(actions, m.FinishedAt)
	a.printEnd(m)
	a.printActions(actions, time.Time{})
	a.printForecast(m)
}

func (a *apiCommand) printSteps(steps []wire.Step) {
	for _, s := range steps {
		status := "no answer"
		if s.Status != 0 {
			status = strconv.Itoa(s.Status)
		}

		again := ""
		if s.Reason != "" {
			again = ", then again from the first step: " + sanitizeText(s.Reason)
		}

		a.printLine("%-20s  step %s, %s: %s%s", "", sanitizeText(s.Name), time.Duration(s.Duration),
			status, again)
	}
}

// operatorAction is an edit or a replay of a message by an operator.
type operatorAction struct {
	at   time.Time
	text string
}

// listActions returns the last edit and the last replay, the earlier one first. An edit includes a
// replay; if no further replay followed, listActions returns only the edit.
func listActions(m *wire.Message) (actions []operatorAction) {
	asked, force := m.ReplayAskedAt, ""
	if m.ReplayForced {
		force = ", by force"
	}

	if m.Edited.Exists() {
		text := "corrected"
		if asked.IsZero() || !m.Edited.At.Before(asked) {
			text, asked = text+force, time.Time{}
		}
		actions = append(actions, operatorAction{m.Edited.At, text + afterColon(m.Edited.Note)})
	}

	if !asked.IsZero() {
		text := "replayed"
		if m.Stage == weir.Dead && !m.FinishedAt.IsZero() && m.FinishedAt.Before(asked) {
			text = "replay requested"
		}
		actions = append(actions, operatorAction{asked, text + force})
	}

	return actions
}

// printActions prints the actions before a time, and returns the remaining actions. The zero time
// means no limit.
func (a *apiCommand) printActions(actions []operatorAction, before time.Time) []operatorAction {
	for len(actions) > 0 && (before.IsZero() || actions[0].at.Before(before)) {
		a.printLine("%s  %s", formatTime(actions[0].at), actions[0].text)
		actions = actions[1:]
	}
	return actions
}

// printEnd prints the final stage of a message, or the time of the next attempt.
func (a *apiCommand) printEnd(m *wire.Message) {
	if !m.DiedAt.IsZero() {
		a.printLine("%s  %s", formatTime(m.DiedAt), sanitizeText("dead"+afterColon(m.LastError)))
	}

	if !m.FinishedAt.IsZero() {
		text := string(m.Stage)
		switch {
		case m.SupersededBy != "":
			text += " by " + m.SupersededBy
		case m.Stage == weir.Dead:
			text += afterColon(m.LastError)
		case m.Stage == weir.Discarded:
			text += afterColon(m.DiscardReason)
		}

		a.printLine("%s  %s", formatTime(m.FinishedAt), sanitizeText(text))
	} else if !m.NextAttemptAt.IsZero() {
		a.printLine("%s  next attempt", formatTime(nextAttemptAt(m)))
		if !m.RetriesUntil.IsZero() {
			a.printLine("%s  until then at least it is tried again", formatTime(m.RetriesUntil))
		}
	}
}

// nextAttemptAt returns the one time at which a message is expected to be sent again. The message's
// own retry can be due while a pause or an earlier message of its key still holds it up; then the
// forecast counts.
func nextAttemptAt(m *wire.Message) time.Time {
	if m.ExpectedAt.After(m.NextAttemptAt) {
		return m.ExpectedAt
	}
	return m.NextAttemptAt
}

func (a *apiCommand) printForecast(m *wire.Message) {
	if m.WaitsFor != "" {
		a.printLine("It waits for: %s", sanitizeText(m.WaitsFor))
	}

	if m.Position > 0 {
		a.printLine("It is number %d in line for its key.", m.Position)
	}

	if !m.ExpectedAt.IsZero() && m.NextAttemptAt.IsZero() && !m.Stage.Final() {
		a.printLine("It is expected at %s.", formatTime(m.ExpectedAt))
	}

	if m.Replays > 0 {
		a.printLine("Replayed: %s.", formatCount(m.Replays, "time"))
	}

	if m.ReplayRefused != "" {
		a.printLine("The last replay was refused: %s", sanitizeText(m.ReplayRefused))
	}
}

func formatVersion(version string) string {
	if version == "" {
		return ""
	}
	return ", version " + sanitizeText(version)
}

func formatOutcome(t wire.Attempt) string {
	text := string(t.Outcome)
	if status := strconv.Itoa(t.Status); t.Status != 0 && !strings.HasPrefix(t.Reason, status) {
		text += ", " + status
	}
	return text + afterColon(t.Reason)
}

// afterColon returns ": " and the text, made safe for a terminal. For an empty text it returns "".
func afterColon(text string) string {
	if text = strings.TrimSpace(sanitizeText(text)); text == "" {
		return ""
	}
	return ": " + text
}
