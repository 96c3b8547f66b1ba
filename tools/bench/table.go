package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

func printTable(out io.Writer, results []result) {
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "scenario\tvalue\tyardstick\tratio\ttarget\treached\t")

	for _, r := range results {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Name, formatQuantity(new(r.Value), r.Unit),
			formatQuantity(r.Baseline, r.Unit), formatQuantity(r.Ratio, ""), r.Rule,
			r.formatVerdict())
	}

	w.Flush()
	fmt.Fprintln(out)

	for _, r := range results {
		if r.Note != "" {
			fmt.Fprintf(out, "%s: %s\n", r.Name, r.Note)
		}
	}
}

// formatLine returns a row as one line of text for the bench's output.
func (r result) formatLine() string {
	return fmt.Sprintf("%s: %s, yardstick %s, ratio %s, %s %s", r.Name,
		formatQuantity(new(r.Value), r.Unit),
		formatQuantity(r.Baseline, r.Unit), formatQuantity(r.Ratio, ""), r.Rule, r.formatVerdict())
}

// formatVerdict returns the row's error, if there is one. Else it returns "yes" or "NO" for a row
// with a target, and a dash for a row without a target.
func (r result) formatVerdict() string {
	switch {
	case r.Error != "":
		return "ERROR: " + r.Error
	case r.OK == nil:
		return "–"
	case *r.OK:
		return "yes"
	}

	return "NO"
}

// formatQuantity returns a number with its unit. A larger number has fewer decimals. For nil,
// formatQuantity returns a dash.
func formatQuantity(v *float64, unit string) string {
	if v == nil {
		return "–"
	}

	digits := 3
	switch {
	case *v >= 1000:
		digits = 0
	case *v >= 100:
		digits = 1
	case *v >= 10:
		digits = 2
	}

	text := fmt.Sprintf("%.*f", digits, *v)
	if unit != "" {
		text += " " + unit
	}

	return text
}

func writeJSON(path string, results []result) error {
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return fmt.Errorf("rows as JSON: %w", err)
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
