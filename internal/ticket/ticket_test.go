package ticket_test

import (
	"testing"

	"weir/internal/ticket"
)

func TestEncode(t *testing.T) {
	t.Parallel()
	if got, want := ticket.Encode(2, 17), "weir lane 2.17"; got != want {
		t.Errorf("%q, want %q", got, want)
	}

	if got, want := ticket.Encode(2, ticket.AllLanes), "weir lanes 2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, want := range [][2]int{{0, 0}, {1, 0}, {2, 17}, {1 << 40, 1 << 30},
		{0, ticket.AllLanes}, {17, ticket.AllLanes}} {
		epoch, lane, err := ticket.Decode(ticket.Encode(want[0], want[1]))
		if epoch != want[0] || lane != want[1] || err != nil {
			t.Errorf("%v was decoded as %d, %d, %v, want %v, %v and no error", want, epoch, lane,
				err, want[0], want[1])
		}
	}

	garbage := map[string]string{
		"Empty":         "",
		"PrefixAlone":   "weir lane ",
		"NoPrefix":      "1.2",
		"PrefixTwice":   "weir lane weir lane 1.2",
		"NoLane":        "weir lane 1",
		"EmptyLane":     "weir lane 1.",
		"EmptyEpoch":    "weir lane .2",
		"ThreeNumbers":  "weir lane 1.2.3",
		"NotANumber":    "weir lane 1.x",
		"Hexadecimal":   "weir lane 1.0x2",
		"Underscore":    "weir lane 1.1_0",
		"LeadingZero":   "weir lane 01.2",
		"Plus":          "weir lane +1.2",
		"NegativeEpoch": "weir lane -1.2",
		"NegativeLane":  "weir lane 1.-2",
		"MinusZero":     "weir lane 1.-0",
		"TooLarge":      "weir lane 1.99999999999999999999",
		"SpaceAfter":    "weir lane 1.2 ",
		"SpaceBefore":   " weir lane 1.2",
		"NewLine":       "weir lane 1.2\n",
		"UpperCase":     "WEIR LANE 1.2",
		"JSON":          `{"lane":2,"epoch":1}`,
		"Base64":        "d2VpciBsYW5lIDEuMg==",
		"AllOfNoEpoch":  "weir lanes ",
		"AllAndALane":   "weir lanes 1.2",
		"AllZeroFirst":  "weir lanes 01",
		"AllNegative":   "weir lanes -1",
		"LaneOfAll":     "weir lane 1.-1",
		"OtherDigits":   "weir lane 1.٢",
	}
	for name, text := range garbage {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if epoch, lane, err := ticket.Decode(text); err == nil || epoch != 0 || lane != 0 {
				t.Errorf("%q was decoded as %d.%d, error %v, want an error, 0 and 0", text,
					epoch, lane, err)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("weir lane 1.2")
	f.Add("weir lanes 1")
	f.Add(`{"lane":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		epoch, lane, err := ticket.Decode(text)
		if err == nil && ticket.Encode(epoch, lane) != text {
			t.Errorf("Encode of the decoded %q = %q, want it back", text,
				ticket.Encode(epoch, lane))
		}
	})
}
