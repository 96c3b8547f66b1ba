package steps

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"

	"weir/internal/weir"
)

type preparedRequest struct {
	method, address string
	content         []byte
	contentType     string
	accept          string
	headers         http.Header
}

// prepareRequest evaluates the expressions of a step's request.
func (st *step) prepareRequest(env map[string]any, m *weir.Message) (*preparedRequest, error) {
	p := &preparedRequest{method: st.method, accept: st.accept}
	var err error
	if p.address, err = st.address.expandAddress(env); err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}

	if st.body != nil {
		if p.content, p.contentType, err = st.body.renderBody(env, m); err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
	}

	p.headers, err = evaluateHeaders(st.headers, env)

	return p, err
}

// evaluateHeaders returns the headers with their values. A header whose value is nil is left out.
func evaluateHeaders(headers []header, env map[string]any) (http.Header, error) {
	if len(headers) == 0 {
		return nil, nil
	}

	out := http.Header{}
	for _, h := range headers {
		value, err := h.value.evaluateLeaf(env)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", h.name, err)
		}

		text, err := toText(value)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", h.name, err)
		}

		if strings.ContainsFunc(text, isControl) {
			return nil, h.value.newValueError(
				fmt.Errorf("header %s: a line break or another control character cannot "+
					"stand in a header", h.name))
		}

		if value != nil {
			out.Set(h.name, text)
		}
	}

	return out, nil
}

// isControl reports whether a character cannot stand in a header. If net/http refused such a
// header, the error would look like a CMS that cannot be reached, and one message would pause the
// lane.
func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// newRequest returns the request for net/http. It removes GetBody, so that net/http does not send
// the body a second time by itself.
func (p *preparedRequest) newRequest(ctx context.Context) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, p.method, p.address, bytes.NewReader(p.content))
	if err != nil {
		return nil, err
	}

	req.GetBody = nil
	if p.accept != "" {
		req.Header.Set("Accept", p.accept)
	}

	if p.contentType != "" {
		req.Header.Set("Content-Type", p.contentType)
	}

	return req, nil
}
