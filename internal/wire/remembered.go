package wire

// RememberedList has the CMS's ids that Weir remembers for a key, one for each contract.
type RememberedList struct {
	Key        string         `json:"key"`
	Lane       int            `json:"lane"`
	Remembered []RememberedID `json:"remembered"`
}

// RememberedID is the id that the CMS gave to the item of a key and contract. The steps for the
// next message of the key and contract can use the id.
type RememberedID struct {
	Contract string `json:"contract"`
	ID       string `json:"id"`
}
