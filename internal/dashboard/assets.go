package dashboard

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"strings"
)

//go:embed assets
var assets embed.FS

var assetTypes = map[string]string{"app.css": "text/css; charset=utf-8",
	"app.js": "text/javascript; charset=utf-8"}

// stamp is a hash of all assets, and a parameter of their addresses. A browser can cache an asset
// for a long time, because a changed asset has another address.
var stamp = assetStamp()

func assetStamp() string {
	h := sha256.New()
	for _, name := range []string{"app.css", "app.js"} {
		data, err := assets.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // cannot happen, because the assets are in the binary
		}
		h.Write(data)
	}

	return hex.EncodeToString(h.Sum(nil))[:12]
}

func serveAsset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	kind, known := assetTypes[name]
	if !known {
		http.NotFound(w, r)
		return
	}

	data, err := assets.ReadFile("assets/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}

	w.Header().Set("Content-Type", kind)
	if strings.Contains(r.URL.RawQuery, stamp) {
		w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	}

	w.Write(data)
}
