// Package settings has the weir.yaml of the project's tests and demonstrations. It is no copy that
// has to equal the weir.yaml of the repository's root: that file belongs to the users who edit it,
// and no test reads it.
package settings

import _ "embed"

// YAML is the text of the file.
//
//go:embed weir.yaml
var YAML string
