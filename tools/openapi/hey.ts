// A program of an upstream developer: it uses the client that openapi-ts makes from openapi.yaml. It prints one line
// for each thing that it has seen, and throws at the first answer that is not as it should be.
import { createClient } from "./hey/client/index.js";
import * as weir from "./hey/index.js";

const client = createClient({ baseUrl: process.argv[2] });
const body = '<article path="/hey" version="1"><title>From a generated client</title></article>';

function requireValue<T>(value: T | undefined, operation: string, error?: unknown): T {
  if (value === undefined) throw new Error(`${operation}: ${JSON.stringify(error)}`);
  return value;
}

function post(text: string, key: string, wait?: string) {
  const headers = { "Idempotency-Key": key, ...(wait ? { Prefer: wait } : {}) };
  return weir.sendMessage({ client, body: text, bodySerializer: null, headers });
}

const sent = await post(body, "hey-1", "wait=20");
const posted = requireValue(sent.data, "post", sent.error);
console.log("posted", posted.key, posted.stage);

const again = await post(body, "hey-1");
if (again.data?.id !== posted.id) throw new Error("a repeated post is another message");
console.log("repeated", again.data.duplicate);

const refused = await post("<unknown/>", "hey-2");
console.log("problem", requireValue(refused.error, "a message without a contract was accepted").status);

const status = await weir.getMessage({ client, path: { id: posted.id } });
const message = requireValue(status.data, "status", status.error);
console.log("status", message.stage, message.attempts);

const found = await weir.findMessages({ client, query: { key: "/hey" } });
const list = requireValue(found.data, "list", found.error);
if (typeof list === "string") throw new Error("the list is a file, although none was asked for");
console.log("listed", list.messages.length, list.messages[0]?.contract);

const checked = await weir.validateMessage({ client, body, bodySerializer: null });
console.log("valid", requireValue(checked.data, "validate", checked.error).valid);

const batch = await weir.sendBatch({
  client, body: `<feed>${body}</feed>`, bodySerializer: null, query: { split: "/feed/article" },
  headers: { "Content-Type": "application/xml", "Idempotency-Key": "hey-batch" },
});
console.log("batch", requireValue(batch.data, "batch", batch.error).format);

const schedule = await weir.putSchedule({
  client, path: { name: "hey" }, body: { cron: "@daily", message: body, paused: true },
});
console.log("schedule", requireValue(schedule.data, "schedule", schedule.error).name);
