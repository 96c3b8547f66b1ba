package steps

import (
	"fmt"
	"maps"
	"slices"

	"github.com/goccy/go-yaml/ast"
)

// lookUps are the steps under the setting "lookups", by name. A contract's steps take them by
// "use", so the rules of a look-up hold in each contract that uses it.
type lookUps struct {
	file   *File
	byName map[string]*sharedLookUp
}

// sharedLookUp is an entry of the setting "lookups".
type sharedLookUp struct {
	steps  []stepSource
	at     place
	isUsed bool
}

// stepSource is a step in the settings file, before it is compiled.
type stepSource struct {
	node ast.Node
	path string
	name string // name of the step if the step itself has no setting "name"
	// the place of "use", by which the step came from lookups; nil = it stands in the list itself
	usedAt *place
}

const lookUpsPath = "lookups"

// readLookUps reads the setting "lookups": a step, or a list of steps, under each name.
func (f *File) readLookUps(s Source) *lookUps {
	l := &lookUps{file: f, byName: map[string]*sharedLookUp{}}
	if !s.IsSet() {
		return l
	}

	pairs, ok := f.readMapping(s.node, lookUpsPath)
	if !ok {
		f.addMistake(placeOf(s.node, lookUpsPath),
			"it must be a mapping of names to steps, such as find: { get: \"/items?ref={{ key }}\" }")
	}

	for _, p := range pairs {
		l.byName[p.key] = &sharedLookUp{steps: f.readLookUp(p), at: p.at}
	}

	return l
}

// readLookUp reads one entry of the setting "lookups". A single step has the name of its entry.
func (f *File) readLookUp(p pair) []stepSource {
	items, isList := f.readList(p.value)
	if !isList {
		f.refuseUse(p.value, p.at.path)
		return []stepSource{{node: p.value, path: p.at.path, name: p.key}}
	}

	var sources []stepSource
	for i, item := range items {
		source := stepSource{node: item, path: fmt.Sprintf("%s[%d]", p.at.path, i)}
		f.refuseUse(item, source.path)

		if _, hasName := f.readSetting(item, source.path, "name"); !hasName {
			f.addMistake(placeOf(item, source.path),
				"a step of a look-up with several steps needs a name")
		}

		sources = append(sources, source)
	}

	return sources
}

// refuseUse records a mistake if a step of a look-up uses a look-up itself.
func (f *File) refuseUse(step ast.Node, path string) {
	if use, isUse := f.readSetting(step, path, "use"); isUse {
		f.addMistake(use.at, "a look-up cannot use another one; list both in the steps of the contract")
	}
}

// readSetting returns the setting of a step with this name.
func (f *File) readSetting(step ast.Node, path, name string) (pair, bool) {
	pairs, _ := f.readMapping(step, path)
	for _, p := range pairs {
		if p.key == name {
			return p, true
		}
	}
	return pair{}, false
}

// listSteps returns the steps of a list in the settings file, with the steps of a look-up in place
// of each item "use: NAME".
func (c *compiler) listSteps(items []ast.Node, path string) []stepSource {
	var sources []stepSource
	for i, item := range items {
		source := stepSource{node: item, path: fmt.Sprintf("%s[%d]", path, i),
			name: fmt.Sprint("step", i+1)}
		use, isUse := c.file.readSetting(item, source.path, "use")
		if !isUse || c.chain == nil { // refuseInSignIn refuses "use" in a sign-in
			sources = append(sources, source)
			continue
		}

		sources = append(sources, c.useLookUp(source, use)...)
	}

	return sources
}

// useLookUp returns the steps of the look-up that the setting "use" names.
func (c *compiler) useLookUp(user stepSource, use pair) []stepSource {
	f := c.file
	name, _ := readText(use.value)
	pairs, _ := f.readMapping(user.node, user.path)
	for _, p := range pairs {
		if p.key != use.key {
			f.addMistake(p.at, "%s cannot stand beside use; write it under lookups, in the step %s",
				p.key, name)
		}
	}

	found := c.lookUps.byName[name]
	if found == nil {
		known := slices.Sorted(maps.Keys(c.lookUps.byName))
		f.addMistake(use.placeOfValue(), "there is no look-up %q under lookups%s", name,
			SuggestName(name, known))
		return nil
	}

	found.isUsed = true

	at := use.placeOfValue()
	sources := slices.Clone(found.steps)
	for i := range sources {
		sources[i].usedAt = &at
	}

	return sources
}

// checkLookUp records a mistake if a step of a look-up can change the CMS. Contracts share look-ups
// so that their rules hold in all; a shared write would hide from a contract's steps that the
// contract writes.
func (c *compiler) checkLookUp(source stepSource, st *step) {
	if source.usedAt != nil && !st.isSafe {
		c.file.addMistake(placeOf(source.node, source.path),
			"a look-up only reads: write get, head, a query of graphql, or post with reads: true")
	}
}

// checkUses records a mistake for each look-up that no contract uses: its rules hold nowhere.
func (l *lookUps) checkUses() {
	for _, name := range slices.Sorted(maps.Keys(l.byName)) {
		if shared := l.byName[name]; !shared.isUsed {
			l.file.addMistake(shared.at,
				"no contract uses this look-up; write - use: %s in its steps", name)
		}
	}
}
