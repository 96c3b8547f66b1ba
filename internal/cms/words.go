package cms

import (
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Words returns the part of an answer that people want to read: the text of an error in one of the
// common shapes with the field that is wrong, the text of a page of HTML without its scripts and
// styles, the values of other JSON, or else the whole text.
func (a Answer) Words() string {
	text := a.Text()
	if a.IsErrorPage() {
		return pageWords(text)
	}

	if value, isJSON := parseObject(text); isJSON {
		if words := ErrorWords(value); words != "" {
			return words
		}
		if words := ListValues(value); words != "" {
			return words
		}
	}

	return text
}

// maxParsed limits the bytes of an answer that are parsed for its words.
const maxParsed = 256 << 10

// parseObject parses a text that is a JSON object or list.
func parseObject(text string) (value any, isJSON bool) {
	trimmed := strings.TrimSpace(text)
	if len(trimmed) > maxParsed || !strings.HasPrefix(trimmed, "{") &&
		!strings.HasPrefix(trimmed, "[") {
		return nil, false
	}

	decoder := json.NewDecoder(strings.NewReader(trimmed))
	decoder.UseNumber()

	return value, decoder.Decode(&value) == nil
}

const (
	// maxDepth is the number of objects within each other in which ErrorWords and ListValues look.
	maxDepth = 6
	// maxDetails is the number of wrong fields that ErrorWords names.
	maxDetails = 4
)

// The fields of errors. Names are compared without regard to case.
var (
	// messageNames have the text of an error, the best first.
	messageNames = []string{"message", "detail", "title", "error_description", "description",
		"info", "msg", "reason", "errormessage", "error_message", "error", "details", "code"}
	// placeNames have the path or the name of the field that is wrong.
	placeNames = []string{"path", "instancepath", "propertypath", "pointer", "parameter", "field",
		"fields", "property", "target", "param", "attribute"}
	// innerNames have further errors: a list of them, or an object.
	innerNames = []string{"errors", "details", "error", "params", "validation", "invalid-params",
		"invalidparams",
		"violations", "fielderrors", "fieldviolations", "items", "data", "extensions"}
	// fieldNames are those innerNames whose object has the errors of each wrong field by the
	// field's name.
	fieldNames = []string{"errors", "params", "validation", "fielderrors"}
	// holderNames are objects beside the text of an error. They can have content of the item, so
	// only errors in them count.
	holderNames = []string{"source", "extensions", "data"}
)

// ErrorWords returns the text of an error in an answer's JSON, and names the fields that are wrong.
// It knows the shapes of JSON:API, GraphQL, OData, problem details (RFC 9457) and of many CMSs.
// Without an error it returns "".
func ErrorWords(value any) string {
	switch v := value.(type) {
	case map[string]any:
		return describeError(v, maxDepth)
	case []any:
		return strings.Join(describeErrors(v, maxDepth), "; ")
	}
	return ""
}

// describeError returns the text of an error object, and behind it the texts of its details.
func describeError(object map[string]any, depth int) string {
	if depth == 0 {
		return ""
	}

	main := mainWords(object)
	words := addDetails(addWords(nil, main), object, depth)
	words = words[:min(len(words), maxDetails+1)]
	if main == "" || len(words) < 2 {
		return strings.Join(words, "; ")
	}

	separator := ": "
	if strings.HasSuffix(words[0], ".") {
		separator = " "
	}

	return words[0] + separator + strings.Join(words[1:], "; ")
}

// addDetails adds the texts of the errors within an object.
func addDetails(words []string, object map[string]any, depth int) []string {
	for _, name := range innerNames {
		var found []string
		switch v := fieldOf(object, name).(type) {
		case []any:
			if !slices.Contains(holderNames, name) {
				found = describeErrors(v, depth-1)
			}

		case map[string]any:
			switch {
			case slices.Contains(holderNames, name) && depth > 1:
				found = addDetails(nil, v, depth-1)
			case slices.Contains(fieldNames, name) && hasTextsOnly(v):
				found = describeFields(v)
			default:
				found = []string{describeError(v, depth-1)}
			}
		}

		for _, text := range found {
			words = addWords(words, text)
		}
	}

	return words
}

// addWords adds a text, except if one of the texts has it already. If the text only continues one
// of the texts, it takes the place of that one.
func addWords(words []string, text string) []string {
	for i, known := range words {
		switch {
		case strings.Contains(known, text):
			return words
		case strings.HasPrefix(text, known):
			words[i] = text
			return words
		}
	}

	return append(words, text)
}

// describeErrors returns the texts of a list of errors.
func describeErrors(list []any, depth int) []string {
	var words []string
	for _, item := range list[:min(len(list), maxDetails)] {
		switch v := item.(type) {
		case string:
			words = addWords(words, v)
		case map[string]any:
			words = addWords(words, describeError(v, depth))
		}
	}

	return words
}

// hasTextsOnly reports whether each field of an object is a text or a list.
func hasTextsOnly(object map[string]any) bool {
	for _, value := range object {
		switch value.(type) {
		case string, []any:
		default:
			return false
		}
	}

	return true
}

// describeFields returns a text for each field of an object that has the errors of each wrong field
// by its name.
func describeFields(object map[string]any) []string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(object)) {
		texts, isList := object[name].([]any)
		if !isList {
			texts = []any{object[name]}
		}

		if found := describeErrors(texts, 1); len(found) > 0 {
			words = append(words, name+": "+strings.Join(found, ", "))
		}
	}

	return words
}

// mainWords returns the own text of an error object, with its context and the place of the wrong
// field.
func mainWords(object map[string]any) string {
	var text string
	for _, name := range messageNames {
		if text = textOfMessage(fieldOf(object, name), name == "message"); text != "" {
			break
		}
	}

	if text == "" {
		return ""
	}

	// Ghost has the cause in a field of its own.
	if context, _ := fieldOf(object, "context").(string); !strings.Contains(text, context) {
		text += " " + context
	}

	if place := placeOfError(object); place != "" && !strings.Contains(text, place) {
		text += " (" + place + ")"
	}

	return text
}

// textOfMessage returns the value of a field as text. The field "message" can also be a list of
// texts, or an object with the text and its language, as in OData.
func textOfMessage(value any, isMessage bool) string {
	switch v := value.(type) {
	case string:
		return v
	case []any:
		if isMessage {
			return strings.Join(describeErrors(v, 0), "; ")
		}

	case map[string]any:
		if isMessage {
			text, _ := fieldOf(v, "value").(string)
			return text
		}
	}

	return ""
}

// placeOfError returns the path or the name of the field that an error object is about.
func placeOfError(object map[string]any) string {
	names := placeNames
	if fieldOf(object, "reason") != nil { // an entry of "invalid-params" of problem details
		names = append(slices.Clone(names), "name")
	}

	for _, name := range names {
		switch place := fieldOf(object, name).(type) {
		case string:
			if place != "" {
				return place
			}

		case []any:
			parts := make([]string, len(place))
			for i, part := range place {
				parts[i] = fmt.Sprint(part)
			}

			if len(parts) > 0 {
				return strings.Join(parts, ".")
			}
		}
	}

	for _, name := range holderNames {
		if inner, ok := fieldOf(object, name).(map[string]any); ok && name != "data" {
			if place := placeOfError(inner); place != "" {
				return place
			}
		}
	}

	return ""
}

// fieldOf returns the field of an object with this name in lower case, whatever the case of the
// field's own name.
func fieldOf(object map[string]any, lower string) any {
	if value, ok := object[lower]; ok {
		return value
	}

	for name, value := range object {
		if strings.EqualFold(name, lower) {
			return value
		}
	}

	return nil
}

const (
	maxListed      = 8  // values that ListValues lists
	maxListedBytes = 80 // bytes of a value that ListValues lists
)

// ListValues returns the values of JSON with their paths, such as "edit.result: Failure", those at
// the top first.
func ListValues(value any) string {
	type branch struct {
		path  string
		value any
	}

	var listed []string
	level := []branch{{"", value}}
	for range maxDepth {
		var deeper []branch
		for _, b := range level {
			join := func(name string) string { return strings.TrimPrefix(b.path+"."+name, ".") }
			switch v := b.value.(type) {
			case map[string]any:
				for _, name := range slices.Sorted(maps.Keys(v)) {
					deeper = append(deeper, branch{join(name), v[name]})
				}

			case []any:
				for i, item := range v[:min(len(v), maxListed)] {
					deeper = append(deeper, branch{join(fmt.Sprint(i)), item})
				}

			case nil:
				listed = append(listed, b.path+": null")
			default:
				text := fmt.Sprint(v)
				if len(text) > maxListedBytes {
					text = strings.ToValidUTF8(text[:maxListedBytes], "") + "…"
				}
				listed = append(listed, b.path+": "+text)
			}
		}

		level = deeper
	}

	if len(listed) > maxListed {
		listed = append(listed[:maxListed], "…")
	}

	return strings.Join(listed, ", ")
}

var (
	// unseen matches the parts of a page that a reader does not see, up to the end of a page that
	// was cut off.
	unseen = regexp.MustCompile(`(?is)<!--.*?(?:-->|$)` +
		unseenElements("script", "style", "noscript", "template", "svg", "iframe", "select"))
	pageTitle  = regexp.MustCompile(`(?is)<title[^>]*>(.*?)(?:</title\s*>|$)`)
	markup     = regexp.MustCompile(`(?s)<[^>]*(?:>|$)`)
	whiteSpace = regexp.MustCompile(`[\s\x{A0}]+`)
)

func unseenElements(names ...string) string {
	var pattern strings.Builder
	for _, name := range names {
		fmt.Fprintf(&pattern, `|<%[1]s\b.*?(?:</%[1]s\s*>|$)`, name)
	}
	return pattern.String()
}

// pageWords returns the title and the text of a page of HTML. A page that only has scripts has
// none.
func pageWords(page string) string {
	page = unseen.ReplaceAllString(page[:min(len(page), maxParsed)], " ")
	var title string
	if found := pageTitle.FindStringSubmatch(page); found != nil {
		title = readableText(found[1])
		page = strings.Replace(page, found[0], " ", 1)
	}

	text := strings.TrimSpace(strings.TrimPrefix(readableText(page), title))
	if title == "" || text == "" {
		return title + text
	}

	return title + ": " + text
}

// readableText returns the text of HTML as one line.
func readableText(part string) string {
	text := html.UnescapeString(markup.ReplaceAllString(part, " "))
	return strings.TrimSpace(whiteSpace.ReplaceAllString(text, " "))
}
