package app

import "fmt"

// liberties are the ways in which a fake CMS changes or confuses slugs, as real CMSs do. The zero
// value has none.
type liberties struct {
	// whether a look-up shows an item; nil = if the slugs are equal
	isFound func(stored, asked string) bool
	// the slug that the CMS stores; nil = the one that it was asked for
	rename    func(asked string) string
	published []string // each slug that the CMS has published, in order
}

func (l *liberties) take(other liberties) { l.isFound, l.rename = other.isFound, other.rename }

func (l *liberties) finds(stored any, asked string) bool {
	slug, _ := stored.(string)
	if l.isFound == nil {
		return slug == asked
	}
	return l.isFound(slug, asked)
}

func (l *liberties) storedSlug(asked any) string {
	slug, _ := asked.(string)
	if l.rename == nil {
		return slug
	}
	return l.rename(slug)
}

func (l *liberties) recordPublished(slug any) {
	l.published = append(l.published, fmt.Sprint(slug))
}

func (l *liberties) listPublished() []string { return l.published }

// store is a fake CMS whose whole content a test can see.
type store interface {
	fakeCMS
	take(l liberties)
	listPublished() []string
	// snapshot returns the content of each item, by id.
	snapshot() map[string]string
}

// printItems returns the content of each item, by id.
func printItems[V any](items map[string]V) map[string]string {
	printed := map[string]string{}
	for id, item := range items {
		printed[id] = fmt.Sprint(item)
	}
	return printed
}
