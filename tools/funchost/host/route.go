package host

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// template is a route in ASP.NET's syntax: literals, {name}, {name?}, {name:constraint}, {*rest}.
// A segment is either all literal or all parameter.
type template struct {
	text     string
	segments []segment
}

type segment struct {
	literal  string
	name     string
	optional bool
	rest     bool // catch-all
	check    *regexp.Regexp
}

var constraints = map[string]*regexp.Regexp{
	"int":   regexp.MustCompile(`^-?\d{1,10}$`),
	"long":  regexp.MustCompile(`^-?\d{1,19}$`),
	"guid":  regexp.MustCompile(`(?i)^[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}$`),
	"bool":  regexp.MustCompile(`(?i)^(true|false)$`),
	"alpha": regexp.MustCompile(`(?i)^[a-z]*$`),
}

func parseTemplate(text string) (template, error) {
	t := template{text: text}
	if text == "" {
		return t, nil
	}
	parts := strings.Split(text, "/")
	for i, part := range parts {
		s, err := parseSegment(part)
		if err != nil {
			return template{}, fmt.Errorf("route %q: %w", text, err)
		}
		if (s.optional || s.rest) && i != len(parts)-1 {
			return template{}, fmt.Errorf("route %q: only the last segment can be optional or a catch-all", text)
		}
		t.segments = append(t.segments, s)
	}
	return t, nil
}

func parseSegment(part string) (segment, error) {
	if !strings.ContainsAny(part, "{}") {
		if part == "" {
			return segment{}, fmt.Errorf("a segment is empty")
		}
		return segment{literal: part}, nil
	}
	inner, ok := strings.CutPrefix(part, "{")
	if ok {
		inner, ok = strings.CutSuffix(inner, "}")
	}
	if !ok || strings.ContainsAny(inner, "{}=") {
		return segment{}, fmt.Errorf("segment %q is not supported here", part)
	}
	s := segment{}
	if trimmed := strings.TrimLeft(inner, "*"); trimmed != inner {
		inner, s.rest = trimmed, true
	}
	inner, s.optional = strings.CutSuffix(inner, "?")
	var constraint string
	if s.name, constraint, ok = strings.Cut(inner, ":"); ok {
		if s.check = constraints[constraint]; s.check == nil {
			return segment{}, fmt.Errorf("constraint %q is not supported here", constraint)
		}
	}
	if s.name == "" {
		return segment{}, fmt.Errorf("segment %q has no name", part)
	}
	return s, nil
}

// match compares a path as it came, still escaped. A trailing slash does not count, nor does case.
func (t template) match(escapedPath string) (params map[string]string, ok bool) {
	var parts []string
	if path := strings.TrimSuffix(strings.TrimPrefix(escapedPath, "/"), "/"); path != "" {
		parts = strings.Split(path, "/")
	}
	params = map[string]string{}
	for i, s := range t.segments {
		switch {
		case s.rest:
			params[s.name] = unescape(strings.Join(parts[min(i, len(parts)):], "/"))
			return params, true
		case i >= len(parts):
			return params, s.optional
		case s.name == "":
			if !strings.EqualFold(unescape(parts[i]), s.literal) {
				return nil, false
			}
		default:
			value := unescape(parts[i])
			if value == "" || s.check != nil && !s.check.MatchString(value) {
				return nil, false
			}
			params[s.name] = value
		}
	}
	return params, len(parts) == len(t.segments)
}

func unescape(s string) string {
	if u, err := url.PathUnescape(s); err == nil {
		return u
	}
	return s
}
