package door_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"weir/internal/door"
)

// signIn posts the form of the sign-in.
func signIn(d *door.Door, key, to string) *http.Response {
	form := url.Values{"key": {key}, "to": {to}}
	r := httptest.NewRequest(
		http.MethodPost,
		"https://weir.example"+page+"/sign-in",
		strings.NewReader(form.Encode()),
	)

	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return send(d.Pages()[page+"/sign-in"], r).Result()
}

// openPage requests the page with a cookie, as a browser does.
func openPage(
	d *door.Door,
	function string,
	cookies []*http.Cookie,
) (*httptest.ResponseRecorder, *answer) {
	r := httptest.NewRequest(http.MethodGet, "https://weir.example"+page+"/messages?q=a", nil)
	r.Header.Set("Accept", "text/html,*/*")
	for _, c := range cookies {
		r.AddCookie(c)
	}

	a := &answer{}
	return send(d.Guard(function, a), r), a
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)
	d, keys := newDoor(t, func() time.Time { return now }, "view", "receive")
	w, _ := openPage(d, "view", nil)
	want := page + "/sign-in?to=" + url.QueryEscape(page+"/messages?q=a")
	if got := w.Header().Get("Location"); w.Code != http.StatusSeeOther || got != want {
		t.Fatalf("got %d to %q without a key, want 303 to %q", w.Code, got, want)
	}

	for _, key := range []string{"", "wrong", keys["receive"]} {
		if answered := signIn(d, key, ""); answered.StatusCode != http.StatusUnauthorized ||
			len(answered.Cookies()) > 0 {
			t.Errorf("got %d and %d cookies for the key %q, want 401 and none", answered.StatusCode,
				len(answered.Cookies()), key)
		}
	}

	answered := signIn(d, keys["view"], page+"/messages?q=a")
	cookies := answered.Cookies()
	if got := answered.Header.Get("Location"); len(cookies) != 1 || got != page+"/messages?q=a" {
		t.Fatalf("got %d cookies and the address %q, want one and the page", len(cookies), got)
	}

	c := cookies[0]
	if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode ||
		strings.Contains(c.Value, keys["view"]) {
		t.Errorf("got the cookie %v, want one that only this server sends and reads", c)
	}

	w, got := openPage(d, "view", cookies)
	if key := got.headers.Get("X-Functions-Key"); w.Code != http.StatusNoContent ||
		key != keys["view"] {
		t.Errorf("got %d with the key %q, want 204 with the key of the sign-in", w.Code, key)
	}

	if w, _ := openPage(d, "write", cookies); w.Code == http.StatusNoContent {
		t.Error("the key of view opens the function write, want a refusal")
	}

	now = now.Add(12*time.Hour + time.Second)
	if w, _ := openPage(d, "view", cookies); w.Code != http.StatusSeeOther {
		t.Errorf("got %d after 12 hours, want 303 to the sign-in", w.Code)
	}
}

// A sign-in ends when its key is removed from the settings. The cookie of a process that knows the
// key no longer opens.
func TestSignIn_EndsWithItsKey(t *testing.T) {
	t.Parallel()
	d, keys := newDoor(t, time.Now, "view")
	cookies := signIn(d, keys["view"], "").Cookies()
	other, _ := newDoor(t, time.Now, "view")
	if w, _ := openPage(other, "view", cookies); w.Code != http.StatusSeeOther {
		t.Errorf("got %d with a key that was removed, want 303 to the sign-in", w.Code)
	}
}

// The address after the sign-in is one of the page, whatever a link says.
func TestSignIn_LeadsToThePageOnly(t *testing.T) {
	t.Parallel()
	d, keys := newDoor(t, time.Now, "view")
	for _, to := range []string{"", "https://evil.example/", "//evil.example/api/dashboard",
		"/api/messages",
		`/\evil.example`, "javascript:alert(1)", page + "x", page + "/sign-in", "http:" + page} {
		if got := signIn(d, keys["view"], to).Header.Get("Location"); got != page {
			t.Errorf("to=%q leads to %q, want %q", to, got, page)
		}
	}
}

func TestSignOut(t *testing.T) {
	t.Parallel()
	d, _ := newDoor(t, time.Now, "view")
	r := httptest.NewRequest(http.MethodPost, "https://weir.example"+page+"/sign-out", nil)
	cookies := send(d.Pages()[page+"/sign-out"], r).Result().Cookies()
	if len(cookies) != 1 || cookies[0].MaxAge >= 0 || cookies[0].Value != "" {
		t.Errorf("got the cookies %v, want one that is removed", cookies)
	}
}
