// A program of an upstream developer: it uses the client that openapi-typescript makes from openapi.yaml, whose types
// the compiler holds against each call. It prints one line for each thing that it has seen, and throws at the first
// answer that is not as it should be.
import createClient from "openapi-fetch";
import type { paths } from "./weir.js";

const weir = createClient<paths>({ baseUrl: process.argv[2] });
const article = '<article path="/client" version="1"><title>From a generated client</title></article>';
const xml = { headers: { "Content-Type": "application/xml" }, bodySerializer: (text: string) => text };

function requireValue<T>(value: T | undefined, operation: string, error?: unknown): T {
  if (value === undefined) throw new Error(`${operation}: ${JSON.stringify(error)}`);
  return value;
}

async function post(body: string, key: string, wait?: string) {
  const header = { "Idempotency-Key": key, ...(wait ? { Prefer: wait } : {}) };
  return weir.POST("/api/messages", { params: { header }, body, ...xml });
}

const sent = await post(article, "client-1", "wait=20");
const posted = requireValue(sent.data, "post", sent.error);
console.log("posted", posted.key, posted.stage);

const again = await post(article, "client-1");
if (again.data?.id !== posted.id) throw new Error("a repeated post is another message");
console.log("repeated", again.data.duplicate);

const refused = await post("<unknown/>", "client-2");
console.log("problem", requireValue(refused.error, "a message without a contract was accepted").status);

const status = await weir.GET("/api/messages/{id}", { params: { path: { id: posted.id } } });
const message = requireValue(status.data, "status", status.error);
console.log("status", message.stage, message.attempts);

// The type also has the text of a CSV file, which Weir answers to `format=csv` alone.
const found = await weir.GET("/api/messages", { params: { query: { key: "/client" } } });
const list = requireValue(found.data, "list", found.error);
if (typeof list === "string") throw new Error("the list is a file, although none was asked for");
console.log("listed", list.messages.length, list.messages[0]?.contract);

const checked = await weir.POST("/api/validate", { body: article, ...xml });
console.log("valid", requireValue(checked.data, "validate", checked.error).valid);

const batch = await weir.POST("/api/batches", {
  params: { query: { split: "/feed/article" }, header: { "Idempotency-Key": "client-batch" } },
  body: `<feed>${article}</feed>`,
  ...xml,
});
console.log("batch", requireValue(batch.data, "batch", batch.error).format);

const schedule = await weir.PUT("/api/schedules/{name}", {
  params: { path: { name: "client" } },
  body: { cron: "@daily", message: article, paused: true },
});
console.log("schedule", requireValue(schedule.data, "schedule", schedule.error).name);
