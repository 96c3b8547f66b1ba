package weir_test

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

// logKeys is the closed list of keys in the log: whoever searches it needs to know them.
var logKeys = []string{"function", "invocation_id", "message_id", "lane", "key", "seq", "fence", "attempt",
	"dequeue_count",
	"stage", "outcome", "reason", "delay", "duration", "status", "depth", "err", "trace_id",
	"action", "subject", "detail", "principal", "key_id", "from"}

// logText is a constant, lower-case, and begins with the component.
var logText = regexp.MustCompile(`^[a-z]+: [^A-Z]`)

// logMethods are slog's, with the place of the text among the arguments.
var logMethods = map[string]int{"Debug": 0, "Info": 0, "Warn": 0, "Error": 0, "DebugContext": 1, "InfoContext": 1,
	"WarnContext": 1, "ErrorContext": 1, "LogAttrs": 2}

func TestLogKeys(t *testing.T) {
	t.Parallel()
	calls := 0
	for _, dir := range []string{"functions", "handler", "internal"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && logs(call) {
					calls++
					for _, problem := range problemsOf(call) {
						t.Errorf("%s: %s", files.Position(call.Pos()), problem)
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
		t.Errorf("only %d calls were looked at", calls)
	}
}

// logs says whether a call is one of a logger, which all of ours know by its name.
func logs(call *ast.CallExpr) bool {
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
		if text, ok := constant(args[at]); !ok || !logText.MatchString(text) {
			problems = append(problems, "the text is not a constant that begins with the component")
		}
		args = args[at+1:]
	}
	for i := 0; i < len(args); i++ {
		name, ok := "", false
		if attr, is := args[i].(*ast.CallExpr); is && len(attr.Args) > 0 {
			name, ok = constant(attr.Args[0]) // slog.String and the like
		} else {
			name, ok = constant(args[i])
			i++ // its value
		}
		if !ok || !slices.Contains(logKeys, name) {
			problems = append(problems, "key "+strconv.Quote(name)+" is not on the list")
		}
	}
	return problems
}

func constant(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}
