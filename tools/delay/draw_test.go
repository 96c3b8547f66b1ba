package delay

import (
	"context"
	"math"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestDrawFate_IsLogNormal(t *testing.T) {
	t.Parallel()
	const n = 100_000
	for seed := range uint64(3) {
		c := Config{Median: Median, Sigma: Sigma, BusyShare: BusyShare, Seed: seed}
		logs, busy, sum := make([]float64, n), 0, 0.0
		for i := range logs {
			f := c.drawFate(uint64(i))
			logs[i] = math.Log(f.delay.Seconds() / Median.Seconds())
			sum += logs[i] * logs[i]
			if f.busy {
				busy++
			}
		}

		slices.Sort(logs)

		for p, z := range map[float64]float64{0.1: -1.2816, 0.5: 0, 0.9: 1.2816, 0.99: 2.3263,
			0.999: 3.0902} {
			if got, want := logs[int(p*n)], z*Sigma; math.Abs(got-want) > 0.05 {
				t.Errorf("seed %d: quantile %g of the logarithm is %.3f, want %.3f", seed,
					p, got, want)
			}
		}

		if got := math.Sqrt(sum / n); math.Abs(got-Sigma) > 0.005 {
			t.Errorf("seed %d: sigma is %.4f, want %g", seed, got, Sigma)
		}

		if want := BusyShare * n; math.Abs(float64(busy)-want) > 4*math.Sqrt(want) {
			t.Errorf("seed %d: %d of %d are refused, want about %g", seed, busy, n, want)
		}
	}
}

func TestDrawFate_DependsOnSeedAndNumber(t *testing.T) {
	t.Parallel()
	one, other := Config{Median: Median, Sigma: Sigma},
		Config{Median: Median, Sigma: Sigma, Seed: 1}
	same := 0
	for i := range uint64(100) {
		if again := (Config{Median: Median, Sigma: Sigma}); one.drawFate(i) != again.drawFate(i) {
			t.Errorf("request %d has %+v and %+v, want the same fate with the same seed", i,
				one.drawFate(i), again.drawFate(i))
		}

		if one.drawFate(i) == other.drawFate(i) {
			same++
		}
	}

	if same > 0 {
		t.Errorf("%d of 100 requests have the same fate with two seeds, want 0", same)
	}
}

func TestDrawFate_WithoutSigma(t *testing.T) {
	t.Parallel()
	if f := (Config{Median: time.Second}).drawFate(7); f != (requestFate{delay: time.Second}) {
		t.Errorf("got %+v, want a second", f)
	}

	if f := (Config{BusyShare: 1}).drawFate(7); f != (requestFate{busy: true}) {
		t.Errorf("got %+v, want a refusal without delay", f)
	}
}

// slowStorage is a stand-in for storage. It answers each request after the given time.
type slowStorage time.Duration

func (a slowStorage) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(time.Duration(a))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody,
		Request: req}, nil
}

// TestRoundTrip_Delays compares each answer and its time with the result of drawFate, in virtual
// time.
func TestRoundTrip_Delays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const own = 2 * time.Millisecond
		f := &delayedTransport{&Proxy{config: Config{Median: Median, Sigma: Sigma, BusyShare: 0.2}},
			queue, slowStorage(own)}

		for i := range uint64(100) {
			fate, began := f.config.drawFate(i), time.Now()
			resp, err := f.RoundTrip(newRequest(t.Context()))
			if err != nil {
				t.Fatal(err)
			}

			want := own + fate.delay
			if fate.busy {
				want = fate.delay
			}

			if got := time.Since(began); got != want ||
				(resp.StatusCode == http.StatusServiceUnavailable) != fate.busy {
				t.Errorf("request %d: %d after %s, want it after %s, refused %t", i,
					resp.StatusCode, got, want, fate.busy)
			}
		}
	})
}

func TestRoundTrip_CallerLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &delayedTransport{&Proxy{config: Config{Median: time.Hour}}, blob, slowStorage(0)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := f.RoundTrip(newRequest(ctx)); err == nil || time.Since(began) != time.Second {
			t.Errorf("got %v after %s, want an error after 1s", err, time.Since(began))
		}
	})
}

func newRequest(ctx context.Context) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:1/a", nil)
	if err != nil {
		panic(err)
	}
	return req
}
