package diagnosis

import (
	"strings"
	"testing"

	"weir/internal/settings"
)

func TestCheckUpstreams(t *testing.T) {
	t.Parallel()
	const key, webhookSecret = "s3cret-key-0123456789", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	s, err := settings.Load(newEnvironment(t, strings.TrimRight(minimal, "\n")+"\nupstreams:\n"+
		"  - { name: newsroom, keys: ['${KEY}'], contracts: [article], rate: 50/s, dailyQuota: 10000 }\n"+
		"  - { name: forge, signature: github, secrets: ['${FORGE}'], rate: 90/m }\n"+
		"  - { name: shop, signature: standard, secrets: ['${SHOP}'] }\n  - { name: broker }\n",
		"KEY", key, "FORGE", "s3cret-of-the-forge-0123", "SHOP", webhookSecret))
	if err != nil {
		t.Fatal(err)
	}

	shown := (&System{Settings: &s}).checkUpstreams().Detail
	want := "newsroom (keys: 1, contracts article, 50 messages a second, 10000 a day); " +
		"forge (signature github, secrets: 1, 90 messages a minute); " +
		"shop (signature standard, secrets: 1); broker (only by a queue or a folder)"
	if shown != want {
		t.Errorf("got %q, want %q", shown, want)
	}
}
