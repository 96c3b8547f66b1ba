// Command structure measures the shape of Weir's code: how many files and functions one message
// passes, how many lines the program has, and how they are laid out. It prints a table. Two
// revisions compare if the same version of this command measures both:
//
//	go run -C tools ./structure                        # this tree
//	go run -C tools ./structure -dir ../build/previous # another one
//	go run -C tools ./structure -trace=false           # no run of the program
//	go run -C tools ./structure -list                  # also the names behind each number
//
// Product code is each package of the module weir, except those that consist of helpers of tests
// (isTestSupport), without the files of tests and without generated files.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	dir := flag.String("dir", "..", "root of the tree to measure")
	hasTrace := flag.Bool("trace", true,
		"build and run the program, to count what one message passes")
	isLong := flag.Bool("list", false, "list the names behind the numbers")
	flag.Parse()

	if err := measure(ctx, *dir, *hasTrace, *isLong); err != nil {
		fmt.Fprintln(os.Stderr, "structure:", err)
		os.Exit(1)
	}
}

// measure prints the table of the tree in the folder dir.
func measure(ctx context.Context, dir string, hasTrace, isLong bool) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}

	tree, err := loadTree(ctx, dir)
	if err != nil {
		return err
	}

	rows := tree.measureSource()
	rows = append(rows, tree.measureInterfaces()...)
	rows = append(rows, tree.measureDrain()...)

	if hasTrace {
		passed, err := traceMessage(ctx, dir)
		if err != nil {
			return fmt.Errorf("trace one message: %w", err)
		}
		rows = append(passed.measure(tree), rows...)
	}

	printTable(rows, isLong)

	return nil
}

// row is one line of the table.
type row struct {
	name  string
	value string
	names []string // the names that were counted; empty = the row counts lines
}

func printTable(rows []row, isLong bool) {
	width := 0
	for _, r := range rows {
		width = max(width, len(r.name))
	}

	fmt.Printf("| %-*s | value |\n| --- | --- |\n", width, "measured")
	for _, r := range rows {
		fmt.Printf("| %-*s | %s |\n", width, r.name, cmp.Or(r.value, "–"))
	}

	if !isLong {
		return
	}

	for _, r := range rows {
		if len(r.names) == 0 {
			continue
		}

		fmt.Printf("\n%s:\n", r.name)
		for _, name := range r.names {
			fmt.Printf("    %s\n", name)
		}
	}
}
