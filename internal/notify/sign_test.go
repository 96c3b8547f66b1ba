package notify_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/notify"
)

// knownSecret comes from the tests of the Standard Webhooks libraries. The request and the
// signature in TestSecret_SignsAsStandardWebhooks come from the same tests.
const knownSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func TestSecret_SignsAsStandardWebhooks(t *testing.T) {
	t.Parallel()
	s, err := notify.ParseSecret(knownSecret)
	if err != nil {
		t.Fatal(err)
	}

	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	if got := s.Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0),
		[]byte(`{"test": 2432232314}`)); got != want {
		t.Errorf("got the signature %s, want %s", got, want)
	}

	if text := fmt.Sprintf("%v %+v %#v", s, s, s); strings.Contains(text, "49") ||
		!strings.Contains(text, "(secret)") {
		t.Errorf(`printed %s, want "(secret)", and no byte 49 of the key`, text)
	}
}

func TestSecret_SignsWithEachKey(t *testing.T) {
	t.Parallel()
	other := "whsec_" + strings.Repeat("QUJD", 8)
	two, err := notify.ParseSecret(knownSecret + " " + other)
	if err != nil {
		t.Fatal(err)
	}

	at, body := time.Unix(1614265330, 0), []byte("{}")
	var want []string
	for _, text := range []string{knownSecret, other} {
		one, err := notify.ParseSecret(text)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, one.Sign("evt_1", at, body))
	}

	if got := two.Sign("evt_1", at, body); got != strings.Join(want, " ") || want[0] == want[1] {
		t.Errorf("got the signatures %s, want %s", got, want)
	}
}

func TestParseSecret_Refuses(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"Nothing": "", "NoPrefix": "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "NotBase64": "whsec_!!",
		"Short":          "whsec_QUJD",
		"Long":           "whsec_" + strings.Repeat("QUJD", 22),
		"TheSecondIsBad": knownSecret + " whsec_QUJD",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if s, err := notify.ParseSecret(text); err == nil {
				t.Errorf("%q: got the secret %v, want an error", text, s)
			} else if text != "" && strings.Contains(err.Error(), text) {
				t.Errorf("ParseSecret = %v, want an error without the secret", err)
			}
		})
	}
}
