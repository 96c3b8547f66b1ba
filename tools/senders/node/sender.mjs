import { setTimeout as sleep } from "node:timers/promises";

const [address, file, key] = process.argv.slice(2); // address of Weir, file with the XML, key of the message
const { readFile } = await import("node:fs/promises");
const body = await readFile(file); // bytes: nothing changes their encoding

async function post() {
  return fetch(`${address}/api/messages`, {
    method: "POST",
    body,
    headers: {
      "Content-Type": "application/xml",
      "Idempotency-Key": key, // the same for each try: then all tries are one message
      Prefer: "wait=5", // shorter than the timeout of a try
      "x-functions-key": process.env.WEIR_KEY ?? "",
    },
    signal: AbortSignal.timeout(15_000),
  });
}

for (let attempt = 1; ; attempt++) {
  const answer = await post().catch((error) => ({ status: 0, error }));
  if (answer.status === 200 || answer.status === 202) {
    console.log((await answer.json()).id);
    break;
  }
  const isPassing = [0, 408, 429, 500, 502, 503, 504].includes(answer.status);
  if (!isPassing || attempt === 10) {
    throw new Error(answer.error ?? `${answer.status} ${await answer.text()}`);
  }
  const asked = Number(answer.headers?.get("Retry-After")); // seconds, of 429 and 503
  await sleep(1000 * (asked || Math.min(2 ** attempt, 60) * Math.random()));
}
