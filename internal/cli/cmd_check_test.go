package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck_Files(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"good.xml": triedArticle, "none.xml": "<other/>",
		"mixed.xml":    "<article id='/a'>\n<title>Growth of <i>E. coli</i> in milk</title></article>",
		"dtd.xml":      "<!DOCTYPE article SYSTEM 'a.dtd'>" + triedArticle,
		"utf7.xml":     "<?xml version='1.0' encoding='utf-7'?><article/>",
		"open.xml":     "<article id='/a'>\n<title>",
		"cyrillic.xml": "<article id='\xcf\xee\xf0\xf2'><title>\xcf</title></article>",
		"packed.xml":   "\x1f\x8b\x08\x00",
		"bad.xml":      "<article id='/a'>\n<due>noon</due></article>"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	for name, c := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"Good": {[]string{"good.xml"}, exitOK,
			[]string{"good.xml  ok  contract article, key /news/1, due at 2030-01-31T08:00:00Z\n"}},
		"Bad": {[]string{"good.xml", "bad.xml"}, exitFailed, []string{
			"good.xml  ok", "bad.xml  wrong: line 2, column 1: the due time",
			"bad.xml  wrong: line 1, column 1: ./title is required and is missing or empty\n"}},
		"Doctype": {[]string{"dtd.xml", "good.xml", "dtd.xml"}, exitOK, []string{
			"contract article: the CMS gets the document type declaration of these messages: 2; doctype: drop"}},
		"DoctypeJSON": {[]string{"--json", "dtd.xml"}, exitOK,
			[]string{`,"hasDoctype":true}` + "\n"}},
		"CompareText": {[]string{"--compare-text", "good.xml", "mixed.xml"}, exitOK, []string{
			`mixed.xml  line 2: ./title (fields): before "Growth of  in milk", now "Growth of E. coli in milk"` + "\n",
			"Values that differ: "}},
		"CompareTextJSON": {[]string{"--compare-text", "--json", "good.xml", "mixed.xml"},
			exitOK, []string{
				`good.xml","differences":[]}`,
				`"setting":"fields","line":2,"before":"Growth of  in milk"`}},
		"CompareTextOfNothing": {[]string{"--compare-text"}, exitUsage, []string{"name FILE"}},
		"CompareTextOfOther": {[]string{"--compare-text", "none.xml"}, exitFailed,
			[]string{"none.xml  wrong: no contract accepts the root element other",
				"Values that differ: 0"}},
		"CompareTextGoesOn": {[]string{"--compare-text", "open.xml", "utf7.xml", "mixed.xml"},
			exitFailed, []string{"open.xml  wrong: line 2, column 8: element <title> is not closed",
				`utf7.xml  wrong: the encoding "utf-7"`, "mixed.xml  line 2: ./title",
				"Values that differ: 2"}},
		"CompareTextJSONGoesOn": {[]string{"--compare-text", "--json", "open.xml", "mixed.xml"},
			exitFailed, []string{`open.xml","differences":[],"problems":[{`, `"now":"Growth`}},
		"Header": {[]string{"--header", "Content-Type: text/xml; charset=windows-1251", "cyrillic.xml"},
			exitOK, []string{"cyrillic.xml  ok  contract article, key Порт"}},
		"NoHeader":     {[]string{"cyrillic.xml"}, exitFailed, []string{"is not valid UTF-8"}},
		"HeaderOfFile": {[]string{"--header", "A: b"}, exitUsage, []string{"name FILE"}},
		"BadHeader":    {[]string{"--header", "A", "good.xml"}, exitUsage, []string{"'Name: value'"}},
		"PackedHeader": {[]string{"--header", "content-encoding: gzip", "good.xml"}, exitUsage,
			[]string{"unpack FILE"}},
		"Unreadable": {[]string{"utf7.xml", "packed.xml", "good.xml"}, exitFailed, []string{
			`utf7.xml  wrong: the encoding "utf-7" of the XML declaration`,
			"packed.xml  wrong: the body is compressed by gzip",
			"good.xml  ok"}},
		"NoContract": {[]string{"none.xml"}, exitFailed,
			[]string{"none.xml  wrong: line 1, column 1: no contract accepts the root element other\n"}},
		"JSON": {[]string{"--json", "good.xml", "none.xml"}, exitFailed, []string{
			`good.xml","valid":true,"contract":"article","key":"/news/1","deliverAt":"2030-01-31T08:00:00Z"}` + "\n",
			`none.xml","valid":false,"problems":[{"path":"/",`}},
		"SampleAndFile": {[]string{"--sample", "good.xml", "good.xml"}, exitUsage,
			[]string{"--sample is for the check of the CMS"}},
		"NoSample": {[]string{"--sample", "missing.xml"}, exitUsage, []string{"no such file"}},
		"NoFile":   {[]string{"missing.xml"}, exitUsage, []string{"no such file"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings := strings.Replace(triedSettings, "${TIMEOUT}", "5s", 1)
			s, stdout, stderr := newTestConsole(newEnvironment(t, settings))
			args := []string{"check"}
			for _, arg := range c.args {
				if strings.HasSuffix(arg, ".xml") {
					arg = filepath.Join(dir, arg)
				}
				args = append(args, arg)
			}

			code := s.runCommand(t.Context(), args)
			if code != c.code {
				t.Errorf("got exit code %d, want %d", code, c.code)
			}

			for _, want := range c.want {
				if !strings.Contains(stdout.String()+stderr.String(), want) {
					t.Errorf("got\n%s%s\nwant %q in it", stdout, stderr, want)
				}
			}
		})
	}
}

// The match of a contract reads the headers with which the file would be posted.
func TestHeader_ChoosesTheContract(t *testing.T) {
	t.Parallel()
	const settings = `delivery: { url: "http://127.0.0.1:1" }
contracts:
  - { name: order, root: Envelope, match: "header('SOAPAction') == 'urn:order'" }
  - { name: refund, root: Envelope, match: "header('SOAPAction') == 'urn:refund'" }
`
	file := filepath.Join(t.TempDir(), "a.xml")
	if err := os.WriteFile(file, []byte("<Envelope/>"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, command := range []string{"check", "try"} {
		for header, want := range map[string]string{"soapaction: urn:refund": "contract refund",
			"SOAPAction:urn:order": "contract order", "SOAPAction: urn:other": "does not take"} {
			s, stdout, _ := newTestConsole(newEnvironment(t, settings))
			s.runCommand(t.Context(), []string{command, "--header", header, file})
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("%s %s: got %s, want %q in it", command, header, stdout, want)
			}
		}
	}
}
