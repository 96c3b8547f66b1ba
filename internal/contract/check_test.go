package contract_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/contract"
	"weir/internal/weir"
)

func newCheckedSet(t *testing.T) *contract.Set {
	t.Helper()
	set, err := contract.New([]contract.Definition{
		{Name: "article", Root: "article", Key: contract.KeyPaths{"./@id"},
			Version: "./meta/version", DeliverAt: "./meta/due",
			Supersede: true, Fields: []contract.Field{{Path: "./title", Rule: "required"},
				{Path: ".//tag", Rule: "required,max=3"}, {Path: "./link/@to", Rule: "http_url"},
				{Path: "/article/meta/author/name", Rule: "required"}}},
	}, contract.Limits{MaxBody: 200 << 10})
	if err != nil {
		t.Fatal(err)
	}

	return set
}

func TestSet_Check(t *testing.T) {
	t.Parallel()
	set := newCheckedSet(t)
	const whole = "<article id='/a'>\n <meta><version>2</version><due>2030-01-31T08:00:00Z</due>\n" +
		"  <author><name>N</name></author></meta>\n <title>T</title><tag>abc</tag>\n</article>"
	for name, c := range map[string]struct {
		body           string
		message        string // contract, key and version of the message
		problems       []string
		hasNoDueTime   bool
		acceptedByBoth bool
	}{
		"Whole": {body: whole, message: "article /a 2", acceptedByBoth: true},
		"Title": {strings.Replace(whole, "<title>T</title>", "", 1), "article /a 2",
			[]string{"1:1 ./title required"}, false, false},
		"EmptyTitle": {strings.Replace(whole, "T</title>", "</title>", 1), "article /a 2",
			[]string{"4:2 ./title required"}, false, false},
		"AuthorWithoutName": {strings.Replace(whole, "<name>N</name>", "", 1), "article /a 2",
			[]string{"3:3 /article/meta/author/name required"}, false, false},
		"SecondTag": {strings.Replace(whole, "<tag>abc</tag>", "<tag/>\n<x>ö<tag>abcd</tag></x>",
			1), "article /a 2", []string{"5:5 .//tag max=3"}, false, false},
		"SecondLink": {strings.Replace(whole, "<title>",
			"<link/><link to='http://a.example'/><link to='x'/><title>", 1),
			"article /a 2", []string{"4:38 ./link/@to http_url"}, false, false},
		"NoKey": {strings.Replace(whole, " id='/a'", "", 1), "article  2",
			[]string{"1:1 ./@id required"}, false, false},
		"Version": {strings.Replace(whole, ">2<", ">two<", 1), "article /a two",
			[]string{"2:8 ./meta/version version"}, false, false},
		"DueTime": {strings.Replace(whole, "2030-01-31T08:00:00Z", "tomorrow", 1), "article /a 2",
			[]string{"2:28 ./meta/due deliverAt"}, true, false},
		"Missing": {"<article>\n</article>", "article  ",
			[]string{"1:1 ./@id required", "1:1 ./meta/version required",
				"1:1 ./title required", "1:1 .//tag required",
				"1:1 /article/meta/author/name required"}, true, false},
		"NoContract": {"<?xml version='1.0'?>\n <note/>", "  ", []string{"2:2 / contract"},
			true, false},
		"Malformed": {"<article>\n<b></article>", "  ", []string{"2:4  xml"}, true, false},
		"Empty":     {"", "  ", []string{"0:0  "}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := set.Check(t.Context(), "text/xml", []byte(c.body))
			if err != nil {
				t.Fatal(err)
			}

			var problems []string
			for _, p := range got.Problems {
				problems = append(problems,
					fmt.Sprintf("%d:%d %s %s", p.Line, p.Column, p.Path, p.Rule))
				if p.Message == "" {
					t.Errorf("got the problem %+v, want a message", p)
				}
			}

			m := got.Message
			if !slices.Equal(problems, c.problems) ||
				m.Contract+" "+m.Key+" "+m.Version != c.message ||
				m.DueAt.IsZero() != c.hasNoDueTime {
				t.Errorf("got the problems %q and the message %s %s %s due %s; want %q and %q",
					problems, m.Contract, m.Key, m.Version, m.DueAt,
					c.problems, c.message)
			}

			accepted, err := set.Accept(t.Context(), "text/xml", []byte(c.body))
			if (err == nil) != c.acceptedByBoth ||
				c.acceptedByBoth && !m.DueAt.Equal(accepted.DueAt) {
				t.Errorf("Accept returned the due time %s and the error %v; want an error: %t, or else the due "+
					"time of Check", accepted.DueAt, err, !c.acceptedByBoth)
			}
		})
	}
}

// Each of the 10,000 tags breaks a rule. Check must compute lines and columns only for the problems
// that it lists, because each computation reads the whole text before the tag.
func TestSet_CheckOfManyProblems(t *testing.T) {
	t.Parallel()
	set := newCheckedSet(t)
	body := "<article>" + strings.Repeat("<tag>long</tag>", 10_000) + "</article>"
	got, err := set.Check(t.Context(), "", []byte(body))
	if err != nil || len(got.Problems) != 101 || got.Problems[100].Message != "and 9904 more" {
		t.Fatalf("got %d problems and %v, want 100 problems, and one with the number of the others",
			len(got.Problems), err)
	}

	if last := got.Problems[99]; last.Line != 1 || last.Column < 1_000 {
		t.Errorf("got %+v, want line 1 and a column of at least 1,000", last)
	}
}

func TestSet_CheckRefuses(t *testing.T) {
	t.Parallel()
	set := newCheckedSet(t)
	ended, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-ended.Done()

	for name, c := range map[string]struct {
		kind, body string
		ctx        context.Context
		want       weir.Kind
	}{
		"Type":  {"text/plain", "<article/>", t.Context(), weir.Unsupported},
		"Size":  {"", strings.Repeat(" ", 201<<10), t.Context(), weir.TooLarge},
		"Ended": {"", "<article/>", ended, weir.Unavailable},
	} {
		_, err := set.Check(c.ctx, c.kind, []byte(c.body))
		var e *weir.Error
		if !errors.As(err, &e) || e.Kind != c.want {
			t.Errorf("%s: got %v, want kind %v", name, err, c.want)
		}
	}
}
