package cli

import (
	"errors"
	"time"

	"github.com/spf13/pflag"
)

// durationFlag is a flag whose value is a length of time. Its error names the units; the error of pflag's own flag for
// a duration does not.
type durationFlag struct{ value *time.Duration }

func addDurationFlag(flags *pflag.FlagSet, value *time.Duration, name string, usual time.Duration, usage string) {
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

// String implements pflag.Value. It returns "" for no time, so that the help shows no default.
func (f durationFlag) String() string {
	if f.value == nil || *f.value == 0 {
		return ""
	}
	return f.value.String()
}

// Type implements pflag.Value.
func (f durationFlag) Type() string { return "duration" }
