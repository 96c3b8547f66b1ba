package e2e_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"weir/tools/realcms"
)

func startWordPress(ctx context.Context, log io.Writer) (realCMS, string,
	func(string) []string, error) {
	wp, err := realcms.StartWordPress(ctx, realcms.WordPressOptions{Log: log})
	if err != nil {
		return nil, "", nil, err
	}

	return wp, wp.URL, func(url string) []string {
		return []string{"WORDPRESS_URL=" + url, "WORDPRESS_USER=" + wp.User,
			"WORDPRESS_PASSWORD=" + wp.Password}
	}, nil
}

var (
	wordPressREST = cmsAPI{recipe: "wordpress", isCreate: byMethod(http.MethodPost),
		isUpdate: byMethod(http.MethodPut), start: startWordPress}
	wordPressXML = cmsAPI{recipe: "wordpress-xmlrpc", isCreate: byCall("wp.newPost"),
		isUpdate: byCall("wp.editPost"), start: startWordPress}
)

func TestWordPress_TwoInstancesTwoKills(t *testing.T) {
	t.Parallel()
	t.Run("REST", func(t *testing.T) {
		testTwoKills(t, wordPressREST,
			realcms.Race{Prefix: "killed", Slugs: 20, Versions: 20, Clients: 16})
	})

	t.Run("XMLRPC", func(t *testing.T) {
		testTwoKills(t, wordPressXML,
			realcms.Race{Prefix: "killed", Slugs: 8, Versions: 6, Clients: 8})
	})
}

func TestWordPress_SpoiltAnswersAndARestart(t *testing.T) {
	t.Parallel()
	t.Run("REST", func(t *testing.T) {
		testSpoiltAnswers(t, wordPressREST,
			realcms.Race{Prefix: "spoilt", Slugs: 8, Versions: 6, Clients: 1})
	})

	t.Run("XMLRPC", func(t *testing.T) {
		testSpoiltAnswers(t, wordPressXML,
			realcms.Race{Prefix: "spoilt", Slugs: 6, Versions: 4, Clients: 1})
	})
}
