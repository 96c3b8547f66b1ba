package openapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"

	"weir/internal/openapi"
)

// The document keeps to the profile. Common generators of clients fail on other forms, or make
// clients that do not work. tools/openapi/.spectral.yaml holds the same rules with their reasons,
// except those of the text.
func TestDocument_KeepsToTheProfile(t *testing.T) {
	t.Parallel()
	for _, fault := range findFaults(t, string(openapi.Document)) {
		t.Error(fault)
	}
}

// Each fragment stands for a form on which a generator failed.
func TestFindFaults(t *testing.T) {
	t.Parallel()
	schema := func(text string) string {
		return "components: { schemas: { A: { type: object, properties: { b: " + text + " } } } }"
	}
	for name, c := range map[string]struct{ text, want string }{
		"ABooleanSchema": {schema("true"), "b is a boolean"},
		"AClosedObject": {schema("{ type: object, additionalProperties: false }"),
			"additionalProperties is a boolean"},
		"BesideARef": {schema("{ $ref: '#/x', description: d }"), "stands beside $ref"},
		"NoType":     {schema("{ enum: [x] }"), "an enum without the type string"},
		"NoTypeThatGrows": {schema("{ x-extensible-enum: [x] }"),
			"an enum without the type string"},
		"NoFormat":  {schema("{ type: integer }"), "an integer without the format"},
		"TwoTypes":  {schema("{ type: [string, 'null'] }"), "several types"},
		"ADefault":  {schema("{ type: string, default: x }"), "a field with a default"},
		"AConstant": {schema("{ const: x }"), "const"},
		"OneOf":     {schema("{ oneOf: [{ type: string }] }"), "oneOf"},
		"ATimeInAHeader": {"parameters: [{ in: header, schema: { type: string, format: date-time } }]",
			"a header with a format"},
		"Multipart":        {"requestBody: { content: { multipart/mixed: {} } }", "multipart"},
		"ABareColon":       {"a: { b: about:blank }", "about:blank"},
		"TwoSuccesses":     {twoSuccesses("Message", "Receipt"), "different schemas"},
		"AQuotedColon":     {"a: { b: 'about:blank', c: \"a: b\" }", ""},
		"AColonInABlock":   {"a: about:blank", ""},
		"TheSameSuccesses": {twoSuccesses("Posted", "Posted"), ""},
		"AFieldNamedConst": {schema("{ type: object, properties: { const: { type: string } } }"),
			""},
		"AnyValue": {schema("{}"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := findFaults(t, c.text)
			if got := strings.Join(found, "; "); (got == "") != (c.want == "") ||
				!strings.Contains(got, c.want) {
				t.Errorf("got the faults %q, want %q", got, c.want)
			}
		})
	}
}

func twoSuccesses(first, second string) string {
	answer := "{ content: { application/json: { schema: { $ref: '#/%s' } } } }"
	return fmt.Sprintf("paths: { /a: { get: { responses: { '200': "+answer+", '202': "+answer+
		" } } } }", first, second)
}

// findFaults returns the places of a document that break the profile.
func findFaults(t *testing.T, text string) []string {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}

	var document any
	if err := json.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}

	p := profile{}
	p.visit("", document)

	return append(p.faults, findBareColons(text)...)
}

// findBareColons returns the plain scalars in flow collections that have a colon. SharpYaml, which
// all tools of Microsoft use, fails on them.
func findBareColons(text string) (faults []string) {
	depth := 0
	for _, each := range lexer.Tokenize(text) {
		switch each.Type {
		case token.MappingStartType, token.SequenceStartType:
			depth++
		case token.MappingEndType, token.SequenceEndType:
			depth--
		case token.StringType:
			if depth > 0 && strings.Contains(each.Value, ":") {
				faults = append(faults,
					fmt.Sprintf("line %d: %q in a flow collection has no quotes",
						each.Position.Line, each.Value))
			}
		}
	}

	return faults
}

// profile collects the faults of the parts of a document.
type profile struct{ faults []string }

func (p *profile) report(place, format string, values ...any) {
	p.faults = append(p.faults, place+": "+fmt.Sprintf(format, values...))
}

// visit looks for schemas and operations in v, which is no schema.
func (p *profile) visit(place string, v any) {
	switch v := v.(type) {
	case map[string]any:
		p.checkAlone(place, v)
		p.checkHeader(place, v)

		for _, key := range slices.Sorted(maps.Keys(v)) {
			at := place + "/" + key
			switch key {
			case "schema":
				p.checkSchema(at, v[key])
			case "schemas":
				p.checkEach(at, v[key])
			case "responses":
				p.checkSuccesses(at, v[key])
				p.visit(at, v[key])
			default:
				if strings.HasPrefix(key, "multipart/") {
					p.report(at, "multipart has a type of its own in each generator")
				}
				p.visit(at, v[key])
			}
		}

	case []any:
		for i, each := range v {
			p.visit(fmt.Sprintf("%s/%d", place, i), each)
		}
	}
}

func (p *profile) checkAlone(place string, v map[string]any) {
	if v["$ref"] == nil {
		return
	}

	for key := range v {
		if key != "$ref" {
			p.report(place, "%s stands beside $ref; want allOf", key)
		}
	}
}

func (p *profile) checkHeader(place string, v map[string]any) {
	schema, _ := v["schema"].(map[string]any)
	if v["in"] == "header" && schema["format"] != nil {
		p.report(place, "a header with a format")
	}
}

// checkSuccesses reports whether the JSON answers of all 2xx have the same schema.
func (p *profile) checkSuccesses(place string, v any) {
	responses, _ := v.(map[string]any)
	schemas := map[string]bool{}
	for status, each := range responses {
		response, _ := each.(map[string]any)
		content, _ := response["content"].(map[string]any)
		kind, _ := content["application/json"].(map[string]any)
		if schema := kind["schema"]; strings.HasPrefix(status, "2") && schema != nil {
			schemas[fmt.Sprint(schema)] = true
		}
	}

	if len(schemas) > 1 {
		p.report(place, "the successes have different schemas")
	}
}

// checkEach checks the schemas that are the values of an object.
func (p *profile) checkEach(place string, v any) {
	schemas, _ := v.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		p.checkSchema(place+"/"+name, schemas[name])
	}
}

// unknown are keywords that some generators ignore, and from which others make types that a program
// cannot use.
var unknown = []string{"const", "oneOf", "anyOf", "not", "propertyNames", "patternProperties",
	"unevaluatedProperties"}

func (p *profile) checkSchema(place string, v any) {
	schema, isObject := v.(map[string]any)
	if !isObject {
		p.report(place, "%s is a boolean; want {} for any value",
			place[strings.LastIndex(place, "/")+1:])
		return
	}

	p.checkAlone(place, schema)
	if _, isOne := schema["type"].(string); !isOne && schema["type"] != nil {
		p.report(place, "several types; want one, and the member left out for null")
	}

	isEnum := schema["enum"] != nil || schema["x-extensible-enum"] != nil
	if isEnum && schema["type"] != "string" {
		p.report(place, "an enum without the type string")
	}

	if format := schema["format"]; schema["type"] == "integer" && format != "int32" &&
		format != "int64" {
		p.report(place, "an integer without the format int32 or int64")
	}

	for _, key := range unknown {
		if schema[key] != nil {
			p.report(place, "the keyword %s is not in the profile", key)
		}
	}

	if schema["default"] != nil && strings.Contains(place, "/properties/") {
		p.report(place, "a field with a default")
	}

	p.checkEach(place+"/properties", schema["properties"])

	for _, key := range []string{"items", "additionalProperties"} {
		if schema[key] != nil {
			p.checkSchema(place+"/"+key, schema[key])
		}
	}

	all, _ := schema["allOf"].([]any)
	for i, each := range all {
		p.checkSchema(fmt.Sprintf("%s/allOf/%d", place, i), each)
	}
}

// Generators of .NET take the text of detail for the message of the exception.
func TestDocument_NamesTheMessageOfAProblem(t *testing.T) {
	t.Parallel()
	if !strings.Contains(string(openapi.Document),
		"detail: { type: string, x-ms-primary-error-message: true }") {
		t.Error("Problem.detail lacks x-ms-primary-error-message, want it")
	}
}

// The JSON form has the paths in the order of the YAML: a generator names the types of answers in
// that order.
func TestJSON_KeepsTheOrder(t *testing.T) {
	t.Parallel()
	data, err := openapi.JSON()
	if err != nil {
		t.Fatal(err)
	}

	at := -1
	for _, line := range strings.Split(string(openapi.Document), "\n") {
		path, isPath := strings.CutPrefix(line, "  /api/")
		if !isPath {
			continue
		}

		next := strings.Index(string(data), `"/api/`+strings.TrimSuffix(path, ":")+`"`)
		if next <= at {
			t.Errorf("%s is at byte %d of the JSON form, want it after byte %d", line, next, at)
		}

		at = next
	}

	if at < 0 {
		t.Error("got no path, want all of them")
	}
}
