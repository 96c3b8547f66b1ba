// A program of an upstream developer that uses the client of ogen. It prints one line for each
// thing that it has seen, and ends at the first answer that is not as it should be.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"example/client/ogen"
)

const article = `<article path="/ogen" version="1"><title>From a generated client</title></article>`

// keys is the source of function keys. Without Azure no key is needed.
type keys struct{}

func (keys) Code(context.Context, ogen.OperationName) (ogen.Code, error) { return ogen.Code{}, nil }
func (keys) Key(context.Context, ogen.OperationName) (ogen.Key, error)   { return ogen.Key{}, nil }

func main() {
	log.SetFlags(0)
	client, err := ogen.NewClient(os.Args[1], keys{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	id := post(ctx, client)
	read(ctx, client, id)
	change(ctx, client)
}

// must returns the answer of a call, which must have the type T.
func must[T any](answer any, err error) T {
	typed, is := answer.(T)
	if err != nil || !is {
		log.Fatalf("got %T %+v (%v), want a %T", answer, answer, err, typed)
	}
	return typed
}

func send(ctx context.Context, client *ogen.Client, key, wait, body string) (any, error) {
	params := ogen.SendMessageParams{IdempotencyKey: ogen.NewOptString(key)}
	if wait != "" {
		params.Prefer = ogen.NewOptString(wait)
	}
	return client.SendMessage(ctx,
		&ogen.SendMessageReqApplicationXML{Data: strings.NewReader(body)}, params)
}

func post(ctx context.Context, client *ogen.Client) string {
	sent := must[*ogen.PostedHeaders](send(ctx, client, "ogen-1", "wait=20", article))
	fmt.Println("posted", sent.Response.Key, sent.Response.Stage)

	again := must[*ogen.SendMessageAcceptedHeaders](send(ctx, client, "ogen-1", "", article))
	if again.Response.ID != sent.Response.ID {
		log.Fatalf("got the id %s, want %s", again.Response.ID, sent.Response.ID)
	}
	fmt.Println("repeated", again.Response.Duplicate.Value)

	refused := must[*ogen.SendMessageUnprocessableEntity](send(ctx, client, "ogen-2", "", "<unknown/>"))
	fmt.Println("problem", refused.Status)
	return sent.Response.ID
}

func read(ctx context.Context, client *ogen.Client, id string) {
	status := must[*ogen.MessageHeaders](client.GetMessage(ctx, ogen.GetMessageParams{ID: id}))
	fmt.Println("status", status.Response.Stage, status.Response.Attempts)

	list := must[*ogen.MessageList](client.FindMessages(ctx,
		ogen.FindMessagesParams{Key: ogen.NewOptString("/ogen")}))
	fmt.Println("listed", len(list.Messages), list.Messages[0].Contract)
}

func change(ctx context.Context, client *ogen.Client) {
	valid := must[*ogen.Validation](client.ValidateMessage(ctx,
		&ogen.ValidateMessageReqApplicationXML{Data: strings.NewReader(article)}))
	fmt.Println("valid", valid.Valid)

	batch := must[*ogen.BatchHeaders](client.SendBatch(ctx,
		&ogen.SendBatchReqApplicationXML{Data: strings.NewReader("<feed>" + article + "</feed>")},
		ogen.SendBatchParams{Split: ogen.NewOptString("/feed/article"),
			IdempotencyKey: ogen.NewOptString("ogen-batch")}))
	fmt.Println("batch", batch.Response.Format)

	schedule := must[*ogen.PutScheduleCreatedHeaders](client.PutSchedule(ctx,
		&ogen.ScheduleDefinition{Cron: "@daily", Message: ogen.NewOptString(article),
			Paused: ogen.NewOptBool(true)}, ogen.PutScheduleParams{Name: "ogen"}))
	fmt.Println("schedule", schedule.Response.Name)
}
