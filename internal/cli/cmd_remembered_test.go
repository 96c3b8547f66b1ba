package cli

import "testing"

func TestRemembered(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	found := `{"key":"/a","lane":0,"remembered":[{"contract":"article","id":"17"}]}`
	f.answerJSON("GET /api/remembered", 200, found, `{"key":"/b","lane":0,"remembered":[]}`)
	f.answerJSON("POST /api/remembered/forget", 202, found)
	f.runCommand("remembered", "/a").expectEnd(t, exitOK, "article   17\n", "")
	f.runCommand("remembered", "/b", "--contract", "article").expectEnd(t, exitOK,
		"No id of this key is remembered.\n", "")
	f.runCommand("remembered", "forget", "/a").expectEnd(t, exitUsage, "", "--contract is needed")
	f.runCommand("remembered", "forget", "/a", "--contract", "article").expectEnd(t,
		exitOK, "17", "")
	f.runCommand("remembered", "forget", "/a", "--contract", "article", "--json").expectEnd(t,
		exitOK, found+"\n", "")
	const forget = `POST /api/remembered/forget {"contract":"article","key":"/a"}`
	want := "GET /api/remembered?key=%2Fa \nGET /api/remembered?contract=article&key=%2Fb \n" +
		forget + "\n" + forget
	if got := f.receivedRequests(); got != want {
		t.Errorf("got the requests\n%s\nwant\n%s", got, want)
	}
}
