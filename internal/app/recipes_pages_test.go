//go:build !race || long

package app

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"weir/internal/trial"
)

// In front of each CMS is a proxy, a firewall or a deployment that answers with a page of HTML, and
// a CMS answers a look-up with errors that no recipe knows. No such answer to the first request of
// a message is a verdict about it.
func TestRecipes_NoAnswerToTheFirstRequestJudges(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../recipes/*/messages/*.xml")
	if err != nil || len(files) < 20 {
		t.Fatalf("got %d messages of recipes and %v, want them all", len(files), err)
	}

	const page = "<!doctype html><html><head><title>404 Not Found</title></head><body><h1>Not Found</h1></body></html>"
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(filepath.Dir(file)))+"/"+filepath.Base(file),
			func(t *testing.T) {
				t.Parallel()
				config := mustAbs(t, filepath.Join(filepath.Dir(file), "../weir.yaml"))
				trials, err := OpenTrials(func(name string) string {
					return map[string]string{"WEIR_CONFIG": config}[name]
				}, false)
				if err != nil {
					t.Fatal(err)
				}

				body, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}

				try := func(answers map[string][]trial.Answer) trial.Trial {
					return trials.Try(t.Context(), "application/xml", body,
						trial.Answers{Steps: answers})
				}

				open := try(nil)
				l, _ := trials.app.sender.FindLookUp(open.Contract)
				for _, status := range []int{200, 302, 400, 401, 403, 404, 405, 406, 409,
					410, 412, 413, 414, 421, 422, 451, 499, 500, 502, 503, 511, 524} {
					answers := []trial.Answer{{Status: status, Body: page,
						Headers: map[string]string{"Content-Type": "text/html"}}}
					if open.Needs == l.Step && status > 200 && status != 414 {
						answers = append(answers,
							trial.Answer{Status: status, Body: `{"unknown":"error"}`},
							trial.Answer{Status: status, Body: "no healthy upstream"})
					}

					for _, a := range answers {
						got := try(map[string][]trial.Answer{open.Needs: {a, a, a}})
						if status == 404 && a.Body != page && got.Verdict != trial.Dead {
							continue // some recipes take it for an item that is not there
						}

						if got.Verdict == trial.Dead || got.Verdict == trial.Delivered ||
							got.Verdict == trial.Open {
							t.Errorf(
								"%s answered %d %s: got %s because of %q, want neither a verdict nor a further step",
								open.Needs, status, fmt.Sprintf("%.20s", a.Body), got.Verdict,
								got.Reason)
						}
					}
				}
			})
	}
}
