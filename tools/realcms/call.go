package realcms

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// cmsClient is not http.DefaultClient, whose transport the end-to-end tests replace.
var cmsClient = &http.Client{Transport: &http.Transport{}}

// callJSON makes one request, and returns an error if the status is not 2xx. client, header, body
// and answer can be nil.
func callJSON(ctx context.Context, client *http.Client, method, address string,
	header http.Header, body, answer any) error {
	var content strings.Builder
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return err
		}
	}

	req, err := http.NewRequestWithContext(ctx, method, address,
		strings.NewReader(content.String()))
	if err != nil {
		return err
	}

	if header != nil {
		req.Header = header.Clone()
	}

	req.Header.Set("Content-Type", "application/json")
	if client == nil {
		client = cmsClient
	}

	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %.200s", method, address, resp.Status, text)
	}
	if answer == nil {
		return nil
	}

	return json.Unmarshal(text, answer)
}

// bearer returns the header that signs a request in with a token.
func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
