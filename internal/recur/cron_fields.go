package recur

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// cronField is the grammar of one field of a cron expression.
type cronField struct {
	name     string
	min, max int
	names    []string // names of the values from min on; nil = the field has only numbers
	example  string   // of a name
}

var cronFields = []cronField{
	{name: "second", max: 59}, {name: "minute", max: 59}, {name: "hour", max: 23},
	{name: "day of month", min: 1, max: 31},
	{name: "month", min: 1, max: 12, example: "jan",
		names: strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{name: "day of week", max: 7, example: "mon",
		names: strings.Fields("sun mon tue wed thu fri sat")},
}

// checkCron checks a cron expression by a grammar of Weir's own. The library also accepts slips
// such as *-5, which it reads as *, and its errors name options of the library that the reader
// cannot set.
func checkCron(text string) error {
	if strings.HasPrefix(text, "@") {
		return checkDescriptor(text)
	}

	given := strings.Fields(text)
	fields := cronFields
	switch len(given) {
	case len(cronFields):
	case len(cronFields) - 1:
		fields = cronFields[1:]
	default:
		return fmt.Errorf("five fields are needed (minute, hour, day of month, month, day of week), "+
			"or six with the second in front; there are %d", len(given))
	}

	for i, f := range fields {
		for entry := range strings.SplitSeq(given[i], ",") {
			if err := f.checkEntry(entry); err != nil {
				return fmt.Errorf("%s %.40q: %w", f.name, given[i], err)
			}
		}
	}

	return nil
}

func checkDescriptor(text string) error {
	if strings.HasPrefix(text, everyPrefix) {
		return nil // see parseEvery
	}

	switch text {
	case "@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually":
		return nil
	}

	return fmt.Errorf("there is no %.40q; possible are @hourly, @daily, @weekly, @monthly, @yearly and @every 90s",
		text)
}

// cronNumber matches a number in a field. A + or - in front of it would be a slip.
var cronNumber = regexp.MustCompile(`^[0-9]{1,4}$`)

// checkEntry checks an entry between two commas: a value, a range or *, each with or without a
// step.
func (f cronField) checkEntry(entry string) error {
	span, stepText, hasStep := strings.Cut(entry, "/")
	low, high, isRange := strings.Cut(span, "-")
	if entry == "" {
		return errors.New("there is no value between two commas")
	}

	from, to := f.min, f.max
	switch isAny := low == "*" || low == "?"; {
	case isAny && isRange:
		return fmt.Errorf("a range begins with a value; for every %s-th value write */%[1]s", high)
	case !isAny:
		var err error
		if from, err = f.readValue(low); err != nil {
			return err
		}

		if !hasStep {
			to = from
		}

		if isRange {
			if to, err = f.readValue(high); err != nil {
				return err
			}
		}
	}

	if !hasStep {
		return nil
	}

	size := to - from + 1
	if size < 1 { // the range goes over the end of the field, such as 22-2
		size += f.max - f.min + 1
	}

	step, err := strconv.Atoi(stepText)
	if err != nil || !cronNumber.MatchString(stepText) || step < 1 {
		return fmt.Errorf("the step %.20q is not a number above 0", stepText)
	}
	if step > 1 && step >= size {
		return fmt.Errorf("the step %d leaves only the first of %d values", step, size)
	}

	return nil
}

// readValue returns the number for a value, which can be a name.
func (f cronField) readValue(text string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.min + i, nil
		}
	}

	n, err := strconv.Atoi(text)
	if err == nil && cronNumber.MatchString(text) && n >= f.min && n <= f.max {
		return n, nil
	}

	wanted := fmt.Sprintf("a number from %d to %d", f.min, f.max)
	if f.example != "" {
		wanted += " or a name such as " + f.example
	}

	if strings.ContainsAny(text, "LW#H") {
		wanted += "; Weir does not know L, W, # and H"
	}

	return 0, fmt.Errorf("%.20q is not %s", text, wanted)
}
