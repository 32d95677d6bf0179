import assert from "node:assert/strict";
import test, { mock } from "node:test";
import { Live } from "../src/list/live";
import type { Rows } from "../src/list/rows";

const ENTER = 'event: enter\nid: 1\ndata: {"id": "new", "cell": "cell1", "cells": [[0, "new"], [0, "cell1"]]}\n\n';
const READY = "event: ready\nid: 0\ndata: {}\n\n";

/** A list that has no rows. */
function empty(): Rows {
  const question = { what: "instance", filter: "", fields: ["uuid", "cell"], order: [], asOf: null, allProjects: true };
  return { question, proof: { value: null }, replace: () => false, leave: () => false } as unknown as Rows;
}

/** The API has one stream, this one; no other tab is open. */
function stream(): ReadableStreamDefaultController<Uint8Array> {
  let controller!: ReadableStreamDefaultController<Uint8Array>;
  const body = new ReadableStream<Uint8Array>({ start: (made) => void (controller = made) });
  globalThis.fetch = () => Promise.resolve(new Response(body));
  const locks = { request: (...given: unknown[]) => Promise.resolve((given.at(-1) as (lock: unknown) => unknown)({})) };
  Object.defineProperty(globalThis, "navigator", { value: { locks }, configurable: true });
  return controller;
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve));
}

test("a list that is read for a change is read again once every index must have it", async () => {
  mock.timers.enable({ apis: ["setTimeout", "Date"], now: 1_000_000 });
  const sent = stream();
  let reads = 0;
  const live = new Live(empty(), () => {
    reads++;
    live.show(empty());
  });
  try {
    sent.enqueue(new TextEncoder().encode(READY));
    await until(() => live.state.value === "live");
    mock.timers.tick(5000);
    assert.equal(reads, 1, "after the first event");

    mock.timers.tick(60_000);
    sent.enqueue(new TextEncoder().encode(ENTER));
    await until(() => live.pending.value === 1);
    live.show(empty()); // taken in, from an index that does not have it yet
    assert.equal(live.pending.value, 0);
    mock.timers.tick(5000);
    assert.equal(reads, 2, "once more for the change");

    mock.timers.tick(60_000);
    live.show(empty());
    mock.timers.tick(60_000);
    assert.equal(reads, 2, "not when nothing has changed");
  } finally {
    live.close();
    mock.timers.reset();
  }
});
