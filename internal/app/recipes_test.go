package app

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"weir/internal/weir"
)

// recipe is a recipe of the repository, against a CMS.
type recipe struct {
	t   *testing.T
	app *App
	dir string
	seq int64
}

// openRecipe reads the settings of a recipe. Each variable that they name is in the environment.
func openRecipe(t *testing.T, name string, cms http.Handler, variables map[string]string) *recipe {
	t.Helper()
	server := httptest.NewServer(cms)
	t.Cleanup(server.Close)
	dir := filepath.Join("../../recipes", name)
	values := map[string]string{"AzureWebJobsStorage": "UseDevelopmentStorage=true",
		"WEIR_CONFIG": mustAbs(t, filepath.Join(dir, "weir.yaml"))}
	for variable, value := range variables {
		values[variable] = value
		if value == "" {
			values[variable] = server.URL
		}
	}
	a, found := prepareApp(func(name string) string { return values[name] }, slog.New(slog.DiscardHandler))
	for _, err := range []error{found.settings, found.contracts, found.cms} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return &recipe{t: t, app: a, dir: dir}
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// sample returns a message of the recipe.
func (r *recipe) sample(name string) string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "messages", name))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// send delivers a body as Weir would: its contract accepts it, and the sender makes one attempt.
func (r *recipe) send(body string) weir.Result {
	r.t.Helper()
	m, err := r.app.contracts.Accept(r.t.Context(), "application/xml", []byte(body))
	if err != nil {
		r.t.Fatal(err)
	}
	r.seq++
	m.ID = weir.ID{Epoch: 1, Seq: r.seq, Nonce: "00112233445566778899"}
	return r.app.sender.Send(r.t.Context(), weir.Delivery{Message: &m, Attempt: 1, Fence: 1})
}
