package cli

import "testing"

func TestVersions(t *testing.T) {
	t.Parallel()
	const id = "AQABL714SFvJDd7dAA"
	f := newFakeServer(t)
	found := `{"key":"/a","lane":0,"versions":[{"contract":"article","version":"99999999999999999999","messageId":"` +
		id +
		`","warning":"a number with more than 18 digits"}]}`
	f.answerJSON("GET /api/versions", 200, found, `{"key":"/b","lane":0,"versions":[]}`)
	f.answerJSON("POST /api/versions/forget", 202, found)
	f.runCommand("versions", "/a").expectEnd(t, exitOK,
		"article   99999999999999999999  "+id+"  a number with more than 18 digits\n", "")
	f.runCommand("versions", "/b", "--contract", "article").expectEnd(t, exitOK,
		"No version of this key is recorded. Weir records them for contracts with supersede.\n", "")
	f.runCommand("versions", "forget", "/a").expectEnd(t, exitUsage, "", "--contract is needed")
	f.runCommand("versions", "forget", "/a", "--contract", "article").expectEnd(t, exitOK,
		"99999999999999999999", "")
	f.runCommand("versions", "forget", "/a", "--contract", "article", "--json").expectEnd(t, exitOK,
		found+"\n", "")
	const forget = `POST /api/versions/forget {"contract":"article","key":"/a"}`
	want := "GET /api/versions?key=%2Fa \nGET /api/versions?contract=article&key=%2Fb \n" + forget +
		"\n" + forget
	if got := f.receivedRequests(); got != want {
		t.Errorf("got the requests\n%s\nwant\n%s", got, want)
	}
}
