package audit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/internal/audit"
	"weir/internal/storage/storagetest"
)

// proofOf returns the proof that the page of a person has.
func proofOf(t *testing.T, w audit.Wrapper, person string) string {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/api/dashboard/messages/1", http.NoBody)
	r.Header.Set("X-MS-CLIENT-PRINCIPAL-NAME", person)
	proof := w.ProofFor(r)
	if proof == "" {
		t.Fatal("got no proof, want one")
	}

	return proof
}

// A change of a single message or of a schedule goes to an open path. It names the person by the
// page's proof.
func TestWrapper_NamesThePersonByTheProofOfThePage(t *testing.T) {
	t.Parallel()
	l, c, _ := newLog(t)
	page := audit.Wrapper{Log: l, SignIn: signIn, Proofs: &audit.Proofs{Table: l.Table, Now: c.Now}}

	// another process
	other := audit.Wrapper{Log: l, SignIn: signIn,
		Proofs: &audit.Proofs{Table: l.Table, Now: c.Now}}
	proof := proofOf(t, page, "ada@example.org")
	for _, target := range []string{"/api/messages/AQ/replay", "/api/schedules/night/pause"} {
		serveWrapped(t, other,
			request{method: "POST", target: target, status: 202,
				headers: []string{audit.ProofHeader,
					proof, "X-Functions-Key", "k", "X-MS-CLIENT-PRINCIPAL-NAME", "mallory"}})
	}

	got := readAll(t, l, audit.Query{Limit: 10})
	if len(got) != 2 {
		t.Fatalf("got %d entries, want 2", len(got))
	}

	for _, e := range got {
		if e.Principal != "ada@example.org" || e.KeyID != audit.Fingerprint("k") ||
			strings.Contains(e.Detail, "ada") {
			t.Errorf("got %+v, want an entry of ada@example.org with her key", e)
		}
	}
}

func TestWrapper_IgnoresWrongProofs(t *testing.T) {
	t.Parallel()
	l, c, _ := newLog(t)
	stranger, _, _ := newLog(t)
	own := audit.Wrapper{Log: l, SignIn: signIn, Proofs: &audit.Proofs{Table: l.Table, Now: c.Now}}
	foreign := audit.Wrapper{SignIn: signIn,
		Proofs: &audit.Proofs{Table: stranger.Table, Now: c.Now}}
	proof, signature, _ := strings.Cut(proofOf(t, own, "ada"), ".")
	_, otherSignature, _ := strings.Cut(proofOf(t, own, "eve"), ".")
	for name, test := range map[string]struct {
		wrapper audit.Wrapper
		proof   string
		after   time.Duration
		want    string
	}{
		"Right": {own, proof + "." + signature, 11 * time.Hour, "ada"},
		"TooOld": {own, proof + "." + signature, 12 * time.Hour,
			"key " + audit.Fingerprint("k")},
		"OtherSignature":   {own, proof + "." + otherSignature, 0, "key " + audit.Fingerprint("k")},
		"NoSignature":      {own, proof + ".", 0, "key " + audit.Fingerprint("k")},
		"NoProof":          {own, "", 0, "key " + audit.Fingerprint("k")},
		"NotEncoded":       {own, "ada", 0, "key " + audit.Fingerprint("k")},
		"OfAnotherAccount": {own, proofOf(t, foreign, "ada"), 0, "key " + audit.Fingerprint("k")},
		"Huge": {own, strings.Repeat("a", 8<<10) + "." + signature, 0,
			"key " + audit.Fingerprint("k")},
		"NoSignIn": {audit.Wrapper{Proofs: own.Proofs}, proof + "." + signature, 0,
			"key " + audit.Fingerprint("k")},
	} {
		began := c.now
		c.now = c.now.Add(test.after)
		r := httptest.NewRequest(http.MethodPost, "/api/messages/AQ/replay", http.NoBody)
		r.Header.Set("X-Functions-Key", "k")
		r.Header.Set(audit.ProofHeader, test.proof)
		if got := test.wrapper.AuthorOf(r); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}

		c.now = began
	}
}

// A person is only proved on a path on which the platform checks who signs in.
func TestWrapper_ProvesNoOneOnAnOpenPath(t *testing.T) {
	t.Parallel()
	l, c, _ := newLog(t)
	proofs := &audit.Proofs{Table: l.Table, Now: c.Now}
	for name, test := range map[string]struct {
		wrapper        audit.Wrapper
		target, person string
	}{
		"OpenPath":  {audit.Wrapper{SignIn: signIn, Proofs: proofs}, "/api/messages/AQ", "ada"},
		"NoSignIn":  {audit.Wrapper{Proofs: proofs}, "/api/dashboard", "ada"},
		"NoPerson":  {audit.Wrapper{SignIn: signIn, Proofs: proofs}, "/api/dashboard", ""},
		"NoSecrets": {audit.Wrapper{SignIn: signIn}, "/api/dashboard", "ada"},
	} {
		r := httptest.NewRequest(http.MethodGet, test.target, http.NoBody)
		r.Header.Set("X-MS-CLIENT-PRINCIPAL-NAME", test.person)
		if got := test.wrapper.ProofFor(r); got != "" {
			t.Errorf("%s: got %q, want no proof", name, got)
		}
	}
}

// While storage is away, a page opens without a proof, and a change is made without the person's
// name.
func TestWrapper_NeedsNoStorageForAChange(t *testing.T) {
	t.Parallel()
	l, c, out := newLog(t)
	faults := storagetest.NewFaults()
	w := audit.Wrapper{Log: l, SignIn: signIn,
		Proofs: &audit.Proofs{Table: faults.Table(l.Table), Now: c.Now}}
	faults.Set(func(storagetest.Call) storagetest.Fault { return storagetest.Fault{Kind: storagetest.FailBefore} })
	r := httptest.NewRequest(http.MethodGet, "/api/dashboard", http.NoBody)
	r.Header.Set("X-MS-CLIENT-PRINCIPAL-NAME", "ada")
	if got := w.ProofFor(r); got != "" || !strings.Contains(out.String(), "no proof of sign-in") {
		t.Errorf("got the proof %q and the log %s, want none and a line", got, out)
	}

	// The answers to the first writes of the secret are lost.
	faults.Set(nil)
	faults.Once(func(call storagetest.Call) bool { return call.Op == "Transact" },
		storagetest.Fault{Kind: storagetest.FailAfter})
	proof := w.ProofFor(r)
	change := httptest.NewRequest(http.MethodPost, "/api/messages/AQ/replay", http.NoBody)
	change.Header.Set(audit.ProofHeader, proof)
	if got := w.AuthorOf(change); got != "ada" {
		t.Errorf("when storage is back: got the author %q, want ada", got)
	}
}
