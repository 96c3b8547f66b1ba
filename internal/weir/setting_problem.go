package weir

import "fmt"

// SettingProblem is a problem of one setting. The package that checks a setting knows its path, and
// package settings adds the place in weir.yaml.
type SettingProblem struct {
	Path    string // such as contracts[2].fields[0]; "" = no single setting
	Message string // a sentence that names the setting
	// IsOfText reports that the text in the file is wrong, whatever values its variables have.
	IsOfText bool

	File         string // name of the file; "" = not known
	Line, Column int    // place of the setting in the file, from 1; 0 = not known
}

// NewSettingProblem returns the problem of the setting at a path. The message is the text with the
// path as its subject: see Problem.Sentence.
func NewSettingProblem(path, format string, args ...any) *SettingProblem {
	text := Problem{Path: path, Message: fmt.Sprintf(format, args...)}.Sentence()
	return &SettingProblem{Path: path, Message: text}
}

// OfText returns the problem with IsOfText set.
func (p *SettingProblem) OfText() *SettingProblem {
	p.IsOfText = true
	return p
}

// Within returns the problem of a setting in a group, with the prefix of the group in front of its
// path and its message. A prefix ends with a dot, such as notify[0].
func (p *SettingProblem) Within(prefix string) *SettingProblem {
	return &SettingProblem{Path: prefix + p.Path, Message: prefix + p.Message}
}

// Error returns the message behind the place in the file.
func (p *SettingProblem) Error() string {
	text := p.Message
	if p.Line > 0 {
		text = fmt.Sprintf("[%d:%d] %s", p.Line, p.Column, text)
	}

	if p.File != "" {
		text = p.File + ": " + text
	}

	return text
}
