package realcms

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// strapiLocales is a Strapi 5 with PostgreSQL, whose collection type "article" has the languages en
// and de. A document has an entry for each language.
type strapiLocales struct{ *strapi }

func newStrapiLocales(s *Site) *strapiLocales {
	c := &strapiLocales{newStrapi(s, &postgres{})}
	c.locales = "de" // Strapi has en
	return c
}

func (c *strapiLocales) install(ctx context.Context) error {
	if err := c.strapi.install(ctx); err != nil {
		return err
	}

	schema, err := os.ReadFile(filepath.Join(c.programs, "strapi", "localized.schema.json"))
	if err != nil {
		return err
	}

	return os.WriteFile(filepath.Join(c.appDir(), "src", "api", "article", "content-types",
		"article", "schema.json"), schema, 0o644)
}

// raceSlug matches the slugs of a Race.
var raceSlug = regexp.MustCompile(`^(.*-)(\d\d)(-news)$`)

// LocalizedArticleOf is ArticleOf for an article that is a language of a document. Of two slugs of
// a Race whose numbers follow each other, the second is the German of the first.
func LocalizedArticleOf(slug string, version int) string {
	stored, lang := localizedSlug(slug)
	return fmt.Sprintf(`<article slug="%s" lang="%s" version="%d"><title>%s</title><body><p>%s</p></body></article>`,
		stored, lang, version, TitleOf(slug, version), bodyOf(version))
}

func localizedSlug(slug string) (stored, lang string) {
	parts := raceSlug.FindStringSubmatch(slug)
	if parts == nil {
		return slug, "en"
	}

	n, _ := strconv.Atoi(parts[2]) // two digits
	if n%2 == 0 {
		return slug, "en"
	}

	return fmt.Sprintf("%s%02d%s", parts[1], n-1, parts[3]), "de"
}

// listPosts returns the entries under the slugs of the Race. An entry of a second document of a
// slug is a surplus.
func (c *strapiLocales) listPosts(ctx context.Context, prefix string) ([]Post, error) {
	out, err := c.database.runSQL(ctx, "strapi",
		"SELECT json_build_object('id', document_id, 'slug', slug || '|' || "+
			"locale, 'status', CASE WHEN published_at IS NULL THEN 'draft' ELSE 'published' END, 'title', title, "+
			"'content', body) FROM articles a WHERE slug LIKE '"+prefix+
			"%' AND (published_at IS NOT NULL OR NOT EXISTS "+
			"(SELECT 1 FROM articles p WHERE p.document_id = a.document_id AND p.locale = a.locale "+
			"AND p.published_at IS NOT NULL)) ORDER BY id")
	if err != nil {
		return nil, err
	}

	posts, err := readPosts(out)
	documents := map[string]string{} // by slug
	for n := range posts {
		p := &posts[n]
		slug, lang, _ := strings.Cut(p.Slug, "|")
		if documents[slug] == "" {
			documents[slug] = p.ID
		}

		p.Slug = slug
		if parts := raceSlug.FindStringSubmatch(slug); parts != nil && lang == "de" {
			number, _ := strconv.Atoi(parts[2]) // two digits
			p.Slug = fmt.Sprintf("%s%02d%s", parts[1], number+1, parts[3])
		}

		if documents[slug] != p.ID {
			p.Slug += "-2"
		}
	}

	return posts, err
}

func (c *strapiLocales) edit(ctx context.Context, slug string) error {
	stored, lang := localizedSlug(slug)
	return c.editEntry(ctx, stored, "&locale="+lang)
}
