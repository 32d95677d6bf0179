/**
 * One stream for all tabs of a browser that ask for the same.
 *
 * Over HTTP/1.1 a browser opens six connections to a host, so a stream in each tab would hang the seventh. The tab that
 * holds the lock of a stream reads it and passes it on; when it is closed, another one takes over. There are at most
 * three streams: a tab that gets none is told so, and asks again and again.
 */

import { Fault, type Parameters } from "./client";
import { eventsOf, type StreamEvent } from "./stream";

const SLOTS = 3;
const RETRY_MS = 3000;

export interface Listener {
  event(event: StreamEvent): void;
  /** Whether events come at the moment; if not, why. */
  state(isLive: boolean, reason: string): void;
}

/** Listen until the function that is returned is called. */
export function listen(path: string, query: Parameters, listener: Listener): () => void {
  const aborting = new AbortController();
  const { signal } = aborting;
  const name = `fleetlight ${path} ${JSON.stringify(query)}`;
  const channel = new BroadcastChannel(name);
  channel.onmessage = ({ data }: MessageEvent<StreamEvent>) => {
    listener.state(true, "");
    listener.event(data);
  };
  const pass = (event: StreamEvent): void => {
    channel.postMessage(event);
    listener.event(event);
  };
  navigator.locks
    .request(name, { signal }, () => inSlot(0, signal, listener, () => follow(path, query, signal, listener, pass)))
    .catch(() => undefined); // it was left before the lock came
  return () => {
    aborting.abort();
    channel.close();
  };
}

/** Work in the first slot that is free; wait for one when none is. */
async function inSlot(slot: number, signal: AbortSignal, listener: Listener, work: () => Promise<void>): Promise<void> {
  if (slot === SLOTS) {
    listener.state(false, "other tabs have all streams");
    return navigator.locks.request(`fleetlight slot ${SLOTS - 1}`, { signal }, work);
  }
  await navigator.locks.request(`fleetlight slot ${slot}`, { ifAvailable: true }, (lock) =>
    lock === null ? inSlot(slot + 1, signal, listener, work) : work(),
  );
}

async function follow(path: string, query: Parameters, signal: AbortSignal, listener: Listener, pass: (event: StreamEvent) => void): Promise<void> {
  let after = "";
  while (!signal.aborted) {
    try {
      for await (const event of eventsOf(path, query, after, signal)) {
        listener.state(true, "");
        if (event.id !== "") after = event.id;
        pass(event);
      }
      listener.state(false, "the stream has ended");
    } catch (error) {
      if (signal.aborted) return;
      listener.state(false, error instanceof Error ? error.message : String(error));
      if (error instanceof Fault && error.status === 410) after = "";
      else if (error instanceof Fault && error.status >= 400 && error.status < 500 && error.status !== 429) return;
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}
