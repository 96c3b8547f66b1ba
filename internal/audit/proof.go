package audit

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"weir/internal/storage"
)

// ProofHeader is the header in which the operator's page sends the proof of its address's sign-in.
const ProofHeader = "Weir-Signed-In"

const (
	// proofLifetime is the time for which a proof is valid. A page that is open for longer proves
	// nothing.
	proofLifetime = 12 * time.Hour
	// maxProof limits the bytes of a proof.
	maxProof = 4 << 10

	secretPartition, secretRow, secretColumn = "operators", "secret", "Secret"
)

// Proofs signs and checks proofs that a person has signed in. The platform names the person only on
// paths that need sign-in, such as those of the operator's page. Changes of single messages and of
// schedules go to open paths, because programs use them, too. So the page gets a proof for the
// person who has opened it, and sends the proof with each change. All instances sign with one
// secret, which is a row of its own.
//
// A proof only names the author of a change. It does not replace the function key.
type Proofs struct {
	Table storage.Table
	Now   func() time.Time

	mu     sync.Mutex
	secret []byte // nil = not read yet
}

// statement is the content of a proof.
type statement struct {
	Person string    `json:"person"`
	Until  time.Time `json:"until"`
}

// Sign returns a proof for a person.
func (p *Proofs) Sign(ctx context.Context, person string) (string, error) {
	secret, err := p.loadSecret(ctx)
	if err != nil {
		return "", err
	}

	content, err := json.Marshal(statement{truncateText(person), p.Now().UTC().Add(proofLifetime)})
	if err != nil {
		return "", err
	}

	encoding := base64.RawURLEncoding

	return encoding.EncodeToString(content) + "." +
		encoding.EncodeToString(sign(secret, content)), nil
}

// Check returns the person whom a proof names, or "" if the proof is wrong or too old.
func (p *Proofs) Check(ctx context.Context, proof string) string {
	first, second, _ := strings.Cut(proof, ".")
	encoding := base64.RawURLEncoding
	content, err := encoding.DecodeString(first)
	signature, signatureErr := encoding.DecodeString(second)
	if proof == "" || len(proof) > maxProof || err != nil || signatureErr != nil {
		return ""
	}

	secret, err := p.loadSecret(ctx)
	if err != nil || !hmac.Equal(signature, sign(secret, content)) {
		return ""
	}

	var s statement
	if json.Unmarshal(content, &s) != nil || !p.Now().Before(s.Until) {
		return ""
	}

	return s.Person
}

func sign(secret, content []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write(content)
	return mac.Sum(nil)
}

// loadSecret returns the secret, and creates it if the table has none.
func (p *Proofs) loadSecret(ctx context.Context) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.secret != nil {
		return p.secret, nil
	}

	row, err := p.Table.Get(ctx, secretPartition, secretRow)
	if storage.Is(err, storage.NotFound) {
		_, err = p.Table.Transact(ctx, secretPartition,
			[]storage.Op{{Kind: storage.Insert, Key: secretRow,
				Values: map[string]any{secretColumn: rand.Text() + rand.Text()}}})
		if err == nil || storage.Is(err, storage.Conflict) || storage.Is(err, storage.Ambiguous) {
			// perhaps another process was faster
			row, err = p.Table.Get(ctx, secretPartition, secretRow)
		}
	}

	if err != nil {
		return nil, err
	}

	text, _ := row.Values[secretColumn].(string)
	if text == "" {
		return nil, errors.New("audit: the secret of proofs is empty")
	}

	p.secret = []byte(text)

	return p.secret, nil
}
