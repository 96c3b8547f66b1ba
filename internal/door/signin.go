package door

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"weir/internal/httpio"
)

const (
	signInPath  = "/sign-in"  // below Config.Page
	signOutPath = "/sign-out" // below Config.Page
	// cookieName has a prefix by which browsers bind a cookie of https to its origin. Over http
	// they refuse the prefix.
	cookieName, secureCookieName = "weir-key", "__Host-weir-key"
	// signedInFor is the time after which a person has to sign in again.
	signedInFor = 12 * time.Hour
	maxForm     = 16 << 10 // bytes
	maxCookie   = 4 << 10  // bytes
)

// cookieSecret encrypts the cookies of this process. A restart ends all sign-ins, because the
// secret is only in memory.
var cookieSecret = sync.OnceValue(func() cipher.AEAD {
	secret := make([]byte, 32)
	rand.Read(secret) // never fails
	block, err := aes.NewCipher(secret)
	if err != nil {
		panic(err) // cannot happen, because 32 bytes are a key of AES
	}

	sealed, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // cannot happen, because the block is of AES
	}

	return sealed
})

// cookieContent is the content of a cookie before it is encrypted.
type cookieContent struct {
	Key   string    `json:"key"`
	Until time.Time `json:"until"`
}

// signedInKey returns the key with which the person who sends a request has signed in, or "".
func (d *Door) signedInKey(r *http.Request) string {
	cookie, err := r.Cookie(nameCookie(r))
	if err != nil || len(cookie.Value) > maxCookie {
		return ""
	}

	sealed, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil {
		return ""
	}

	text, err := cookieSecret().Open(nil, nil, sealed, nil)
	if err != nil {
		return ""
	}

	var content cookieContent
	if json.Unmarshal(text, &content) != nil || !d.Now().Before(content.Until) {
		return ""
	}

	return content.Key
}

func (d *Door) newCookie(r *http.Request, key string) (*http.Cookie, error) {
	text, err := json.Marshal(cookieContent{key, d.Now().Add(signedInFor).UTC()})
	if err != nil {
		return nil, err
	}

	value := base64.RawURLEncoding.EncodeToString(cookieSecret().Seal(nil, nil, text, nil))
	return &http.Cookie{
		Name:     nameCookie(r),
		Value:    value,
		Path:     "/",
		MaxAge:   int(signedInFor.Seconds()),
		HttpOnly: true,
		Secure:   isSecure(r),
		SameSite: http.SameSiteStrictMode,
	}, nil
}

func nameCookie(r *http.Request) string {
	if isSecure(r) {
		return secureCookieName
	}
	return cookieName
}

func isSecure(r *http.Request) bool { return httpio.Scheme(r) == "https" }

// signInAddress returns the address of the sign-in that leads back to the page of a request.
func (d *Door) signInAddress(r *http.Request) string {
	return d.Page + signInPath + "?" + url.Values{"to": {r.URL.RequestURI()}}.Encode()
}

// destination returns the page to which a person goes after the sign-in. An address outside of the
// page is not taken: a link of another site could otherwise lead the person anywhere.
func (d *Door) destination(to string) string {
	if u, err := url.Parse(to); err == nil && u.Scheme == "" && u.Host == "" && u.User == nil &&
		(u.Path == d.Page || strings.HasPrefix(u.Path, d.Page+"/")) &&
		!strings.HasPrefix(u.Path, d.Page+signInPath) {
		return u.RequestURI()
	}
	return d.Page
}

// SignOut returns the path of the sign-out, or "" if requests need no key.
func (d *Door) SignOut() string {
	if d.isOpen() {
		return ""
	}
	return d.Page + signOutPath
}

// Pages returns the handlers of the sign-in and of the sign-out, by their paths.
func (d *Door) Pages() map[string]http.Handler {
	return map[string]http.Handler{d.Page + signInPath: http.HandlerFunc(d.serveSignIn),
		d.Page + signOutPath: http.HandlerFunc(d.serveSignOut)}
}

func (d *Door) serveSignIn(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		d.showForm(w, http.StatusOK, form{To: d.destination(r.URL.Query().Get("to"))})
		return
	}

	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		d.showForm(
			w,
			http.StatusBadRequest,
			form{To: d.Page, Wrong: "The form could not be read. Try again."},
		)
		return
	}

	key, to := strings.TrimSpace(r.PostForm.Get("key")), d.destination(r.PostForm.Get("to"))
	if !d.isOpen() && !d.Keys.Open("view", key) {
		d.Log.Warn("door: sign-in refused", "from", r.RemoteAddr)
		d.showForm(
			w,
			http.StatusUnauthorized,
			form{To: to, Wrong: "This is not a key of the function view."},
		)

		return
	}

	cookie, err := d.newCookie(r, key)
	if err != nil {
		httpio.WriteError(w, r, d.Log, err)
		return
	}

	http.SetCookie(w, cookie)
	http.Redirect(w, r, to, http.StatusSeeOther)
}

func (d *Door) serveSignOut(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(
		w,
		&http.Cookie{
			Name:     nameCookie(r),
			Path:     "/",
			MaxAge:   -1,
			HttpOnly: true,
			Secure:   isSecure(r),
			SameSite: http.SameSiteStrictMode,
		},
	)

	http.Redirect(w, r, d.Page+signInPath, http.StatusSeeOther)
}

// form is the data of the sign-in's page.
type form struct {
	Page, To string
	Wrong    string // problem of the last try; "" = none
}

var formPage = sync.OnceValue(
	func() *template.Template { return template.Must(template.New("").Parse(formText)) },
)

const formText = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>Sign in · Weir</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{{.Page}}/assets/app.css">
</head>
<body>
<header class="top"><span class="brand">Weir</span></header>
<main id="main" class="sign-in">
<h1>Sign in</h1>
<form method="post" action="{{.Page}}/sign-in">
  <input type="hidden" name="to" value="{{.To}}">
  <input name="username" value="view" autocomplete="username" hidden>
  {{with .Wrong}}<p class="wrong" role="alert" id="sign-in-wrong">{{.}}</p>{{end}}
  <label for="sign-in-key">Key of the function <code>view</code></label>
  <input id="sign-in-key" name="key" type="password" autocomplete="current-password" spellcheck="false"
    {{if .Wrong}}aria-invalid="true" aria-describedby="sign-in-wrong"{{end}} required autofocus>
  <p class="buttons"><button class="primary">Sign in</button></p>
</form>
<p class="quiet">The key stays in this browser for twelve hours. For changes the page asks for the key of the function
<code>write</code>, except if your key opens both.</p>
</main>
</body>
</html>
`

// policy lets the sign-in load only the style of the page, and send its form only to this server.
const policy = "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; " +
	"frame-ancestors 'none'"

func (d *Door) showForm(w http.ResponseWriter, status int, f form) {
	f.Page = d.Page
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	formPage().Execute(w, f) // an error means that the client has disconnected
}
