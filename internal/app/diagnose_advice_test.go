package app

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/internal/diagnosis"
)

// The advice of a finding names the setting that is wrong, and not another one.
func TestDiagnose_AdviceNamesTheSetting(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	const contracts = "\ncontracts: [ { name: note, root: note } ]\n"
	for name, c := range map[string]struct{ delivery, finding, todo string }{
		"KeyOfJWT": {"url: " + server.URL +
			", signIn: { jwt: { alg: HS256, key: nothex, keyIs: hex } }", "cms",
			"correct delivery.signIn.jwt in weir.yaml, or the variable that it names"},
		"Header": {"url: " + server.URL + ", headers: { Weir-Key: a }", "cms",
			"correct delivery.headers in weir.yaml, or the variable that it names"},
		"TLS": {"url: " + server.URL + ", tls: { ca: /nowhere }", "cms",
			"correct delivery.tls in weir.yaml, or the variable that it names"},
		"URL": {"url: cms.example", "cms",
			"correct delivery.url in weir.yaml, or the variable that it names"},
	} {
		found := false
		for _, f := range Diagnose(t.Context(),
			newEnvironment(t, "delivery: { "+c.delivery+" }"+contracts), nil) {
			if f.Name != c.finding {
				continue
			}

			found = true
			if f.Wrong == nil || f.Todo != c.todo {
				t.Errorf("%s: got %v with the advice %q, want %q", name, f.Wrong, f.Todo, c.todo)
			}
		}

		if !found {
			t.Errorf("%s: got no finding %s", name, c.finding)
		}
	}
}

// Without a storage account one line is wrong, and not that of the settings, too.
func TestDiagnose_NoStorageIsOneLine(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	env := newEnvironment(t, "delivery: { url: "+server.URL+
		" }\ncontracts: [ { name: note, root: note } ]\n", "AzureWebJobsStorage", "")
	var wrong []string
	for _, f := range Diagnose(t.Context(), env, nil) {
		if f.Wrong != nil {
			wrong = append(wrong, f.Name+": "+f.Wrong.Error())
		}
	}

	if len(wrong) != 1 || !strings.HasPrefix(wrong[0], "storage: AzureWebJobsStorage is not set") {
		t.Errorf("got the wrong lines %q, want the one of storage", wrong)
	}
}

// weir check names the line that lets a page of HTML be a success, for each contract that lacks it.
func TestDiagnoseOffline_NamesPagesOfSuccess(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t, "delivery: { url: https://cms.example }\ncontracts:\n  - { name: a, root: a }\n"+
		"  - { name: b, root: b, success: saved }\n  - { name: c, root: c, steps: [ { get: /c } ] }\n  - { "+
		"name: d, root: d }\n")
	var got string
	for _, f := range DiagnoseOffline(env) {
		if f.Name == "answers" {
			got = f.Detail
		}
	}

	if !strings.HasPrefix(got, "a, d: ") ||
		!strings.Contains(got, "write success: '<text of the page>' in the "+"contract") {
		t.Errorf("got %q, want the contracts a and d, and the line", got)
	}
}

// A look-up by the key that nothing compares with the key is a warning, with and without the CMS.
func TestDiagnose_WarnsOfLookUps(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	env := newEnvironment(t, "delivery: { url: "+server.URL+" }\n"+`
contracts:
  - name: a
    root: a
    key: ./@id
    steps:
      - { name: find, get: "/items?ref={{ key }}" }
      - { name: update, put: "/items/{{ find.json[0].id }}", json: {} }
`)
	all := [][]diagnosis.Finding{Diagnose(t.Context(), env, nil), DiagnoseOffline(env)}
	for _, findings := range all {
		var warnings []string
		for _, f := range findings {
			if f.Name == "contracts" {
				warnings = f.Warnings
			}
		}

		if len(warnings) != 1 ||
			!strings.HasPrefix(warnings[0], "a: find finds an item by the key, update "+
				"writes to it") {
			t.Errorf("got the warnings %q, want one about find and update", warnings)
		}
	}
}
