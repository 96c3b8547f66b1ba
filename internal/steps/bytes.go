package steps

import (
	"encoding/base64"
	"errors"
	"reflect"
	"strings"

	"weir/internal/weir"
)

// rawBytes is a value of bytes that are not text, such as a picture. Only the settings "body" and
// "multipart" accept such a value.
type rawBytes struct{ content []byte }

var rawBytesType = reflect.TypeFor[*rawBytes]()

const bytesElsewhere = "bytes belong to body, or to the content of a part of multipart"

// decodeBytes decodes base64. It accepts the standard alphabet and the alphabet for URLs, with or
// without padding and white space. If value is nil, decodeBytes returns nil.
func decodeBytes(value any) (*rawBytes, error) {
	if value == nil {
		return nil, nil
	}

	if _, isPending := value.(pendingValue); isPending {
		return &rawBytes{}, nil
	}

	text, err := toText(value)
	if err != nil {
		return nil, err
	}

	text = strings.NewReplacer("\n", "", "\r", "", "\t", "", " ", "", "-", "+", "_", "/").Replace(text)
	content, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		return nil, errors.New("the text is not base64")
	}

	return &rawBytes{content}, nil
}

// toContent returns a value as the content of a body, or of a part of a multipart body, with the
// default content type. hasValue is false if the value is nil.
func toContent(value any) (content []byte, contentType string, hasValue bool, err error) {
	if raw, ok := value.(*rawBytes); ok {
		return raw.content, "application/octet-stream", true, nil
	}
	text, err := toText(value)
	return []byte(text), "text/plain; charset=utf-8", value != nil, err
}

// requireContent records a mistake if toContent can never accept the value of t.
func (f *File) requireContent(t *template, at place) {
	if t.isSingle() && t.parts[0].expression.kind == rawBytesType {
		return
	}
	f.requireText(t, at)
}

// valueBody is a body that consists of one value.
type valueBody struct{ value *template }

func (b *valueBody) renderBody(env map[string]any, _ *weir.Message) ([]byte, string, error) {
	value, err := b.value.evaluateLeaf(env)
	if err != nil {
		return nil, "", err
	}

	content, contentType, hasValue, err := toContent(value)
	if err == nil && !hasValue {
		err = b.value.parts[0].expression.newValueError(
			errors.New("it is nil, and a body needs a value"))
	}

	return content, contentType, err
}

// compileValueBody compiles the setting "body": the word "message" for the message's own body, or
// one value.
func (f *File) compileValueBody(p pair, s *scope) body {
	text, ok := readText(p.value)
	switch {
	case text == "message" && s.chain == nil:
		f.addMistake(p.at, "signing in has no message; write json or form")
		return messageBody{}
	case text == "message":
		return messageBody{}
	case !ok || !strings.Contains(text, "{{"):
		f.addMistake(p.placeOfValue(),
			"it must be message (the message's own bytes), or a value such as "+
				"{{ bytes(text('./file')) }}; for other bodies write json, form, xml or multipart")
		return messageBody{}
	}

	t := f.compileTemplate(p.value, p.at.path, s)
	f.requireContent(t, p.placeOfValue())

	return &valueBody{t}
}
