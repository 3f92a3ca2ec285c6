// Talks to the server that sent this page. Every failure becomes a Failure that says what a person can do.
import { local, session } from "./keep.js";
import { events } from "./sse.js";

const KEY = "smoe.key";

export class Failure extends Error {
  /** kind: offline, key, busy, context, server or cut; `wait` in seconds where the server said so. */
  constructor(kind, message, wait) {
    super(message);
    this.kind = kind;
    this.wait = wait;
  }
}

export const readKey = () => session.get(KEY) ?? local.get(KEY) ?? "";

export function writeKey(key, remember) {
  session.set(KEY, (!remember && key) || null);
  local.set(KEY, (remember && key) || null);
}

function kindOf(status, error) {
  if (status === 401) return "key";
  if ([429, 503, 529].includes(status)) return "busy";
  if (/context/.test(`${error.code} ${error.type}`)) return "context";
  return "server";
}

async function failureOf(response) {
  const body = await response.json().catch(() => ({}));
  const error = body.error ?? {};
  const message = error.message ?? `The server answered ${response.status} ${response.statusText}.`;
  return new Failure(kindOf(response.status, error), message, Number(response.headers.get("Retry-After")) || undefined);
}

async function request(path, options = {}) {
  const key = readKey();
  const headers = { ...(key && { Authorization: `Bearer ${key}` }), ...options.headers };
  const response = await fetch(path, { ...options, headers, credentials: "same-origin", cache: "no-store" }).catch((error) => {
    if (error.name === "AbortError") throw error;
    throw new Failure("offline", "The server does not answer. Is it still running?");
  });
  if (!response.ok) throw await failureOf(response);
  return response;
}

export const getJson = async (path) => (await request(path)).json();

/** Yields the chunks of one streamed chat completion. Throws Failure, or AbortError once `signal` fires. */
export async function* streamChat(body, signal) {
  const extras = { stream: true, stream_options: { include_usage: true }, return_progress: true };
  const response = await request("/v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, ...extras }),
    signal,
  });
  let done = false; // after the last event the body is read to its end, so that the server sees no hang-up
  try {
    for await (const data of events(response.body)) {
      if (data === "[DONE]") done = true;
      if (done) continue;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Failure(kindOf(chunk.error.status, chunk.error), chunk.error.message);
      yield chunk;
    }
  } catch (error) {
    if (error instanceof Failure || error.name === "AbortError") throw error;
    throw new Failure("cut", "The connection to the server was lost in the middle of the reply.");
  }
  if (!done) throw new Failure("cut", "The reply broke off: the server closed the connection before its end.");
}
