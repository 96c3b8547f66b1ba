package steps

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"mime"
	"mime/multipart"
	"net/textproto"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"weir/internal/weir"
)

// multipartBody is a form with files (multipart/form-data). Its parts are sent in the order of the
// settings, because some CMSs need a certain order.
type multipartBody struct{ parts []*formPart }

// formPart is a field or a file. If the value of content is nil, the part is not sent.
type formPart struct {
	name     *template
	filename *template // nil = the part is a field
	// nil = a file gets the default type of its content, and a field gets no type
	contentType *template
	content     *template
}

func (f *File) compileMultipart(p pair, s *scope) body {
	items, ok := f.readList(p.value)
	if !ok || len(items) == 0 {
		f.addMistake(p.placeOfValue(), "multipart must be a list of parts, such as "+
			"- { name: file, filename: a.png, type: image/png, content: \"{{ bytes(text('./file')) }}\" }")
		return nil
	}

	b := &multipartBody{}
	for i, item := range items {
		b.parts = append(b.parts, f.compilePart(item, fmt.Sprintf("%s[%d]", p.at.path, i), s))
	}

	return b
}

func (f *File) compilePart(n ast.Node, path string, s *scope) *formPart {
	part := &formPart{}
	targets := map[string]**template{"name": &part.name, "filename": &part.filename,
		"type": &part.contentType, "content": &part.content}
	pairs, _ := f.readMapping(n, path)
	for _, p := range pairs {
		target, ok := targets[p.key]
		if !ok {
			f.addMistake(p.at,
				"%s is not a setting of a part; it has name, filename, type and content", p.key)
			continue
		}

		*target = f.compileTemplate(p.value, p.at.path, s)
		if p.key == "content" {
			f.requireContent(*target, p.placeOfValue())
			continue
		}

		f.requireText(*target, p.placeOfValue())

		if t := *target; p.key == "type" && t.isConstant() &&
			checkContentType(t.literalText()) != nil {
			f.addMistake(p.placeOfValue(), "%q is not a content type such as image/png",
				t.literalText())
		}
	}

	if part.name == nil || part.content == nil {
		f.addMistake(placeOf(n, path),
			"a part needs name and content, such as { name: title, content: \"{{ key }}\" }")
	}

	return part
}

func checkContentType(text string) error {
	kind, _, err := mime.ParseMediaType(text)
	if err == nil && !strings.Contains(kind, "/") || strings.ContainsAny(text, "\r\n") {
		return errors.New("it is not a content type")
	}
	return err
}

type evaluatedPart struct {
	header  textproto.MIMEHeader
	content []byte
}

func (b *multipartBody) renderBody(env map[string]any, _ *weir.Message) ([]byte, string, error) {
	var parts []*evaluatedPart
	hash := sha256.New()
	for _, p := range b.parts {
		part, err := p.evaluatePart(env)
		if err != nil {
			return nil, "", err
		}

		if part != nil {
			parts = append(parts, part)
			hash.Write(part.content)
		}
	}

	// The boundary is a hash of the contents. So a repeated request has the same bytes as the first
	// one, and no content has the boundary in it by chance.
	boundary := "weir-" + hex.EncodeToString(hash.Sum(nil)[:16])
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	if err := w.SetBoundary(boundary); err != nil {
		return nil, "", err
	}

	for _, part := range parts {
		target, err := w.CreatePart(part.header)
		if err != nil {
			return nil, "", err
		}

		if _, err := target.Write(part.content); err != nil {
			return nil, "", err
		}
	}

	err := w.Close()

	return out.Bytes(), w.FormDataContentType(), err
}

// evaluatePart evaluates the expressions of a part. If the value of the content is nil,
// evaluatePart returns nil.
func (p *formPart) evaluatePart(env map[string]any) (*evaluatedPart, error) {
	value, err := p.content.evaluateLeaf(env)
	if err != nil {
		return nil, err
	}

	content, contentType, hasValue, err := toContent(value)
	if err != nil || !hasValue {
		return nil, err
	}

	name, err := p.name.evaluateText(env)
	if err != nil {
		return nil, err
	}

	disposition := `form-data; name="` + escapeParameter(name) + `"`
	if p.filename != nil {
		filename, err := p.filename.evaluateText(env)
		if err != nil {
			return nil, err
		}
		disposition += `; filename="` + escapeParameter(filename) + `"`
	}

	header := textproto.MIMEHeader{"Content-Disposition": {disposition}}

	if p.contentType != nil {
		if contentType, err = p.contentType.evaluateText(env); err != nil {
			return nil, err
		}

		if err := checkContentType(contentType); err != nil {
			return nil, p.contentType.newValueError(fmt.Errorf("%.40q is not a content type",
				contentType))
		}
	}

	if p.contentType != nil || p.filename != nil {
		header["Content-Type"] = []string{contentType}
	}

	return &evaluatedPart{header, content}, nil
}

// escapeParameter escapes the name of a field or file as browsers do, so that the name cannot end
// the header.
func escapeParameter(text string) string {
	return strings.NewReplacer("\r", "%0D", "\n", "%0A", `"`, "%22").Replace(text)
}
