// A program of an upstream developer that uses the client of oapi-codegen. It prints one line for
// each thing that it has seen, and ends at the first answer that is not as it should be.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"example/client/oapi"
)

const article = `<article path="/oapi" version="1"><title>From a generated client</title></article>`

func main() {
	log.SetFlags(0)
	client, err := oapi.NewClientWithResponses(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	id := post(ctx, client)
	read(ctx, client, id)
	change(ctx, client)
}

func post(ctx context.Context, client *oapi.ClientWithResponses) string {
	key, wait := "oapi-1", "wait=20"
	params := &oapi.SendMessageParams{IdempotencyKey: &key, Prefer: &wait}
	sent, err := client.SendMessageWithBodyWithResponse(ctx, params, "application/xml",
		strings.NewReader(article))
	if err != nil || sent.JSON200 == nil {
		log.Fatalf("post: %v %+v", err, sent)
	}
	fmt.Println("posted", sent.JSON200.Key, sent.JSON200.Stage)

	params.Prefer = nil
	again, err := client.SendMessageWithBodyWithResponse(ctx, params, "application/xml",
		strings.NewReader(article))
	if err != nil || again.JSON202 == nil || again.JSON202.Duplicate == nil ||
		again.JSON202.Id != sent.JSON200.Id {
		log.Fatalf("post again: %v %+v", err, again)
	}
	fmt.Println("repeated", *again.JSON202.Duplicate)

	other := "oapi-2"
	refused, err := client.SendMessageWithBodyWithResponse(ctx,
		&oapi.SendMessageParams{IdempotencyKey: &other}, "application/xml", strings.NewReader("<unknown/>"))
	if err != nil || refused.ApplicationproblemJSON422 == nil {
		log.Fatalf("post a message without a contract: %v %+v", err, refused)
	}
	fmt.Println("problem", refused.ApplicationproblemJSON422.Status)
	return sent.JSON200.Id
}

func read(ctx context.Context, client *oapi.ClientWithResponses, id string) {
	status, err := client.GetMessageWithResponse(ctx, id, nil)
	if err != nil || status.JSON200 == nil || status.JSON200.DeliveredAt == nil {
		log.Fatalf("status: %v %+v", err, status)
	}
	fmt.Println("status", status.JSON200.Stage, status.JSON200.Attempts)

	path := "/oapi"
	list, err := client.FindMessagesWithResponse(ctx, &oapi.FindMessagesParams{Key: &path})
	if err != nil || list.JSON200 == nil {
		log.Fatalf("list: %v %+v", err, list)
	}
	fmt.Println("listed", len(list.JSON200.Messages), list.JSON200.Messages[0].Contract)
}

func change(ctx context.Context, client *oapi.ClientWithResponses) {
	valid, err := client.ValidateMessageWithBodyWithResponse(ctx, "application/xml",
		strings.NewReader(article))
	if err != nil || valid.JSON200 == nil {
		log.Fatalf("validate: %v %+v", err, valid)
	}
	fmt.Println("valid", valid.JSON200.Valid)

	split := "/feed/article"
	key := "oapi-batch"
	batch, err := client.SendBatchWithBodyWithResponse(ctx,
		&oapi.SendBatchParams{Split: &split, IdempotencyKey: &key}, "application/xml",
		strings.NewReader("<feed>"+article+"</feed>"))
	if err != nil || batch.JSON202 == nil {
		log.Fatalf("batch: %v %+v", err, batch)
	}
	fmt.Println("batch", batch.JSON202.Format)

	message, paused := article, true
	schedule, err := client.PutScheduleWithResponse(ctx, "oapi", nil,
		oapi.ScheduleDefinition{Cron: "@daily", Message: &message, Paused: &paused})
	if err != nil || schedule.JSON201 == nil {
		log.Fatalf("schedule: %v %+v", err, schedule)
	}
	fmt.Println("schedule", schedule.JSON201.Name)
}
