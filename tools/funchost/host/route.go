package host

import (
	"fmt"
	"regexp"
	"strings"
)

// routeTemplate is a route in ASP.NET's syntax: literals, {name}, {name?}, {name:constraint},
// {*rest}. In a regex constraint each brace is written twice. Each segment is either one literal or
// one parameter.
type routeTemplate struct {
	text     string
	segments []routeSegment
}

type routeSegment struct {
	literal    string
	name       string
	isOptional bool
	isCatchAll bool // {*name}: the rest of the path
	constraint *regexp.Regexp
}

func parseTemplate(text string) (routeTemplate, error) {
	t := routeTemplate{text: text}
	if text == "" {
		return t, nil
	}

	parts := splitTemplate(text)
	for i, part := range parts {
		s, err := parseSegment(part)
		if err != nil {
			return routeTemplate{}, fmt.Errorf("route %q: %w", text, err)
		}

		if s.isCatchAll && (s.isOptional || i != len(parts)-1) {
			return routeTemplate{},
				fmt.Errorf("route %q: a catch-all is the last segment, and never optional", text)
		}

		t.segments = append(t.segments, s)
	}

	return t, nil
}

// splitTemplate splits a template at the slashes outside of parameters. A regex constraint can
// contain slashes.
func splitTemplate(text string) []string {
	var parts []string
	depth, from := 0, 0
	for i := range len(text) {
		switch {
		case text[i] == '{':
			depth++ // "{{" in a regex constraint adds 2, and "}}" subtracts 2
		case text[i] == '}':
			depth--
		case text[i] == '/' && depth == 0:
			parts, from = append(parts, text[from:i]), i+1
		}
	}

	return append(parts, text[from:])
}

func parseSegment(part string) (routeSegment, error) {
	if !strings.ContainsAny(part, "{}") {
		if part == "" {
			return routeSegment{}, fmt.Errorf("a segment is empty")
		}
		return routeSegment{literal: part}, nil
	}

	inner, ok := strings.CutPrefix(part, "{")
	if ok {
		inner, ok = strings.CutSuffix(inner, "}")
	}

	name, constraint, hasConstraint := strings.Cut(inner, ":")
	if !ok || strings.ContainsAny(name, "{}=/") {
		return routeSegment{}, fmt.Errorf("segment %q is not supported here", part)
	}

	s := routeSegment{}
	if trimmed := strings.TrimLeft(name, "*"); trimmed != name {
		name, s.isCatchAll = trimmed, true
	}

	if hasConstraint {
		constraint, s.isOptional = strings.CutSuffix(constraint, "?")
	} else {
		name, s.isOptional = strings.CutSuffix(name, "?")
	}

	if s.name = name; name == "" {
		return routeSegment{}, fmt.Errorf("segment %q has no name", part)
	}

	if !hasConstraint {
		return s, nil
	}

	constraint, err := undoubleBraces(constraint)
	if err == nil {
		s.constraint, err = parseConstraint(constraint)
	}

	return s, err
}

// undoubleBraces replaces doubled braces within a parameter by single ones. A single brace is an
// error.
func undoubleBraces(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '{' || s[i] == '}' {
			if i+1 == len(s) || s[i+1] != s[i] {
				return "", fmt.Errorf("constraint %q: braces within a parameter are written twice",
					s)
			}
			i++
		}

		b.WriteByte(s[i])
	}

	return b.String(), nil
}

// matchPath matches a path that is decoded except for %2F. It ignores case. It also ignores a slash
// at the end of the path, but keeps this slash in the value of a catch-all. A path with an empty
// segment matches only if a catch-all began at an earlier segment.
func (t routeTemplate) matchPath(path string) (params map[string]string, ok bool) {
	path = strings.TrimPrefix(path, "/")
	var parts []string
	if trimmed := strings.TrimSuffix(path, "/"); trimmed != "" {
		parts = strings.Split(trimmed, "/")
	}

	params = map[string]string{}
	for i, s := range t.segments {
		switch {
		case i < len(parts) && parts[i] == "":
			return nil, false
		case s.isCatchAll:
			return params, s.captureRest(params, path, i)
		case i >= len(parts) &&
			s.isOptional: // skip the segment; later segments can be optional, too
		case i >= len(parts):
			return nil, false
		case s.name == "":
			if !strings.EqualFold(parts[i], s.literal) {
				return nil, false
			}

		case s.constraint != nil && !s.constraint.MatchString(parts[i]):
			return nil, false
		default:
			params[s.name] = parts[i]
		}
	}

	return params, len(parts) <= len(t.segments)
}

// captureRest sets the parameter to the rest of the path from segment "from" on. The value includes
// a slash at the end of the path. captureRest reports whether the value passes the constraint. If
// no segment is left, the parameter gets no value, and any constraint counts as failed.
func (s routeSegment) captureRest(params map[string]string, path string, from int) bool {
	parts := strings.SplitN(path, "/", from+1)
	if len(parts) <= from || parts[from] == "" {
		return s.constraint == nil
	}
	params[s.name] = parts[from]
	return s.constraint == nil || s.constraint.MatchString(parts[from])
}
