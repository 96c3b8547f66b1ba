// Package monitoring_test checks that alert rules and the Grafana dashboard use only metrics and
// labels that the program has. The rules are in deploy/ and infra/, the dashboard is in deploy/.
// The tests parse expressions with Prometheus's own parser.
package monitoring_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/goccy/go-yaml"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"weir/internal/drain"
	"weir/internal/notify"
	"weir/internal/telemetry"
	"weir/internal/weir"
)

// ruleFile is Prometheus's format of a rule file.
type ruleFile struct {
	Groups []struct {
		Name     string      `yaml:"name"`
		Interval string      `yaml:"interval"`
		Rules    []alertRule `yaml:"rules"`
	} `yaml:"groups"`
}

type alertRule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

type storageCounts struct{}

func (storageCounts) Snapshot() map[string]int64 { return map[string]int64{"table transact": 1} }
func (storageCounts) Failures() map[string]int64 { return nil }

// gatherMetrics returns the program's metrics by name. It first records an attempt and other
// events, because some metrics exist only after such an event.
func gatherMetrics(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	m := telemetry.NewMetrics(telemetry.Config{Contracts: []string{"article"},
		Storage: storageCounts{}, Now: time.Now})
	m.Attempted(0, &weir.Message{}, weir.Result{Status: 200}, weir.OutcomeDelivered)
	m.Lease(0, drain.LeaseTaken)
	m.Saw(0, telemetry.LaneView{Missing: map[string]int64{"article": 1},
		Braked: map[string]int64{"article": 1}})
	notify.NewMetrics(m.Registry, func() int { return 0 }).Notified("event", "outcome")
	gathered, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}

	known := map[string]*dto.MetricFamily{}
	for _, f := range gathered {
		known[f.GetName()] = f
		if f.GetType() == dto.MetricType_HISTOGRAM {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				known[f.GetName()+suffix] = f
			}
		}
	}

	return known
}

// added has the labels that do not come from the program: scraping adds job and instance,
// histograms add le.
var added = []string{"job", "instance", "le"}

func labelNames(f *dto.MetricFamily) []string {
	names := slices.Clone(added)
	for _, l := range f.Metric[0].Label {
		names = append(names, l.GetName())
	}
	return names
}

// checkExpression returns an error if an expression is not valid, or uses a metric or a label that
// does not exist.
func checkExpression(known map[string]*dto.MetricFamily, expr string) error {
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return err
	}

	var errs []error
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}

		f := known[v.Name]
		if f == nil {
			errs = append(errs, fmt.Errorf("there is no metric %s", v.Name))
			return nil
		}

		for _, m := range v.LabelMatchers {
			if m.Name != model.MetricNameLabel && !slices.Contains(labelNames(f), m.Name) {
				errs = append(errs, fmt.Errorf("%s has no label %s", v.Name, m.Name))
			}
		}

		return nil
	})

	return errors.Join(errs...)
}

func TestCheck_FindsMistakes(t *testing.T) {
	t.Parallel()
	known := gatherMetrics(t)
	for _, expr := range []string{"sum(", "weir_lane_depth", `weir_lane_waiting{stage="dead"}`,
		"rate(weir_lane_waiting)"} {
		if checkExpression(known, expr) == nil {
			t.Errorf("checkExpression(%s) = no error, want one", expr)
		}
	}

	if err := checkExpression(known, `histogram_quantile(0.5,`+
		` sum by (le) (rate(weir_delivery_lag_seconds_bucket{job="a"}[5m])))`); err != nil {
		t.Error(err)
	}
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	var r ruleFile
	if err := yaml.UnmarshalWithOptions(readFile(t, "deploy/alerts.yaml"), &r, yaml.Strict()); err != nil {
		t.Fatal(err)
	}

	known, runbook, seen := gatherMetrics(t), readAnchors(t), map[string]bool{}
	for _, g := range r.Groups {
		checkDuration(t, g.Name, g.Interval)
		for _, a := range g.Rules {
			if err := checkExpression(known, a.Expr); err != nil || seen[a.Alert] || a.Alert == "" {
				t.Errorf("alert %q: %v, seen before: %v; want a name of its own and a good expression", a.Alert, err,
					seen[a.Alert])
			}

			seen[a.Alert] = true
			if a.For != "" {
				checkDuration(t, a.Alert, a.For)
			}

			if !slices.Contains([]string{"info", "warning", "critical"}, a.Labels["severity"]) {
				t.Errorf("%s: severity %q, want info, warning or critical", a.Alert,
					a.Labels["severity"])
			}

			checkAnnotations(t, a)
			if url, ok := strings.CutPrefix(a.Annotations["runbook_url"], "docs/operations.md#"); !ok || !runbook[url] {
				t.Errorf("%s: the runbook has no section %q", a.Alert, a.Annotations["runbook_url"])
			}
		}
	}

	if len(seen) < 15 {
		t.Errorf("got %d alerts, want at least 15", len(seen))
	}
}

func checkDuration(t *testing.T, name, text string) {
	t.Helper()
	if _, err := model.ParseDuration(text); err != nil {
		t.Errorf("parse the duration of %s: %v", name, err)
	}
}

// checkAnnotations checks that an alert has its texts, and that Prometheus can fill them in as
// templates.
func checkAnnotations(t *testing.T, a alertRule) {
	t.Helper()
	same := func(v any) any { return v }
	funcs := template.FuncMap{"humanize": same, "humanizeDuration": same,
		"humanizePercentage": same}

	for _, name := range []string{"summary", "description", "runbook_url"} {
		text := a.Annotations[name]
		filled, err := template.New(name).Funcs(funcs).Parse(
			"{{ $labels := .Labels }}{{ $value := .Value }}" + text)
		if err == nil {
			err = filled.Execute(&strings.Builder{},
				map[string]any{"Labels": map[string]string{}, "Value": 1.0})
		}

		if text == "" || err != nil {
			t.Errorf("%s: got %s %q: %v, want a text and no error", a.Alert, name, text, err)
		}
	}
}

// readAnchors returns the anchors of the runbook's sections, in the form that links use.
func readAnchors(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(
		string(readFile(t, "docs/operations.md")),
		-1) {
		name := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		found[strings.ReplaceAll(name, " ", "-")] = true
	}

	return found
}

func TestDashboard(t *testing.T) {
	t.Parallel()
	var d struct {
		Title       string
		Annotations struct{ List []struct{ Expr string } }
		Panels      []struct {
			ID      int
			Type    string
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(readFile(t, "deploy/grafana.json"), &d); err != nil {
		t.Fatal(err)
	}

	known, ids, exprs := gatherMetrics(t), map[int]bool{}, []string{}
	for _, a := range d.Annotations.List {
		exprs = append(exprs, a.Expr)
	}

	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %d %q has %d targets, want an id of its own, a title and some targets",
				p.ID, p.Title, len(p.Targets))
		}

		ids[p.ID] = true
		for _, target := range p.Targets {
			exprs = append(exprs, target.Expr)
		}
	}

	fill := strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$job", ".*")
	for _, expr := range exprs {
		if err := checkExpression(known, fill.Replace(expr)); err != nil {
			t.Errorf("parse the expression %s: %v", expr, err)
		}
	}

	if len(exprs) < 20 {
		t.Errorf("got %d expressions, want at least 20", len(exprs))
	}
}

// Each of Weir's own metrics has a panel, so that a new one is not forgotten.
func TestDashboard_ShowsEachMetric(t *testing.T) {
	t.Parallel()
	text := string(readFile(t, "deploy/grafana.json"))
	for name, f := range gatherMetrics(t) {
		isShown := regexp.MustCompile(f.GetName() + `(_bucket|_sum|_count)?\b`).MatchString(text)
		if strings.HasPrefix(name, "weir_") && !isShown {
			t.Errorf("%s: got no panel in deploy/grafana.json, want one", f.GetName())
		}
	}
}

func TestAzureAlerts_AskForKnownMetrics(t *testing.T) {
	t.Parallel()
	known := gatherMetrics(t)
	text := string(readFile(t, "infra/modules/prometheus.bicep"))
	found := regexp.MustCompile(`(?m)^\s+expression: '(.+)'$`).FindAllStringSubmatch(text, -1)
	if len(found) < 5 {
		t.Errorf("got %d expressions, want at least 5", len(found))
	}

	for _, m := range found {
		if err := checkExpression(known, m[1]); err != nil {
			t.Errorf("parse the expression %s: %v", m[1], err)
		}
	}
}

func TestAzureAlerts_NameSectionsOfTheRunbook(t *testing.T) {
	t.Parallel()
	runbook, seen := readAnchors(t), 0
	for _, name := range []string{"alerts.bicep", "prometheus.bicep"} {
		text := string(readFile(t, "infra/modules/"+name))
		sections := regexp.MustCompile(`(?:runbook: '|operations\.md#)([a-z0-9-]+)`)
		for _, m := range sections.FindAllStringSubmatch(text, -1) {
			seen++
			if !runbook[m[1]] {
				t.Errorf("%s: the runbook has no section %q", name, m[1])
			}
		}
	}

	if seen < 15 {
		t.Errorf("got %d names of sections, want at least 15", seen)
	}
}

// readFile reads a file by its path from the root of the repository.
func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", path))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
