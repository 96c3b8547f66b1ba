package contract_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"weir/internal/contract"
	"weir/internal/weir"
)

func TestNew_ReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := contract.New([]contract.Definition{
		{Name: "a", Root: "a", Key: contract.KeyPaths{"./["}, Version: "./x[@y='1]",
			OnFailure: "explode", Success: "(",
			Fields: []contract.Field{{Path: "./x", Rule: "nosuchrule"}, {Rule: "required"},
				{Path: "./y"}}},
		{Name: "a", Root: "a"}, {Root: "{u"}, {Root: "p:b"},
	}, contract.Limits{MaxBody: 100})
	if err == nil {
		t.Fatal("New accepted the definitions, want an error with every problem")
	}

	want := []string{
		`contracts[0] "a": key: path "./[": brackets or quotes do not match`,
		`contracts[0] "a": version: path "./x[@y='1]": brackets or quotes do not match`,
		`contracts[0] "a": onFailure is "explode" and must be block or skip`,
		"contracts[0] \"a\": success: error parsing regexp: missing closing ): `(`",
		`contracts[0] "a": fields[0]: path "./x": rule "nosuchrule": there is no rule "nosuchrule"`,
		`contracts[0] "a": fields[1]: path is missing`,
		`contracts[0] "a": fields[2]: path "./y": rule is missing`,
		`contracts[1] "a": the name is taken by an earlier contract`,
		`contracts[1] "a": root "a" is taken by an earlier contract; let that contract have a match, or stand behind this one`,
		`contracts[2] "": name is missing`,
		`contracts[2] "": root "{u" must be a local name or {uri}local`,
		`contracts[3] "": name is missing`,
		`contracts[3] "": root "p:b" must be a local name or {uri}local`,
	}
	if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, want) {
		t.Errorf("got %s\nwant %s", err, strings.Join(want, "\n"))
	}
}

func TestNew_RefusesAmbiguousFormerNames(t *testing.T) {
	t.Parallel()
	_, err := contract.New([]contract.Definition{
		{Name: "a", Root: "a", Formerly: []string{"a", "b", "", "x", "x"}},
		{Name: "b", Root: "b", Formerly: []string{"x", "fine"}},
	}, contract.Limits{MaxBody: 100})

	want := []string{
		`contracts[0] "a": formerly[0] is the name of this contract`,
		`contracts[0] "a": formerly[1]: there is a contract "b"`,
		`contracts[0] "a": formerly[2] is empty`,
		`contracts[0] "a": formerly[4]: "x" is listed twice`,
		`contracts[1] "b": formerly[0]: contract "a" was formerly "x", too`,
	}
	if err == nil || !slices.Equal(strings.Split(err.Error(), "\n"), want) {
		t.Errorf("got %v\nwant %s", err, strings.Join(want, "\n"))
	}
}

func TestNew_NeedsContractsAndLimits(t *testing.T) {
	t.Parallel()
	_, err := contract.New(nil, contract.Limits{})
	if err == nil || !strings.Contains(err.Error(), "limits:") ||
		!strings.Contains(err.Error(), "at least one") {
		t.Errorf("got %v, want problems of the limits and the contracts", err)
	}
}

// New must refuse a path that begins with / if the first step of the path cannot match the root
// element. Such a path selects nothing in any message. As the path of the key, it would make Weir
// refuse each message.
func TestNew_PathsThatMissTheRoot(t *testing.T) {
	t.Parallel()
	for root, path := range map[string]string{"a": "/a/b", "{http://u}a": "/p:a/b",
		"{u}a": "/{u}a/@b", "b": "/*/c", "c": "//a", "d": "/@e"} {
		if _, err := contract.New(
			[]contract.Definition{{Name: "c", Root: root, Key: contract.KeyPaths{path}}},
			contract.Limits{MaxBody: 100}); err != nil {
			t.Errorf("root %s, key %s: got the error %v, want no error", root, path, err)
		}
	}

	_, err := contract.New([]contract.Definition{{Name: "c", Root: "{u}a", Key: contract.KeyPaths{"/name"},
		Version: "/p:b/@v",
		Fields: []contract.Field{{Path: "/a", Rule: "required"},
			{Path: "/title", Rule: "required"}}}},
		contract.Limits{MaxBody: 100})

	want := `contracts[0] "c": key: path "/name" starts at the document, whose only element is a: write ./name
contracts[0] "c": version: path "/p:b/@v" starts at the document, whose only element is a: write ./p:b/@v
contracts[0] "c": fields: path "/title" starts at the document, whose only element is a: write ./title`
	if err == nil || err.Error() != want {
		t.Errorf("got the error\n%v\nwant\n%s", err, want)
	}
}

func TestNew_Paths(t *testing.T) {
	t.Parallel()
	for path, says := range map[string]string{
		"./a/@b": "", "a": "", ".//a[@b='c/d']/..": "", "./p:a/@p:b": "", "//a": "", "/a/@b": "",
		"./a[-1]":               "",
		"./a[local-name()='b']": "", "./{http://u/v}a/@{u}b": "", "./{}a": "",
		"./{u}p:a": "not a step", "./{u}": "not a step", "./{u a}b": "not a step",
		"./{u}*": "not a step",
		"./a{u}": "do not match", "./{u/a": "do not match",
		"./a/": "a step is empty", "/": "a step is empty", "./@a/b": "not a step",
		"./@a[1]": "not a step",
		"./a b":   "not a step", "./a[0]": "places count from 1", "./a[": "do not match",
		"./a]":  "do not match",
		"./a[]": "brackets is empty", "./a[nosuch()='b']": "unknown function",
		"./a[.='b']": "", "./a[ @b = 'c' ]": "", "./a[p:b]": "", "./a[@p:b='']": "",
		"./a[.]": "no condition", "./a[b/c='d']": "none of the conditions",
		"./a[b!='c']":                "none of the conditions",
		"./a[@b='c' and @d]":         "none of the conditions",
		"./a[b=c]":                   "none of the conditions",
		"./a[@text()]":               "unknown function",
		"./a[position()=1]":          "none of the conditions",
		"./a[contains(@class, 'b')]": "none of the conditions", "./a/@": "not a step",
		"./a/text()": "not a step", "./p:": "not a step",
	} {
		_, err := contract.New([]contract.Definition{{Name: "a", Root: "a", Version: path}},
			contract.Limits{MaxBody: 100})
		if (err == nil) != (says == "") || (err != nil && !strings.Contains(err.Error(), says)) {
			t.Errorf("path %s: got the error %v, want %q", path, err, says)
		}
	}
}

// New must refuse a rule that cannot work. Otherwise the mistake would show only when messages
// arrive.
func TestNew_Rules(t *testing.T) {
	t.Parallel()
	for rule, says := range map[string]string{
		"required": "", "required,max=20": "", "omitempty,len=3|email": "", "oneof='a b' c": "",
		"datetime=2006-01-02": "", "iscolor": "", "omitempty,gte=1": "", "contains=0x2C": "",
		"omitempty,len=abc": "abc", "email,len=abc": "abc", "email|len=abc": "abc",
		"required,": "empty",
		"max=3,,":   "empty", "email|": "empty", "max=": "max= needs a number",
		"dive,email": "single value", "omitempty,unique": "single value",
		"required_if=A b": "single value",
		"eqfield=A":       "single value", "omitempty,gtcsfield=A": "single value",
		"structonly":     "single value",
		"omitempty,file": "reads files", "image": "reads files", "email|tcp_addr": "reads files",
		"mimetype=text/plain": "reads files", "port": "port does not apply to a text",
		"nope":             "nope",
		"omitempty,nope=1": "nope",
	} {
		_, err := contract.New([]contract.Definition{{Name: "a", Root: "a",
			Fields: []contract.Field{{Path: "./b", Rule: rule}}}}, contract.Limits{MaxBody: 100})
		if (err == nil) != (says == "") || (err != nil && !strings.Contains(err.Error(), says)) {
			t.Errorf("rule %s: got the error %v, want %q", rule, err, says)
		}
	}
}

// New must refuse a rule that is meant for numbers, but would compare lengths of texts. Otherwise
// gt=0 would accept the number -5, and min=10 would refuse the number 99.
func TestNew_NumberRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, rule, want string }{
		{"", "numeric,gt=0", "gt=0 compares the number of characters"},
		{"", "omitempty,min=10,number", "min=10 compares the number of characters"},
		{"", "required,gt=0", "gt=0 compares the number of characters, which is never below 0"},
		{"", "lte=-5|oneof=a b",
			"lte=-5 compares the number of characters, which is never below 0"},
		{"", "min=1,max=200", ""},
		{"", "required,oneof=", "oneof has no values"},
		{"number", "oneof", "oneof has no values"},
		{"text", "numeric|max=3", "max=3 compares"},
		{"", "numeric,len=13", ""},
		{"number", "gt=0,lte=99.5", ""},
		{"number", "omitempty,oneof=1 2", "oneof=1 2 does not apply to a number"},
		{"number", "email", "email does not apply to a number"},
		{"number", "gt=many", "gt=many needs a number"},
		{"integer", "gt=0", `type is "integer" and must be text or number`},
	} {
		_, err := contract.New([]contract.Definition{{Name: "a", Root: "a",
			Fields: []contract.Field{{Path: "./b", Rule: c.rule, Type: c.kind}}}},
			contract.Limits{MaxBody: 100})
		if (err == nil) != (c.want == "") ||
			(err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("type %q, rule %q: got the error %v, want %q", c.kind, c.rule, err, c.want)
		}
	}
}

func TestSet_Accept_ComparesNumbers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, rule, value, want string }{
		{"number", "gt=0", "0.01", ""},
		{"number", "gt=0", " 1e2 ", ""},
		{"number", "gt=0", "-5", "./b is -5 and must be more than 0"},
		{"number", "min=10", "9.99", "./b is 9.99 and must be at least 10"},
		{"number", "max=10", "99", "./b is 99 and must be at most 10"},
		{"number", "gt=0", "many", `./b is "many", which is not a number (rule: number)`},
		{"number", "gt=0", "0x10", `./b is "0x10", which is not a number (rule: number)`},
		{"number", "gt=0", "Inf", `./b is "Inf", which is not a number (rule: number)`},
		{"number", "gt=0", "", `./b is "", which is not a number (rule: number)`},
		{"number", "omitempty,gt=0", "", ""},
		{"number", "omitempty,gt=0", "0", "./b is 0 and must be more than 0"},
		{"", "min=3", "ab", `./b is "ab" with 2 characters, and must have at least 3`},
		{"", "numeric", "1,5", `./b is "1,5", which is not a number (rule: numeric)`},
		{"", "email", "x", `./b is "x" and must satisfy email`},
	} {
		s, err := contract.New([]contract.Definition{{Name: "a", Root: "a",
			Fields: []contract.Field{{Path: "./b", Rule: c.rule, Type: c.kind}}}},
			contract.Limits{MaxBody: 100})
		if err != nil {
			t.Fatal(err)
		}

		_, err = s.Accept(t.Context(), "", []byte("<a><b>"+c.value+"</b></a>"))
		var refused *weir.Error
		got := ""
		if errors.As(err, &refused) && len(refused.Problems) == 1 {
			got = refused.Problems[0].Message
		} else if err != nil {
			got = err.Error()
		}

		if got != c.want {
			t.Errorf("type %q, rule %q, value %q: got %q, want %q", c.kind, c.rule, c.value,
				got, c.want)
		}
	}
}

func TestSet_SuccessRules(t *testing.T) {
	t.Parallel()
	s, err := contract.New([]contract.Definition{{Name: "a", Root: "a", Success: "<ok/>"},
		{Name: "b", Root: "b"}}, contract.Limits{MaxBody: 100})
	if err != nil {
		t.Fatal(err)
	}

	rules := s.SuccessRules()
	if len(rules) != 1 || !rules["a"].MatchString("<x><ok/></x>") || rules["a"].MatchString("no") {
		t.Errorf("got %v, want one rule for a that matches <ok/>", rules)
	}
}

func TestSet_Answers(t *testing.T) {
	t.Parallel()
	s, err := contract.New([]contract.Definition{{Name: "a", Root: "a",
		Answers: map[int]string{403: "rejected", 404: "retry", 500: "unavailable"}},
		{Name: "b", Root: "b"}},
		contract.Limits{MaxBody: 100})
	if err != nil {
		t.Fatal(err)
	}

	want := map[string]map[int]weir.Outcome{"a": {403: weir.OutcomeRejected, 404: weir.OutcomeRetry,
		500: weir.OutcomeUnavailable}}
	if got := s.Answers(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}

	for says, answers := range map[string]map[int]string{"200": {200: "rejected"},
		"600": {600: "retry"}, `"dead"`: {403: "dead"}, `""`: {403: ""}} {
		_, err := contract.New([]contract.Definition{{Name: "a", Root: "a", Answers: answers}},
			contract.Limits{MaxBody: 100})
		if err == nil || !strings.Contains(err.Error(), says) ||
			!strings.Contains(err.Error(), "answers") {
			t.Errorf("answers %v: got the error %v, want an error that names answers and %q",
				answers, err, says)
		}
	}
}
