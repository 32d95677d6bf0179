/** Server-sent events over fetch, which can send the header that shows that this page asks. */

import { fetched, type Parameters } from "./client";

export interface StreamEvent {
  readonly name: string;
  readonly id: string;
  readonly data: unknown;
}

/** Each event of a stream until it ends or `signal` aborts. Throws a Fault when it is refused. */
export async function* eventsOf(path: string, query: Parameters, after: string, signal: AbortSignal): AsyncGenerator<StreamEvent> {
  const headers: Record<string, string> = { Accept: "text/event-stream" };
  if (after !== "") headers["Last-Event-ID"] = after;
  const response = await fetched("GET", path, { query, headers, signal });
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let read = await reader.read();
  while (!read.done) {
    const blocks = (rest + read.value).split(/\r\n\r\n|\n\n/);
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const event = eventOf(block);
      if (event !== null) yield event;
    }
    read = await reader.read();
  }
}

/** One event of the lines between two empty ones; null for a comment alone, which only keeps the stream alive. */
export function eventOf(block: string): StreamEvent | null {
  let [name, id, data] = ["message", "", ""];
  for (const line of block.split(/\r\n|\n/)) {
    const value = line.slice(line.indexOf(":") + 1).replace(/^ /, "");
    if (line.startsWith("event:")) name = value;
    else if (line.startsWith("id:")) id = value;
    else if (line.startsWith("data:")) data += (data === "" ? "" : "\n") + value;
  }
  return id === "" && name === "message" && data === "" ? null : { name, id, data: data === "" ? null : JSON.parse(data) };
}
