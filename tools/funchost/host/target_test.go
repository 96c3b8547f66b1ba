package host

import (
	"os"
	"strings"
	"testing"
)

// The last column of testdata/targets.tsv has the targets as YARP forwards them. YARP is the proxy
// of newer hosts.
func TestTarget_EncodePath(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/targets.tsv")
	if err != nil {
		t.Fatal(err)
	}

	rows := 0
	for line := range strings.Lines(string(raw)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if strings.HasPrefix(line, "#") || f[0] == "method" {
			continue
		}

		rows++
		got := "-"
		if sent, refusal := parseTarget(f[0], f[1]); refusal == 0 {
			got = f[0] + " " + sent.encodePath()
			if sent.hasQuery {
				got += "?" + sent.encodeQuery()
			}
		}

		if got != f[8] {
			t.Errorf("%s %s: %s; want %s", f[0], f[1], got, f[8])
		}
	}

	if rows != 862 {
		t.Errorf("%d rows; want 862", rows)
	}
}

func TestTarget_RebuildQuery(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "a=1&a=2": "a=1,2", "b=x&A=1&a=2": "b=x&a=1,2", "flag": "flag=",
		"q=a+b%20c":           "q=a%20b%20c",
		"a=%FF%C3%A9&b='\"/:": "a=%25FF%C3%A9&b=%27%22%2F%3A",
	} {
		if got := (requestTarget{query: in}).rebuildQuery(); got != want {
			t.Errorf("rebuildQuery(%q) = %q; want %q", in, got, want)
		}
	}
}
