import assert from "node:assert/strict";
import test from "node:test";
import { differences, type ReadPage } from "../src/list/difference";

/** Two moments: what was as of `then`, and what is now; `away`: a cell that does not answer now; null: it is not named. */
function reads(then: readonly string[][], now: readonly string[][], away: string | null): ReadPage {
  return (asOf) => {
    const rows = asOf === null ? now : then;
    const routes = [{ cell: away, route: asOf === null ? "skipped" : "changelog", count: 1, watermark: null, ageS: null }] as const;
    const data = rows.map((row) => row.map((value) => [0, value] as const));
    return Promise.resolve({ answer: { fields: [], data, marker: null }, proof: { isComplete: asOf !== null, routes, at: 0 } });
  };
}

test("items of a cell that is not whole at both moments are no differences", async () => {
  const then = [["1", "cell1", "web"], ["2", "cell2", "db"], ["3", "cell1", "old"]];
  const now = [["1", "cell1", "renamed"]];
  const found = await differences("2026-11-29T10:00:00Z", null, 100, 1, reads(then, now, "cell2"));
  assert.deepEqual([found.found.map(({ key }) => key), found.compared, found.leftOut], [["1", "3"], 2, ["cell2"]]);
});

test("a caller who sees no cells is told that a list is not complete", async () => {
  const found = await differences("2026-11-29T10:00:00Z", null, 100, -1, reads([["1"]], [["1"]], null));
  assert.deepEqual([found.found, found.compared, found.isComplete], [[], 1, false]);
});

test("two moments are compared page by page, and each difference is found", async () => {
  const moments: Readonly<Record<string, readonly (readonly [string, number])[]>> = {
    then: [["a", 1], ["b", 1], ["d", 1]],
    now: [["b", 2], ["c", 1], ["d", 1]],
  };
  const read: ReadPage = (asOf, marker) => {
    const rows = moments[asOf ?? "now"]!;
    const at = Number(marker ?? 0);
    const data = rows.slice(at, at + 1).map(([key, value]) => [[0, key], [0, value]] as const);
    return Promise.resolve({ answer: { fields: [], data, marker: at + 1 < rows.length ? String(at + 1) : null }, proof: { isComplete: true, routes: [], at: 0 } });
  };
  const all = await differences("then", null, 100, -1, read);
  assert.deepEqual(all.found.map(({ key, before, after }) => [key, before?.[1]![1], after?.[1]![1]]), [["a", 1, undefined], ["b", 1, 2], ["c", undefined, 1]]);
  assert.equal(all.isWhole, true);
  assert.equal((await differences("then", null, 2, -1, read)).isWhole, false);
});
