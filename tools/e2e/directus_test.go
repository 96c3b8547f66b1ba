//go:build directus

package e2e_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"weir/tools/realcms"
)

func startDirectus(ctx context.Context, log io.Writer) (realCMS, string, func(string) []string, error) {
	d, err := realcms.StartDirectus(ctx, realcms.DirectusOptions{Log: log})
	if err != nil {
		return nil, "", nil, err
	}
	return d, d.URL, func(url string) []string {
		return []string{"DIRECTUS_URL=" + url, "DIRECTUS_TOKEN=" + d.Token}
	}, nil
}

var directus = cmsAPI{"directus", byMethod(http.MethodPost), byMethod(http.MethodPatch), startDirectus}

func TestDirectus_TwoInstancesTwoKills(t *testing.T) {
	testTwoKills(t, directus, realcms.Race{Prefix: "killed", Slugs: 20, Versions: 20, Clients: 16})
}

func TestDirectus_SpoiltAnswersAndARestart(t *testing.T) {
	testSpoiltAnswers(t, directus, realcms.Race{Prefix: "spoilt", Slugs: 20, Versions: 10, Clients: 1})
}
