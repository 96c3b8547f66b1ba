package collector

import (
	"strconv"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
)

// valueText returns a string, an integer or a boolean as text. For any other type it returns "",
// because Weir sends no other type.
func valueText(v *commonpb.AnyValue) string {
	switch v := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_IntValue:
		return strconv.FormatInt(v.IntValue, 10)
	case *commonpb.AnyValue_BoolValue:
		return strconv.FormatBool(v.BoolValue)
	}

	return ""
}
