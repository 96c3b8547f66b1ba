package openapitest

import "strings"

// tighten makes the schemas of a document stricter for tests than for clients. Clients have to take
// fields and values that the document lacks, so that a release can add some. Tests must find them:
//   - No object has a field that its schema lacks.
//   - A field with x-extensible-enum has one of these values.
func tighten(root map[string]any) {
	parts := map[string]bool{}
	findParts(root, parts)
	for name, schema := range asObject(asObject(root["components"])["schemas"]) {
		tightenSchema(schema, parts["#/components/schemas/"+name])
	}

	tightenEach(root["paths"])
	tightenEach(asObject(root["components"])["responses"])
}

// findParts collects the references in all lists of allOf. A schema that is a part of others must
// allow their fields.
func findParts(v any, parts map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		all, _ := v["allOf"].([]any)
		for _, each := range all {
			if ref, ok := asObject(each)["$ref"].(string); ok {
				parts[ref] = true
			}
		}

		for _, each := range v {
			findParts(each, parts)
		}

	case []any:
		for _, each := range v {
			findParts(each, parts)
		}
	}
}

// tightenEach tightens each schema below v, which is no schema itself.
func tightenEach(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, each := range v {
			if key == "schema" {
				tightenSchema(each, false)
				continue
			}
			tightenEach(each)
		}

	case []any:
		for _, each := range v {
			tightenEach(each)
		}
	}
}

// tightenSchema tightens a schema and the schemas in it. If the schema is a part of others, it
// stays open.
func tightenSchema(v any, isPart bool) {
	schema := asObject(v)
	if schema == nil {
		return
	}

	if values, ok := schema["x-extensible-enum"]; ok {
		schema["enum"] = values
	}

	for _, each := range asObject(schema["properties"]) {
		tightenSchema(each, false)
	}

	tightenSchema(schema["items"], false)
	tightenSchema(schema["additionalProperties"], false)
	all, _ := schema["allOf"].([]any)
	for _, each := range all {
		tightenSchema(each, true)
	}

	hasFields := schema["properties"] != nil || hasObjects(all)
	if hasFields && schema["additionalProperties"] == nil && !isPart {
		schema["unevaluatedProperties"] = false
	}
}

// hasObjects reports whether a list of allOf makes an object of several schemas.
func hasObjects(all []any) bool {
	for _, each := range all {
		ref, _ := asObject(each)["$ref"].(string)
		if asObject(each)["properties"] != nil || strings.HasPrefix(ref, "#/components/schemas/") {
			return true
		}
	}
	return false
}
