// A program of an upstream developer: it uses the client that openapi-typescript makes from openapi.yaml, whose types
// the compiler holds against each call. It prints one line for each thing that it has seen, and throws at the first
// answer that is not as it should be.
import createClient from "openapi-fetch";
import type { components, paths } from "./weir.js";

const weir = createClient<paths>({ baseUrl: process.argv[2] });

function requireValue<T>(value: T | undefined, operation: string, error?: unknown): T {
  if (value === undefined) throw new Error(`${operation}: ${JSON.stringify(error)}`);
  return value;
}

async function post(body: string, key: string) {
  return weir.POST("/api/messages", {
    params: { header: { "Idempotency-Key": key, Prefer: "wait=20" } },
    headers: { "Content-Type": "application/xml" },
    body,
    bodySerializer: (text) => text,
  });
}

const article = '<article path="/client" version="1"><title>From a generated client</title></article>';
const sent = await post(article, "generated-1");
const accepted = requireValue(sent.data, "post", sent.error);
console.log("posted", accepted.key, accepted.sequence);

const repeated = await post(article, "generated-1");
if (repeated.data?.id !== accepted.id) throw new Error("a repeated post is another message");
console.log("repeated", repeated.response.status);

let stage: components["schemas"]["Stage"] | undefined;
for (let reads = 0; reads < 100 && stage !== "delivered"; reads++) {
  const status = await weir.GET("/api/messages/{id}", { params: { path: { id: accepted.id } } });
  stage = requireValue(status.data, "status", status.error).stage;
  if (stage !== "delivered") await new Promise((done) => setTimeout(done, 200));
}
console.log("stage", stage);

const refused = await post("<unknown/>", "generated-2");
if (refused.data || !refused.error) throw new Error("a message without a contract was accepted");
console.log("refused", refused.response.status, refused.error.title);

// The type also has the text of a CSV file, which Weir answers to `format=csv` alone.
const lanes = await weir.GET("/api/lanes");
const list = requireValue(lanes.data, "lanes", lanes.error);
if (typeof list === "string") throw new Error("the lanes are a file, although none was asked for");
console.log("delivered", list.lanes.reduce((sum, lane) => sum + lane.delivered, 0));

const paused = await weir.POST("/api/pause", { body: { all: true, reason: "a generated client" } });
console.log("paused", requireValue(paused.data, "pause", paused.error).pauses[0]?.reason);
const resumed = await weir.POST("/api/resume", { body: { all: true } });
console.log("resumed", requireValue(resumed.data, "resume", resumed.error).pauses.length);
