// Command gosender posts a file with XML to Weir, and tries again until Weir has answered.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"time"
)

var client = &http.Client{Timeout: 15 * time.Second}

func main() { // address of Weir, file with the XML, key of the message
	body, err := os.ReadFile(os.Args[2])
	for attempt := 1; err == nil && attempt <= 10; attempt++ {
		status, answer, pause := post(os.Args[1], os.Args[3], body)
		switch status {
		case http.StatusOK, http.StatusAccepted:
			fmt.Println(answer)
			return
		case 0, 408, 429, 500, 502, 503, 504: // it may pass; the message may be stored, too
			if pause == 0 {
				pause = time.Duration(
					rand.Float64() * float64(min(1<<attempt, 60)) * float64(time.Second))
			}
			time.Sleep(pause)

		default:
			log.Fatal(status, " ", answer)
		}
	}

	log.Fatal(errors.Join(err, errors.New("no answer after ten tries")))
}

func post(address, key string, body []byte) (status int, answer string, pause time.Duration) {
	req, err := http.NewRequest(http.MethodPost, address+"/api/messages", bytes.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}

	req.Header.Set("Content-Type", "application/xml")
	req.Header.Set("Idempotency-Key", key) // the same for each try: then all tries are one message
	req.Header.Set("Prefer", "wait=5")     // shorter than the timeout of a try
	req.Header.Set("x-functions-key", os.Getenv("WEIR_KEY"))
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error(), 0
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))

	return resp.StatusCode, string(text), time.Duration(seconds) * time.Second
}
