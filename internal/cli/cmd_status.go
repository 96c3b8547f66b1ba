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
)

const statusHelp = `Tells a message's story so far. With --wait it waits until the message is final, and ends
with 1 when it is dead or cancelled then. --json prints Weir's own answer, in one line.`

const (
	// A message that is waited for is looked at after firstLook, and then after pauses twice
	// as long each, up to lastLook.
	firstLook = 300 * time.Millisecond
	lastLook  = 5 * time.Second
	// awayLimit is how long a Weir that is away is waited for, where no flag says so.
	awayLimit = 5 * time.Minute
)

func (s *shell) statusCommand() *cobra.Command {
	a, wait := &away{shell: s}, waiting{}
	cmd := &cobra.Command{Use: "status ID", Short: "Tell where a message is", Long: statusHelp, Args: cobra.ExactArgs(1)}
	a.flags(cmd)
	addWait(cmd, &wait, "wait until the message is final")
	cmd.RunE = a.runs(func(ctx context.Context, args []string) error { return a.status(ctx, args[0], wait.Duration) })
	return cmd
}

// waiting is how long --wait waits. Without a value it is for ever.
type waiting struct{ time.Duration }

const (
	forever     = "forever"
	foreverTime = 100 * 365 * 24 * time.Hour
)

// Set implements pflag.Value.
func (w *waiting) Set(text string) (err error) {
	if text == forever {
		w.Duration = foreverTime
		return nil
	}
	if w.Duration, err = time.ParseDuration(text); err == nil && w.Duration <= 0 {
		err = errors.New("must be more than nothing")
	}
	return err
}

// Type implements pflag.Value.
func (w *waiting) Type() string { return "duration" }

// String implements pflag.Value.
func (w *waiting) String() string {
	if w.Duration == 0 {
		return ""
	}
	return w.Duration.String()
}

// addWait adds --wait, which may say how long.
func addWait(cmd *cobra.Command, wait *waiting, text string) {
	cmd.Flags().Var(wait, "wait", text+"; --wait=10m for no longer than that")
	cmd.Flags().Lookup("wait").NoOptDefVal = forever
	known := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if wait.Duration == foreverTime && len(args) > 0 {
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

func (a *away) status(ctx context.Context, id string, wait time.Duration) error {
	var m remote.Answer[remote.Message]
	var err error
	if wait > 0 {
		m, err = a.awaitFinal(ctx, id, wait)
	}
	if err == nil && !m.Value.Stage.Final() {
		m, err = a.client.Outlook(ctx, id)
	}
	if err != nil {
		return err
	}
	if a.json {
		a.print("%s", m.JSON)
	} else {
		a.story(&m.Value)
	}
	if stage := m.Value.Stage; wait > 0 && !arrived(stage) {
		return fmt.Errorf("the message is %s", stage)
	}
	return nil
}

// arrived says whether a stage is a good end.
func arrived(s weir.Stage) bool { return s == weir.Delivered || s == weir.Superseded }

// awaitFinal looks at a message until it is final, or the time is over.
func (a *away) awaitFinal(ctx context.Context, id string, limit time.Duration) (m remote.Answer[remote.Message], err error) {
	deadline, patience := time.Now().Add(limit), a.patience(awayLimit)
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
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

// story tells what happened to a message, a line each.
func (a *away) story(m *remote.Message) {
	key := "no key"
	if m.Key != "" {
		key = m.Key
	}
	a.print("Message %s is %s.", plain(m.ID), m.Stage)
	a.print("%s  accepted as %s for %s%s, number %d of lane %d", moment(&m.AcceptedAt), plain(m.Contract), plain(key), versionText(m.Version), m.Sequence, m.Lane)
	if m.DeliverAt != nil {
		a.print("%s  due", moment(m.DeliverAt))
	}
	deeds := deedsOf(m)
	for i, t := range m.AttemptLog {
		if i > 0 && t.Number > m.AttemptLog[i-1].Number+1 {
			a.print("%-20s  … and %s more", "", number(t.Number-m.AttemptLog[i-1].Number-1, "attempt"))
		}
		deeds = a.tell(deeds, &t.At)
		a.print("%s  attempt %d, %s: %s", moment(&t.At), t.Number, time.Duration(t.DurationMS)*time.Millisecond, outcomeText(t))
	}
	deeds = a.tell(deeds, m.FinishedAt)
	a.ended(m)
	a.tell(deeds, nil)
	a.outlook(m)
}

// deed is what an operator did to a message.
type deed struct {
	at   time.Time
	text string
}

// deedsOf gives what is known of that, in order: the last correction, and the last replay,
// unless it came with that correction.
func deedsOf(m *remote.Message) (deeds []deed) {
	asked, force := m.ReplayAskedAt, ""
	if m.ReplayForced {
		force = ", by force"
	}
	if m.Edited != nil {
		text := "corrected"
		if asked == nil || !m.Edited.At.Before(*asked) { // it was that replay
			text, asked = text+force, nil
		}
		deeds = append(deeds, deed{m.Edited.At, text + colon(m.Edited.Note)})
	}
	if asked != nil {
		text := "replayed"
		if m.Stage == weir.Dead && m.FinishedAt != nil && m.FinishedAt.Before(*asked) {
			text = "replay asked for"
		}
		deeds = append(deeds, deed{*asked, text + force})
	}
	return deeds
}

// tell prints the deeds before a moment, nil being the end of time, and gives the others.
func (a *away) tell(deeds []deed, before *time.Time) []deed {
	for len(deeds) > 0 && (before == nil || deeds[0].at.Before(*before)) {
		a.print("%s  %s", moment(&deeds[0].at), deeds[0].text)
		deeds = deeds[1:]
	}
	return deeds
}

// ended tells how a message ended, or when it goes on.
func (a *away) ended(m *remote.Message) {
	if m.FinishedAt != nil {
		text := string(m.Stage)
		switch {
		case m.SupersededBy != "":
			text += " by " + m.SupersededBy
		case m.Stage == weir.Dead:
			text += colon(m.LastError)
		}
		a.print("%s  %s", moment(m.FinishedAt), plain(text))
	} else if m.NextAttemptAt != nil {
		a.print("%s  next attempt", moment(m.NextAttemptAt))
	}
}

// outlook tells what a message waits for, and how often it was replayed.
func (a *away) outlook(m *remote.Message) {
	if m.WaitsFor != "" {
		a.print("It waits for: %s", plain(m.WaitsFor))
	}
	if m.Position > 0 {
		a.print("It is number %d in its key's line.", m.Position)
	}
	if m.ExpectedAt != nil && !m.Stage.Final() {
		a.print("It is expected at %s.", moment(m.ExpectedAt))
	}
	if m.Replays > 0 {
		a.print("Replayed: %s.", number(m.Replays, "time"))
	}
	if m.ReplayRefused != "" {
		a.print("The last replay was refused: %s", plain(m.ReplayRefused))
	}
}

func versionText(version string) string {
	if version == "" {
		return ""
	}
	return ", version " + plain(version)
}

// outcomeText says what an attempt came to.
func outcomeText(t remote.Attempt) string {
	text := string(t.Outcome)
	if status := strconv.Itoa(t.Status); t.Status != 0 && !strings.HasPrefix(t.Reason, status) {
		text += ", " + status
	}
	return text + colon(t.Reason)
}

// colon puts text behind a colon; nothing when there is none.
func colon(text string) string {
	if text = strings.TrimSpace(plain(text)); text == "" {
		return ""
	}
	return ": " + text
}
