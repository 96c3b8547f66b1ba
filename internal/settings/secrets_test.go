package settings

import (
	"reflect"
	"testing"
)

func TestListSecrets_TypeWithoutAPackage(t *testing.T) {
	t.Parallel()
	if got := listSecrets(reflect.ValueOf(struct{ Secret Secret }{"in-a-struct"})); len(got) != 0 {
		t.Errorf("got %q of a type without a package, want none", got)
	}
}
