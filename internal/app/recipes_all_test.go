package app

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
)

// recipesUnderTest returns each recipe with a fake CMS, by the name of the recipe's folder.
func recipesUnderTest() map[string]recipeUnderTest {
	const madeOfKey = "the recipe makes the item's id of the key"
	return map[string]recipeUnderTest{
		"aem": {messages: bySlug, open: func(t *testing.T, slugs ...string) (*recipe, store) {
			t.Helper()
			cms := newAEM(false)
			for _, slug := range slugs {
				id := "id-of-" + slug
				cms.fragments[id] = &aemFragment{ID: id, Path: aemFolder + "/" + slug, revision: 1}
			}
			return openAEM(t, cms, "id-of-model"), cms
		}},
		"apostrophe": {messages: bySlug,
			open: func(t *testing.T, slugs ...string) (*recipe, store) {
				t.Helper()
				cms := newApostrophe(slugs...)
				return openApostrophe(t, cms, "key-of-apostrophe"), cms
			}},
		"contentful": {
			messages: bySlug, keepsSlug: madeOfKey,
			open: func(t *testing.T, slugs ...string) (*recipe, store) {
				t.Helper()
				cms := newContentful(0)
				for _, slug := range slugs {
					cms.entries[makeUUID(slug)] = &contentfulEntry{version: 1}
				}
				return openContentful(t, cms, "token-of-contentful"), cms
			},
		},
		"directus": {messages: bySlug, open: func(t *testing.T, slugs ...string) (*recipe, store) {
			t.Helper()
			cms := newDirectus(slugs...)
			return openDirectus(t, cms, "token-of-directus"), cms
		}},
		"drupal": {messages: bySlug, keepsSlug: madeOfKey,
			open: func(t *testing.T, slugs ...string) (*recipe, store) {
				t.Helper()
				cms := newDrupal(false)
				for _, slug := range slugs {
					cms.nodes[makeUUID(slug)] = map[string]any{}
				}
				return openDrupal(t, cms, "password-of-drupal"), cms
			}},
		"ghost": {messages: bySlug, open: func(t *testing.T, slugs ...string) (*recipe, store) {
			t.Helper()
			cms := newGhost(false)
			for _, slug := range slugs {
				cms.add(slug)
			}
			return openGhost(t, cms, ghostSecret), cms
		}},
		"keystone": {messages: bySlug, open: func(t *testing.T, slugs ...string) (*recipe, store) {
			t.Helper()
			cms := newKeystone(slugs...)
			return openKeystone(t, cms, "token-of-keystone"), cms
		}},
		"mediawiki": {
			messages: map[string]string{
				"article": `<article version="3"><title>%s</title><text>x</text></article>`,
				"delete":  `<delete><title>%s</title></delete>`,
			},
			keepsSlug: "the look-up shows the title under which MediaWiki writes a page",
			open: func(t *testing.T, slugs ...string) (*recipe, store) {
				t.Helper()
				cms := newMediaWiki(false)
				for _, slug := range slugs {
					cms.pages[slug] = &wikiPage{1, "old"}
				}
				return openMediaWiki(t, cms, wikiPassword), cms
			},
		},
		"optimizely": {messages: bySlug,
			open: func(t *testing.T, slugs ...string) (*recipe, store) {
				t.Helper()
				cms := newOptimizely(false)
				for _, slug := range slugs {
					cms.pages[makeUUID(slug)] = map[string]any{
						"contentLink": map[string]any{"guidValue": makeUUID(slug)}}
				}
				return openOptimizely(t, cms, "ArticlePage"), cms
			}},
		"payload": {messages: bySlug, open: func(t *testing.T, slugs ...string) (*recipe, store) {
			t.Helper()
			cms := newPayload(slugs...)
			return openPayload(t, cms, "key-of-payload"), cms
		}},
		"sitecore": {
			messages: map[string]string{"article": byPath["article"]},
			open: func(t *testing.T, slugs ...string) (*recipe, store) {
				t.Helper()
				cms := &sitecore{items: map[string]any{sitecoreHome: nil}}
				for _, slug := range slugs {
					cms.items[sitecoreHome+"/"+slug] = nil
				}
				return openSitecore(t, cms), cms
			},
		},
		"sitecore-itemservice": {
			messages: byPath, keepsSlug: "Sitecore refuses names that it cannot store",
			open: func(t *testing.T, slugs ...string) (*recipe, store) {
				t.Helper()
				cms := newItemService(false)
				for _, slug := range slugs {
					cms.items[sitecoreHome+"/"+slug] = map[string]any{}
				}
				return openItemService(t, cms, "password-of-sitecore"), cms
			},
		},
		"strapi": {messages: bySlug, open: func(t *testing.T, slugs ...string) (*recipe, store) {
			t.Helper()
			cms := newStrapi(slugs...)
			return openStrapi(t, cms, tokenOfStrapi), cms
		}},
		"strapi-locales": {
			messages: map[string]string{
				"article": `<article slug="%s" lang="de" version="3"><title>T</title></article>`,
				"delete":  `<delete slug="%s" lang="de"/>`,
			},
			open: func(t *testing.T, slugs ...string) (*recipe, store) {
				t.Helper()
				cms := newStrapiLocales(slugs...)
				return openStrapiLocales(t, cms), cms
			},
		},
		"umbraco": {messages: bySlug, keepsSlug: madeOfKey,
			open: func(t *testing.T, slugs ...string) (*recipe, store) {
				t.Helper()
				cms := newUmbraco(false)
				for _, slug := range slugs {
					cms.documents[makeUUID(slug)] = map[string]any{}
				}
				return openUmbraco(t, cms, "id-of-type"), cms
			}},
		"wordpress": {
			messages: map[string]string{
				"article": bySlug["article"],
				"image":   `<image slug="%s"><title>T</title><file name="a.png">eA==</file></image>`,
				"delete":  bySlug["delete"],
			},
			hasNoDrafts: []string{"image"},
			open: func(t *testing.T, slugs ...string) (*recipe, store) {
				t.Helper()
				cms := newWordPress(slugs...)
				for n, slug := range slugs {
					cms.posts[fmt.Sprint(100+n)] = map[string]any{
						"slug": slug, "status": "inherit", "type": "attachment"}
				}
				return openWordPress(t, cms, "abcd efgh"), cms
			},
		},
		"wordpress-xmlrpc": {messages: bySlug,
			open: func(t *testing.T, slugs ...string) (*recipe, store) {
				t.Helper()
				cms := newWordPressCalls(slugs...)
				return openWordPressCalls(t, cms), cms
			}},
	}
}

// makeUUID returns the id that recipes make of a key with the function uuid5.
func makeUUID(key string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(key)).String()
}
