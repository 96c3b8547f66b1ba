package app

import (
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"weir/internal/weir"
)

// recipe is an App with the settings of one folder of recipes/. The App writes to a fake CMS.
type recipe struct {
	t   *testing.T
	app *App
	dir string
	seq int64
}

// openRecipe opens the recipe in the folder recipes/<name>. The argument "variables" has the
// environment variables that the recipe's weir.yaml names. An empty value stands for the address of
// the fake CMS.
func openRecipe(t *testing.T, name string, cms http.Handler, variables map[string]string) *recipe {
	t.Helper()
	server := httptest.NewServer(cms)
	t.Cleanup(server.Close)
	dir := filepath.Join("../../recipes", name)
	values := map[string]string{}
	for variable, value := range variables {
		values[variable] = value
		if value == "" {
			values[variable] = server.URL
		}
	}

	return openSettings(t, filepath.Join(dir, "weir.yaml"), values)
}

// openSettings opens a recipe with the settings in a file. The argument "variables" has the
// environment variables that the file names.
func openSettings(t *testing.T, file string, variables map[string]string) *recipe {
	t.Helper()
	values := map[string]string{"AzureWebJobsStorage": "UseDevelopmentStorage=true",
		"WEIR_CONFIG": mustAbs(t, file)}
	maps.Copy(values, variables)
	a, found := prepareApp(func(name string) string { return values[name] },
		slog.New(slog.DiscardHandler))
	for _, err := range []error{found.Settings, found.Contracts, found.CMS} {
		if err != nil {
			t.Fatal(err)
		}
	}

	return &recipe{t: t, app: a, dir: filepath.Dir(file)}
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// readSample returns a file of the recipe's folder "messages".
func (r *recipe) readSample(name string) string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "messages", name))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// sendBody makes one attempt to write a message with this body to the fake CMS.
func (r *recipe) sendBody(body string) weir.Result {
	r.t.Helper()
	return r.sendRemembering(body, "")
}

// sendRemembering does what sendBody does. The argument "id" is the CMS's id of the key's item,
// remembered from an earlier message. If "id" is empty, no id is remembered.
func (r *recipe) sendRemembering(body, id string) weir.Result {
	r.t.Helper()
	m, err := r.app.contracts.Accept(r.t.Context(), "application/xml", []byte(body))
	if err != nil {
		r.t.Fatal(err)
	}

	r.seq++
	m.ID = weir.ID{Epoch: 1, Seq: r.seq, Nonce: "00112233445566778899"}

	return r.app.sender.Send(r.t.Context(),
		weir.Delivery{Message: &m, Attempt: 1, Fence: 1, RememberedID: id})
}

// A wrong address of the CMS is a mistake in the settings, so the outcome must be unavailable. With
// the outcome rejected, every message would become dead.
func TestRecipe_NoAPIAtTheAddress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		variables map[string]string
		reason    string
	}{
		"wordpress": {
			map[string]string{"WORDPRESS_URL": "", "WORDPRESS_USER": "weir",
				"WORDPRESS_PASSWORD": "p"}, "no REST API",
		},
		"directus": {map[string]string{"DIRECTUS_URL": "", "DIRECTUS_TOKEN": "t"},
			"does not serve this address"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := openRecipe(t, name, http.NotFoundHandler(), c.variables)
			for _, message := range []string{"article.xml", "delete.xml"} {
				checkResult(t, r.sendBody(r.readSample(message)), weir.OutcomeUnavailable,
					c.reason, "find")
			}
		})
	}
}
