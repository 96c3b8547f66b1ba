package httpio

import (
	"net/http"
	"strconv"

	"weir/internal/weir"
)

// WriteBody writes the body of a message as a file. Because the body comes from an upstream, no browser may
// show it, run it or guess its type. The caller sets Cache-Control first.
func WriteBody(w http.ResponseWriter, m weir.Message) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Content-Type", m.ContentType)
	h.Set("Content-Disposition", `attachment; filename="`+m.Public().String()+`.xml"`)
	h.Set("Content-Length", strconv.Itoa(len(m.Body)))
	w.Write(m.Body) // a failure means that the client has disconnected
}
