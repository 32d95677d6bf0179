import assert from "node:assert/strict";
import test from "node:test";
import { ASKED_AGAIN_MS, Rows } from "../src/list/rows";

const QUESTION = { what: "instance", filter: "", fields: ["uuid", "cell", "name"], order: ["name"], asOf: null, allProjects: true };
const MOST = 1000;

/**
 * An API of so many items; their keys are their positions, and so are the markers. Returns the requests that it got.
 * wrongBy: how far the positions of boundaries are from the truth, as those of a sample.
 */
function serve(total: number, wrongBy = 0): URLSearchParams[] {
  const asked: URLSearchParams[] = [];
  globalThis.fetch = (input) => {
    const url = new URL(String(input), "http://api");
    asked.push(url.searchParams);
    return Promise.resolve(Response.json(answerTo(url, total, wrongBy), { headers: { "Fleetlight-Complete": "true" } }));
  };
  return asked;
}

function answerTo({ pathname, searchParams }: URL, total: number, wrongBy: number): unknown {
  if (pathname.endsWith("/counts")) return { groups: [{ by: {}, statuses: {}, count: total }], partial: false };
  if (pathname.endsWith("/boundaries")) {
    const parts = Number(searchParams.get("parts"));
    const places = Array.from({ length: parts }, (_, index) => Math.floor((index * total) / parts));
    const boundaries = places.map((place) => ({
      before: place === 0 ? 0 : place + wrongBy,
      value: [0, null],
      marker: place === 0 ? null : String(place),
    }));
    return { total, partial: false, boundaries };
  }
  const from = Number(searchParams.get("marker") ?? 0);
  const end = Math.min(total, from + Math.min(MOST, Number(searchParams.get("limit"))));
  const data = Array.from({ length: end - from }, (_, index) => [[0, `item-${from + index}`], [0, "cell1"], [0, "name"]]);
  return { fields: [{ name: "uuid" }, { name: "cell" }, { name: "name" }], data, marker: end < total ? String(end) : null };
}

/** When nothing is asked for any more. */
async function settled(rows: Rows): Promise<void> {
  do await new Promise((resolve) => setTimeout(resolve, 5));
  while (rows.isLoading.value);
}

test("a short list is whole after one request", async () => {
  const asked = serve(30);
  const rows = new Rows(QUESTION);
  await settled(rows);
  assert.deepEqual([rows.total.value, rows.isWhole.value, asked.length], [30, true, 1]);
  assert.equal(rows.at(29)?.key, "item-29");
});

test("every position of a million rows shows its row, after a few requests, and few rows are kept", async () => {
  const asked = serve(1_000_000);
  const rows = new Rows(QUESTION);
  await settled(rows);
  for (const position of [999_970, 503_210, 12, 250_000, 999_999 - 40]) {
    const before = asked.length;
    rows.need(position, position + 30);
    await settled(rows);
    for (let each = position; each < position + 30; each++) assert.equal(rows.at(each)?.key, `item-${each}`);
    assert.ok(asked.length - before <= 14, `${asked.length - before} requests for position ${position}`);
  }
  let kept = 0;
  for (let position = 0; position < 1_000_000; position++) if (rows.at(position) !== undefined) kept++;
  assert.ok(kept < 6000, `${kept} rows are kept`);
});

for (const wrongBy of [0, 700, -700]) {
  test(`whoever scrolls sees each row once, in both directions, where a jump is wrong by ${wrongBy}`, async () => {
    serve(100_000, wrongBy);
    const rows = new Rows(QUESTION);
    await settled(rows);
    let at = 50_500;
    for (const step of [90, 90, 90, -90, -90, -90, -90, -90, -90, -90, -90, -90]) {
      rows.need(at, at + 30);
      await settled(rows);
      const before = numberAt(rows, at);
      rows.need(at + step, at + step + 30);
      await settled(rows);
      assert.equal(numberAt(rows, at + step) - before, step);
      at += step;
    }
  });

  test(`the beginning and the end are where they belong, where a jump is wrong by ${wrongBy}`, async () => {
    serve(20_000, wrongBy);
    const rows = new Rows(QUESTION);
    await settled(rows);
    for (let at = 3000; at >= 0; at -= 30) {
      rows.need(at, at + 30);
      await settled(rows);
    }
    assert.equal(numberAt(rows, 0), 0);
    assert.equal(numberAt(rows, 29), 29);
    rows.need(19_500, 19_530);
    await settled(rows);
    for (let at = 19_500; at < rows.total.value!; at += 30) {
      rows.need(at, at + 30);
      await settled(rows);
    }
    // As the table does when it learns that the list is shorter.
    rows.need(rows.total.value! - 30, rows.total.value!);
    await settled(rows);
    assert.equal(numberAt(rows, rows.total.value! - 1), 19_999);
  });
}

function numberAt(rows: Rows, position: number): number {
  return Number(rows.at(position)?.key.slice("item-".length));
}

test("a list that can only be read from its beginning grows while it is scrolled", async () => {
  serve(700);
  const served = globalThis.fetch;
  globalThis.fetch = (input, options) =>
    /counts|boundaries/.test(String(input)) ? Promise.resolve(new Response("{}", { status: 400 })) : served(input, options);
  const rows = new Rows(QUESTION);
  await settled(rows);
  assert.equal(rows.isWhole.value, false);
  for (let at = 0; at < 700; at += 100) {
    rows.need(at, at + 30);
    await settled(rows);
  }
  assert.equal(rows.total.value, 700);
  assert.equal(rows.at(699)?.key, "item-699");
});

test("a row changes and leaves in place, and others are not touched", async () => {
  serve(5);
  const rows = new Rows(QUESTION);
  await settled(rows);
  assert.ok(rows.replace([[0, "item-3"], [0, "cell1"], [0, "new name"]]));
  assert.ok(rows.leave("item-1", "cell1"));
  assert.equal(rows.replace([[0, "item-77"], [0, "cell1"], [0, "name"]]), false);
  assert.equal(rows.leave("item-2", "cell2"), false, "another cell may have an item of the same key");
  assert.deepEqual([0, 1, 2, 3].map((at) => rows.at(at)?.mark), [null, "left", null, "changed"]);
  assert.equal(rows.at(3)?.cells[2]![1], "new name");
});

test("what the API refuses is the problem of the list, in its words", async () => {
  globalThis.fetch = () => Promise.resolve(Response.json({ badRequest: { code: 400, message: "Unknown field 'vm_stat'" } }, { status: 400 }));
  const rows = new Rows(QUESTION);
  await settled(rows);
  assert.equal(rows.problem.value, "Unknown field 'vm_stat'");
});

test("while a list is read again its rows of before are shown, at the same place", async () => {
  serve(1000);
  const before = new Rows(QUESTION);
  await settled(before);
  before.need(500, 530);
  await settled(before);
  const rows = new Rows(QUESTION, before);
  assert.equal(rows.total.value, 1000);
  assert.equal(rows.at(510)?.key, "item-510");
  assert.equal(rows.proof.value, before.proof.value);
  await settled(rows);
  assert.equal(rows.at(529)?.key, "item-529");
});

test("a list that was empty is asked for again when it is read again", async () => {
  serve(0);
  const before = new Rows(QUESTION);
  await settled(before);
  serve(2);
  const rows = new Rows(QUESTION, before);
  await settled(rows);
  assert.deepEqual([before.total.value, rows.total.value, rows.at(1)?.key], [0, 2, "item-1"]);
});

test("a list that was whole stays until it is whole again", async (context) => {
  serve(30);
  const whole = new Rows(QUESTION);
  await settled(whole);
  const answerWith = (skipped: string): void => {
    globalThis.fetch = () =>
      Promise.resolve(
        Response.json({ fields: [], data: skipped === "" ? [[[0, "new"], [0, "cell1"], [0, "name"]]] : [], marker: null }, {
          headers: { "Fleetlight-Complete": String(skipped === ""), "Fleetlight-Route": skipped },
        }),
      );
  };
  answerWith("cell1=skipped");
  const first = new Rows(QUESTION, whole);
  await settled(first);
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const again = new Rows(QUESTION, first);
  while (again.problem.value === null) await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual([again.at(29)?.key, again.total.value, again.problem.value?.slice(0, 30)], ["item-29", 30, "Some cells do not answer now: "]);
  answerWith("");
  context.mock.timers.tick(ASKED_AGAIN_MS);
  context.mock.timers.reset();
  await settled(again);
  assert.deepEqual([again.at(0)?.key, again.total.value, again.problem.value], ["new", 1, null]);
  again.close();
});
