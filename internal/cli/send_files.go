package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// maxFile is the size in bytes of the largest request that the Functions host accepts.
const maxFile = 100 << 20

// resolveFiles returns the files that the arguments name. An argument is a file, a pattern, a
// directory (see listXMLFiles), or "-" for standard input. If any argument is wrong, resolveFiles
// returns no file, and an error that names every wrong argument.
func resolveFiles(args []string) ([]string, error) {
	var files, wrong []string
	for _, arg := range args {
		found := []string{arg}
		if _, err := os.Lstat(arg); err != nil && arg != "-" && strings.ContainsAny(arg, "*?[") {
			if found, err = filepath.Glob(arg); err != nil || len(found) == 0 {
				wrong = append(wrong, arg+" matches no file")
			}
		}

		for _, file := range found {
			if file == "-" {
				if slices.Contains(files, file) {
					wrong = append(wrong, "- may stand once")
				}
			} else if info, err := os.Stat(file); err != nil {
				wrong = append(wrong, describeFileError(err))
			} else if info.IsDir() {
				inside, err := listXMLFiles(file)
				if err != nil {
					wrong = append(wrong, err.Error())
				}
				files = append(files, inside...)
				continue
			}

			files = append(files, file)
		}
	}

	if len(wrong) > 0 {
		return nil, &usageError{strings.Join(wrong, "\n")}
	}

	return files, nil
}

// describeFileError returns the text of a file's error without the name of the system call, such as
// "open".
func describeFileError(err error) string {
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return failed.Path + ": " + failed.Err.Error()
	}
	return err.Error()
}

// listXMLFiles returns the files *.xml and *.XML of a directory, in the order of their names.
// Subdirectories are left out. If no file remains, listXMLFiles returns an error.
func listXMLFiles(directory string) ([]string, error) {
	entries, err := os.ReadDir(directory) // sorted by name
	if err != nil {
		return nil, err
	}

	var files []string
	for _, e := range entries {
		if !e.IsDir() && strings.EqualFold(filepath.Ext(e.Name()), ".xml") {
			files = append(files, filepath.Join(directory, e.Name()))
		}
	}

	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no file *.xml", directory)
	}

	return files, nil
}

// readContent reads a file; "-" means standard input. It stops waiting for standard input if ctx
// ends.
func (s *console) readContent(ctx context.Context, file string) ([]byte, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return readLimited(f)
	}

	type result struct {
		body []byte
		err  error
	}

	read := make(chan result, 1)
	go func() {
		body, err := readLimited(s.stdin)
		read <- result{body, err}
	}()

	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-read:
		return r.body, r.err
	}
}

// readLimited reads all bytes of in. More than maxFile bytes are an error.
func readLimited(in io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err == nil && len(body) > maxFile {
		err = fmt.Errorf("is over %d bytes", maxFile)
	}
	return body, err
}

// reportInterval is the time between two lines of progress if stderr is not a terminal.
const reportInterval = 10 * time.Second

// progressReport shows progress on stderr: as a bar on a terminal, otherwise as a line after each
// reportInterval.
type progressReport struct {
	bar   *progressbar.ProgressBar // nil = stderr is not a terminal
	mu    sync.Mutex
	done  int           // number of finished items
	total int           // number of all items; -1 = not known yet
	stop  chan struct{} // closed by finishReport
	wg    sync.WaitGroup
}

// newProgress starts a report of progress. The parameter "what" has the text beside the numbers.
// The parameter "total" is the number of all items; -1 = not known yet.
func (s *console) newProgress(what string, total int) *progressReport {
	p := &progressReport{total: total, stop: make(chan struct{})}
	if isTerminal(s.stderr) {
		p.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(s.stderr),
			progressbar.OptionSetDescription(what), progressbar.OptionShowCount(),
			progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(100*time.Millisecond))
		return p
	}

	p.wg.Go(func() {
		ticker := time.NewTicker(reportInterval)
		defer ticker.Stop()

		for {
			select {
			case <-p.stop:
				return
			case <-ticker.C:
				p.mu.Lock()
				fmt.Fprintf(s.stderr, "weir: %d of %d %s\n", p.done, max(p.total, 0), what)
				p.mu.Unlock()
			}
		}
	})

	return p
}

// addOne adds 1 to the number of finished items. It ignores errors of the bar, because the command
// works without a bar.
func (p *progressReport) addOne() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if p.bar != nil {
		_ = p.bar.Add(1)
	}
}

// setCount sets the numbers of finished items and of all items.
func (p *progressReport) setCount(done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.total = done, total
	if p.bar != nil && total > 0 {
		p.bar.ChangeMax(total)
		_ = p.bar.Set(done)
	}
}

// printBetween clears the bar and then calls print, so that the bar does not mix with other output.
func (p *progressReport) printBetween(print func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	print()
}

// finishReport ends the report. A second call panics.
func (p *progressReport) finishReport() {
	close(p.stop)
	p.wg.Wait()
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
