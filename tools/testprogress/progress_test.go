package main

import (
	"strings"
	"testing"
	"time"
)

const passing = `{"Action":"start","Package":"weir/a"}
{"Action":"run","Package":"weir/a","Test":"TestOne"}
{"Action":"output","Package":"weir/a","Test":"TestOne","Output":"=== RUN   TestOne\n"}
{"Action":"run","Package":"weir/a","Test":"TestOne/sub"}
{"Action":"pass","Package":"weir/a","Test":"TestOne/sub","Elapsed":0.1}
{"Action":"pass","Package":"weir/a","Test":"TestOne","Elapsed":0.1}
{"Action":"output","Package":"weir/a","Output":"ok\n"}
{"Action":"pass","Package":"weir/a","Elapsed":1.25}
{"Action":"skip","Package":"weir/b"}
`

func TestFollow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, out, err string }{
		"passes": {passing,
			"ok    weir/a  1.2s  1 passed\n      weir/b  no tests\ntotal 2 passed, 0 failed, 0 skipped\n", ""},
		"a test is skipped": {`{"Action":"run","Package":"weir/a","Test":"TestOne"}
{"Action":"skip","Package":"weir/a","Test":"TestOne/sub"}
{"Action":"pass","Package":"weir/a","Test":"TestOne"}
{"Action":"pass","Package":"weir/a","Elapsed":2}
`, "SKIP  weir/a TestOne/sub\nok    weir/a  2.0s  1 passed\ntotal 1 passed, 0 failed, 1 skipped\n", ""},
		"a test fails": {`{"Action":"run","Package":"weir/a","Test":"TestOne"}
{"Action":"output","Package":"weir/a","Test":"TestOne","Output":"got 1, want 2\n"}
{"Action":"output","Package":"weir/a","Test":"TestOne/sub","Output":"in the subtest\n"}
{"Action":"fail","Package":"weir/a","Test":"TestOne"}
{"Action":"output","Package":"weir/a","Output":"FAIL\n"}
{"Action":"fail","Package":"weir/a","Elapsed":2}
`, "got 1, want 2\nin the subtest\nFAIL  weir/a  2.0s\ntotal 0 passed, 1 failed, 0 skipped\n",
			"1 of 1 packages failed: weir/a"},
		"a process panics": {`{"Action":"run","Package":"weir/a","Test":"TestOne"}
{"Action":"output","Package":"weir/a","Test":"TestOne","Output":"panic: no\n"}
{"Action":"fail","Package":"weir/a","Elapsed":2}
`, "panic: no\nFAIL  weir/a  2.0s\ntotal 0 passed, 0 failed, 0 skipped\n", "1 of 1 packages failed: weir/a"},
		"a build fails": {`{"ImportPath":"weir/a [weir/a.test]","Action":"build-output","Output":"a.go:1: undefined: x\n"}
{"ImportPath":"weir/a [weir/a.test]","Action":"build-fail"}
{"Action":"fail","Package":"weir/a","Elapsed":0,"FailedBuild":"weir/a [weir/a.test]"}
`, "a.go:1: undefined: x\nFAIL  weir/a  0.0s\ntotal 0 passed, 0 failed, 0 skipped\n", "1 of 1 packages failed: weir/a"},
		"the input is cut off": {`{"Action":"run","Package":"weir/a","Test":"TestOne"}
`, "total 0 passed, 0 failed, 0 skipped\n", "did not end: weir/a"},
		"nothing is tested": {"go: no such module\n",
			"go: no such module\ntotal 0 passed, 0 failed, 0 skipped\n", "no package was tested"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			err := newProgress(&out, time.Now).follow(strings.NewReader(c.in), nil)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if out.String() != c.out || text != c.err {
				t.Errorf("got %q and error %q, want %q and %q", out.String(), text, c.out, c.err)
			}
		})
	}
}

func TestPrintRunning_NamesTheLongestTests(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := newProgress(&out, func() time.Time { return now })
	for _, test := range []string{"TestA", "TestB", "TestC", "TestD", "TestE"} {
		p.handleLine(`{"Action":"run","Package":"weir/a","Test":"` + test + `"}`)
		now = now.Add(time.Minute)
	}
	p.handleLine(`{"Action":"pass","Package":"weir/a","Test":"TestB"}`)
	p.handleLine(`{"Action":"run","Package":"weir/a","Test":"TestWaitsForItsTurn"}`)
	p.handleLine(`{"Action":"pause","Package":"weir/a","Test":"TestWaitsForItsTurn"}`)
	p.printRunning()
	const want = "...   weir/a  1 passed; running: TestA (5m0s), TestC (3m0s), TestD (2m0s), 1 more\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
