package contract_test

import (
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
		{Name: "a", Root: "a", Key: "./[", Version: "./x[@y='1]", OnFailure: "explode", Success: "(",
			Fields: []contract.Field{{Path: "./x", Rule: "nosuchrule"}, {Rule: "required"}, {Path: "./y"}}},
		{Name: "a", Root: "a"}, {Root: "{u"}, {Root: "p:b"},
	}, contract.Limits{MaxBody: 100})
	if err == nil {
		t.Fatal("accepted")
	}
	want := []string{
		`contracts[0] "a": key: path "./[": brackets or quotes do not match`,
		`contracts[0] "a": version: path "./x[@y='1]": brackets or quotes do not match`,
		`contracts[0] "a": onFailure is "explode" and must be block or skip`,
		"contracts[0] \"a\": success: error parsing regexp: missing closing ): `(`",
		`contracts[0] "a": fields[0]: path "./x": rule "nosuchrule": Undefined validation function 'nosuchrule' on field ''`,
		`contracts[0] "a": fields[1]: path is missing`,
		`contracts[0] "a": fields[2]: path "./y": rule is missing`,
		`contracts[1] "a": the name is taken by an earlier contract`,
		`contracts[1] "a": root "a" is taken by an earlier contract`,
		`contracts[2] "": name is missing`,
		`contracts[2] "": root "{u" must be a local name or {uri}local`,
		`contracts[3] "": name is missing`,
		`contracts[3] "": root "p:b" must be a local name or {uri}local`,
	}
	if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, want) {
		t.Errorf("got %s\nwant %s", err, strings.Join(want, "\n"))
	}
}

func TestNew_NeedsContractsAndLimits(t *testing.T) {
	t.Parallel()
	_, err := contract.New(nil, contract.Limits{})
	if err == nil || !strings.Contains(err.Error(), "limits:") || !strings.Contains(err.Error(), "at least one") {
		t.Errorf("got %v, want problems of the limits and the contracts", err)
	}
}

func TestNew_Paths(t *testing.T) {
	t.Parallel()
	for path, says := range map[string]string{
		"./a/@b": "", "a": "", ".//a[@b='c/d']/..": "", "./p:a/@p:b": "", "//a": "", "/a/@b": "", "./a[-1]": "",
		"./a[local-name()='b']": "",
		"./a/":                  "a step is empty", "/": "a step is empty", "./@a/b": "not a step",
		"./@a[1]": "not a step",
		"./a b":   "not a step", "./a[0]": "places count from 1", "./a[": "do not match", "./a]": "do not match",
		"./a[]": "empty filter", "./a[nosuch()='b']": "unknown function", "./a/@": "not a step",
		"./a/text()": "not a step", "./p:": "not a step",
	} {
		_, err := contract.New([]contract.Definition{{Name: "a", Root: "a", Key: path}}, contract.Limits{MaxBody: 100})
		if (err == nil) != (says == "") || (err != nil && !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v, want %q", path, err, says)
		}
	}
}

// An unusable rule must fail at startup: later it would accept everything, or fail each request.
func TestNew_Rules(t *testing.T) {
	t.Parallel()
	for rule, says := range map[string]string{
		"required": "", "required,max=20": "", "omitempty,len=3|email": "", "oneof='a b' c": "",
		"datetime=2006-01-02": "", "iscolor": "", "omitempty,gte=1": "", "contains=0x2C": "",
		"omitempty,len=abc": "abc", "email,len=abc": "abc", "email|len=abc": "abc", "required,": "empty",
		"max=3,,": "empty", "email|": "empty", "max=": "invalid syntax",
		"dive,email": "single value", "omitempty,unique": "single value", "required_if=A b": "single value",
		"eqfield=A": "single value", "omitempty,gtcsfield=A": "single value", "structonly": "single value",
		"omitempty,file": "reads files", "image": "reads files", "email|tcp_addr": "reads files", "nope": "nope",
		"omitempty,nope=1": "nope",
	} {
		_, err := contract.New([]contract.Definition{{Name: "a", Root: "a",
			Fields: []contract.Field{{Path: "./b", Rule: rule}}}}, contract.Limits{MaxBody: 100})
		if (err == nil) != (says == "") || (err != nil && !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v, want %q", rule, err, says)
		}
	}
}

func TestSet_SuccessRules(t *testing.T) {
	t.Parallel()
	s, err := contract.New([]contract.Definition{{Name: "a", Root: "a", Success: "<ok/>"}, {Name: "b", Root: "b"}},
		contract.Limits{MaxBody: 100})
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
		Answers: map[int]string{403: "rejected", 404: "retry", 500: "unavailable"}}, {Name: "b", Root: "b"}},
		contract.Limits{MaxBody: 100})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]map[int]weir.Outcome{"a": {403: weir.OutcomeRejected, 404: weir.OutcomeRetry,
		500: weir.OutcomeUnavailable}}
	if got := s.Answers(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for says, answers := range map[string]map[int]string{"200": {200: "rejected"}, "600": {600: "retry"},
		`"dead"`: {403: "dead"}, `""`: {403: ""}} {
		_, err := contract.New([]contract.Definition{{Name: "a", Root: "a", Answers: answers}},
			contract.Limits{MaxBody: 100})
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "answers") {
			t.Errorf("%v: got %v, want answers and %s named", answers, err, says)
		}
	}
}
