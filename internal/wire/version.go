package wire

// VersionList has the newest delivered versions of a key, one for each contract.
type VersionList struct {
	Key      string    `json:"key"`
	Lane     int       `json:"lane"`
	Versions []Version `json:"versions"`
}

// Version is the newest delivered version of a key and contract. If a later message of the same key
// and contract has an older version, Weir supersedes the later message.
type Version struct {
	Contract  string `json:"contract"`
	Version   string `json:"version"`
	MessageID string `json:"messageId"`
	// the reason why the version is suspicious; "" = plausible
	Warning string `json:"warning,omitempty"`
}
