import assert from "node:assert/strict";
import test from "node:test";
import { ageOf, proofOf, routesOf, worst } from "../src/api/proof";
import { eventOf } from "../src/api/stream";
import { copies, inShell } from "../src/list/copies";
import { LISTS } from "../src/list/kinds";
import { fixed, momentOf, relative, shownSpan } from "../src/query/times";
import { glyphOf, shownSize, textOf } from "../src/query/values";

const SHOWN = { now: 1_700_000_000_000, times: "relative" } as const;

test("each reason for no value has a sign of its own", () => {
  const signs = ([1, 2, 3, 4] as const).map((status) => glyphOf([status, null])?.sign);
  assert.equal(new Set(signs).size, 4);
  assert.equal(glyphOf([0, ""])?.sign, glyphOf([3, null])?.sign);
  assert.equal(glyphOf([0, 0]), null);
});

test("sizes are in the largest unit of which there is one", () => {
  assert.deepEqual([512, 2048, 1536, 3 * 1024 * 1024].map(shownSize), ["512 MiB", "2 GiB", "1.5 GiB", "3 TiB"]);
});

test("values of every kind are one line of text", () => {
  assert.equal(textOf(2048, "unit", SHOWN), "2 GiB");
  assert.equal(textOf(1_699_999_000, "timestamp", SHOWN), "16 min ago");
  assert.equal(textOf(["a", "b"], "other", SHOWN), "a, b");
  assert.equal(textOf([1_699_999_000, 0], "other", SHOWN), "16 min ago");
  assert.equal(textOf([1024, 2048], "other", SHOWN), "1024, 2048");
  assert.equal(textOf(true, "bool", SHOWN), "yes");
});

test("moments and lengths of time", () => {
  assert.equal(relative(1000, 61_000), "1 min ago");
  assert.equal(relative(3_661_000, 0), "in 1 h");
  assert.equal(shownSpan(0.4), "0 s");
  assert.equal(momentOf("2026-01-01T00:00:00"), momentOf("2026-01-01T00:00:00Z"));
});

test("routes are read as administrators, members and very large fleets get them", () => {
  const [first, second] = routesOf("cell1=index;watermark=7;age=0.8, cell2=skipped");
  assert.deepEqual(first, { cell: "cell1", route: "index", count: 1, watermark: 7, ageS: 0.8 });
  assert.equal(second?.route, "skipped");
  assert.deepEqual(routesOf("*index=998;age=0.9")[0], { cell: null, route: "index", count: 998, watermark: null, ageS: 0.9 });
  assert.deepEqual(routesOf("index, live").map(({ route }) => route), ["index", "live"]);
  assert.deepEqual(routesOf(""), []);
});

test("several pages are whole if each is, and as old as the oldest", () => {
  const of = (complete: string, age: string) =>
    proofOf(new Headers({ "Fleetlight-Complete": complete, "Fleetlight-Route": `a=index;age=${age}` }), 0);
  assert.equal(worst([of("true", "1"), of("false", "0.5"), of("true", "2")])?.isComplete, false);
  assert.equal(ageOf(worst([of("true", "1"), of("true", "2"), of("true", "0")])!), 2);
  assert.equal(worst([]), null);
});

test("an event of a stream, and a comment", () => {
  assert.deepEqual(eventOf('event: change\nid: 7\ndata: {"a":\ndata: 1}'), { name: "change", id: "7", data: { a: 1 } });
  assert.deepEqual(eventOf("id: 8\n: still there"), { name: "message", id: "8", data: null });
  assert.equal(eventOf(": still there"), null);
});

test("a list as a command keeps every word whole", () => {
  assert.equal(inShell("it's"), `'it'\\''s'`);
  const question = { what: "instance", filter: 'name == "$(id)"', fields: ["uuid"], order: ["name"], asOf: null, allProjects: true };
  const [curl, fleetlight] = copies(LISTS[0]!, question, "http://api");
  assert.match(curl!.text, /'http:\/\/api\/fleetlight\/query\?[^']*all_projects=1'$/);
  assert.ok(fleetlight!.text.endsWith(`-F 'name == "$(id)"'`));
});

test("a filter that is followed has moments in the place of times before now", () => {
  const now = momentOf("2026-11-29T12:00:00");
  assert.equal(fixed(`mtime > "1h ago" or ctime < '2 d ago'`, now), 'mtime > "2026-11-29T11:00:00.000Z" or ctime < "2026-11-27T12:00:00.000Z"');
  assert.equal(fixed('name == "long ago" and mtime > "999999999w ago"', now), 'name == "long ago" and mtime > "1970-01-01T00:00:00.000Z"');
});
