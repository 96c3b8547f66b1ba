package httpio

import (
	"net/http"
	"strconv"

	"weir/internal/weir"
)

// WriteBody answers with the body of a message as a download. The body comes from an upstream, so
// the headers forbid a browser to show the body, to run it or to guess its type. The caller must
// set Cache-Control first.
func WriteBody(w http.ResponseWriter, m weir.Message) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Content-Type", m.ContentType)
	h.Set("Content-Disposition", `attachment; filename="`+m.Public().String()+`.xml"`)
	h.Set("Content-Length", strconv.Itoa(len(m.Body)))
	w.Write(m.Body) // an error means that the client has disconnected
}
