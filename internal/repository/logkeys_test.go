package repository_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logKeys has all keys that are allowed in log lines. Operators search the logs by these keys.
var logKeys = []string{"function", "invocation_id", "message_id", "lane", "key", "seq",
	"fence", "attempt", "dequeue_count",
	"stage", "outcome", "reason", "delay_ms", "duration_ms", "status", "depth", "err", "trace_id",
	"action", "subject", "detail", "principal", "key_id", "from"}

// logText matches a log line's text: the component, a colon, and words that do not begin with a
// capital letter.
var logText = regexp.MustCompile(`^[a-z]+: [^A-Z]`)

// logMethods has the methods of slog.Logger that write a line, except Log. The value is the index
// of the argument with the line's text.
var logMethods = map[string]int{"Debug": 0, "Info": 0, "Warn": 0, "Error": 0, "DebugContext": 1,
	"InfoContext": 1, "WarnContext": 1, "ErrorContext": 1, "LogAttrs": 2}

func TestLogKeys(t *testing.T) {
	t.Parallel()
	calls := 0
	for _, dir := range []string{"functions", "handler", "internal"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir),
			func(path string, _ fs.DirEntry, err error) error {
				if err != nil || !strings.HasSuffix(path, ".go") ||
					strings.HasSuffix(path, "_test.go") {
					return err
				}

				files := token.NewFileSet()
				file, err := parser.ParseFile(files, path, nil, 0)
				if err != nil {
					return err
				}

				ast.Inspect(file, func(n ast.Node) bool {
					if call, ok := n.(*ast.CallExpr); ok && isLogCall(call) {
						calls++
						for _, problem := range problemsOf(call) {
							t.Errorf("%s: a log call breaks a rule: %s",
								files.Position(call.Pos()), problem)
						}
					}

					return true
				})

				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
	}

	if calls < 40 {
		t.Errorf("got %d log calls, want 40 at least", calls)
	}
}

// isLogCall reports whether a call calls With, or one of logMethods, on a logger. It recognises a
// logger by its name.
func isLogCall(call *ast.CallExpr) bool {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	_, known := logMethods[method.Sel.Name]
	return (known || method.Sel.Name == "With") && isLogger(method.X)
}

func isLogger(e ast.Expr) bool {
	name := ""
	switch e := e.(type) {
	case *ast.Ident:
		name = e.Name
	case *ast.SelectorExpr:
		name = e.Sel.Name
	}

	return slices.Contains([]string{"log", "Log", "logger", "Logger"}, name)
}

func problemsOf(call *ast.CallExpr) []string {
	method := call.Fun.(*ast.SelectorExpr).Sel.Name
	args := call.Args
	var problems []string
	if method != "With" {
		at := logMethods[method]
		if text, ok := constantText(args[at]); !ok || !logText.MatchString(text) {
			problems = append(problems, "the text is not a constant that begins with the component")
		}
		args = args[at+1:]
	}

	for i := 0; i < len(args); i++ {
		name, ok := "", false
		var value ast.Expr
		if attr, is := args[i].(*ast.CallExpr); is && len(attr.Args) > 1 {
			name, ok = constantText(attr.Args[0]) // slog.String and similar functions
			value = attr.Args[1]
		} else {
			name, ok = constantText(args[i])
			i++
			value = args[min(i, len(args)-1)]
		}

		if strings.HasSuffix(name, "_ms") && !isMilliseconds(value) {
			problems = append(problems, "the value of "+name+" is no call of Milliseconds")
		}

		if !ok || !slices.Contains(logKeys, name) {
			problems = append(problems, "key "+strconv.Quote(name)+" is not on the list")
		}
	}

	return problems
}

// isMilliseconds reports whether an expression is a call of Milliseconds. slog would log a Duration
// in nanoseconds.
func isMilliseconds(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	return ok && method.Sel.Name == "Milliseconds"
}

func constantText(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}
