package httpio

import (
	"errors"

	"weir/internal/weir"
)

// NameSetting adds the name of the setting in weir.yaml that limits bodies to an error of kind
// TooLarge. It returns any other error unchanged.
func NameSetting(err error, setting string) error {
	var e *weir.Error
	if !errors.As(err, &e) || e.Kind != weir.TooLarge {
		return err
	}

	named := *e
	named.Message += " (" + setting + " in weir.yaml)"
	return &named
}
