package cli

import (
	"errors"
	"time"

	"github.com/spf13/pflag"
)

// durationFlag is a pflag.Value for a duration. Its error names the units of durations; the error
// of pflag's own duration flag does not.
type durationFlag struct{ value *time.Duration }

// addDurationFlag adds a flag with the default in the parameter "usual". The help shows the default
// unless it is 0.
func addDurationFlag(flags *pflag.FlagSet, value *time.Duration, name string, usual time.Duration,
	usage string) {
	*value = usual
	flags.Var(durationFlag{value}, name, usage)
}

// Set implements pflag.Value.
func (f durationFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return errDuration
	}
	*f.value = d
	return nil
}

var errDuration = errors.New("give a number with its unit, like 90s, 30m or 2h")

// String implements pflag.Value. For 0 it returns "", so that the help shows no default.
func (f durationFlag) String() string {
	if f.value == nil || *f.value == 0 {
		return ""
	}
	return f.value.String()
}

// Type implements pflag.Value.
func (f durationFlag) Type() string { return "duration" }
