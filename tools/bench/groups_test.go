package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/democms"
)

func TestSenderLog(t *testing.T) {
	t.Parallel()
	s := &senderLog{by: map[int64]int{}}
	for _, line := range []string{
		`[2] {"level":"INFO","msg":"drain: attempt","lane":0,"seq":7,"fence":31,"attempt":1}`,
		`[1] {"level":"INFO","msg":"drain: attempt","lane":0,"seq":8,"fence":32,"attempt":1}`,
		`[1] {"level":"INFO","msg":"drain: superseded","seq":9,"fence":33}`,
		`Now listening on: http://127.0.0.1:1`,
	} {
		if _, err := fmt.Fprintln(s, line); err != nil {
			t.Fatal(err)
		}
	}

	if len(s.by) != 2 || s.by[31] != byProcess || s.by[32] != byHTTP {
		t.Errorf("got %v, want fence 31 of instance 2 and fence 32 of instance 1", s.by)
	}
}

func TestLastBefore(t *testing.T) {
	t.Parallel()
	at := time.Now()
	requests := []democms.Request{{StartedAt: at, EndedAt: at.Add(5)},
		{StartedAt: at.Add(6), EndedAt: at.Add(9)}, {StartedAt: at.Add(20), EndedAt: at.Add(21)}}
	if got := lastBefore(requests, at.Add(15)); !got.Equal(at.Add(9)) {
		t.Errorf("got %s, want %s", got, at.Add(9))
	}
}

func TestLatenessOf(t *testing.T) {
	t.Parallel()
	at := time.Now()
	a := dueTimes{{"/due", 1}: at}
	requests := []democms.Request{{Path: "/due", Version: 1, StartedAt: at.Add(time.Millisecond)},
		{Path: "/plain", Version: 1, StartedAt: at}}
	if late, err := latenessOf(requests, a); err != nil || len(late) != 1 || late[0] != 1 {
		t.Errorf("got %v, %v, want a lateness of 1 ms for one message", late, err)
	}

	a[message{"/due", 1}] = at.Add(time.Second)
	if _, err := latenessOf(requests, a); err == nil ||
		!strings.Contains(err.Error(), "/due came") {
		t.Errorf("too early: got %v, want an error", err)
	}
}
