import assert from "node:assert/strict";
import test from "node:test";
import type { Field } from "../src/api/types";
import { written } from "../src/list/filter_bar";
import { meant, suggestions } from "../src/query/suggest";

const FIELDS: readonly Field[] = [
  { name: "name", title: "Instance", kind: "text", doc: "" },
  { name: "vm_state", title: "VMState", kind: "text", doc: "" },
  { name: "be/memory", title: "ConfigMaxMem", kind: "unit", doc: "" },
  { name: "mtime", title: "Changed", kind: "timestamp", doc: "" },
  { name: "locked", title: "Locked", kind: "bool", doc: "" },
];
const VALUES: Readonly<Record<string, readonly string[]>> = { vm_state: ["active", "stopped", 'od"d'] };

function suggested(text: string): string[] {
  return suggestions(text, text.length, FIELDS, ({ name }) => VALUES[name] ?? []).map((each) => each.text.trim());
}

test("fields come first, by the beginning of their names, then by what is in them", () => {
  assert.deepEqual(suggested("na"), ["name"]);
  assert.deepEqual(suggested("mem"), ["be/memory"]);
  assert.deepEqual(suggested("not "), FIELDS.map(({ name }) => name));
});

test("behind a field come the operators of its kind", () => {
  assert.ok(suggested("name ").includes("=*"));
  assert.ok(!suggested("be/memory ").includes("=*"));
  assert.ok(suggested("be/memory ").includes(">="));
});

test("behind an operator come values, in quotes that they need", () => {
  assert.deepEqual(suggested("vm_state == "), ['"active"', '"stopped"', "'od\"d'"]);
  assert.deepEqual(suggested('vm_state == "st'), ['"stopped"']);
});

test("a field of time is compared with moments before the list", () => {
  assert.deepEqual(suggested("mtime > ").slice(0, 2), ['"10m ago"', '"1h ago"']);
  assert.deepEqual(suggested('mtime > "1h'), ['"1h ago"']);
  assert.deepEqual(["1d ago", "2026-11-29", "1796000000"].map((value) => written(FIELDS[3]!, ">", value)), [
    'mtime > "1d ago"',
    'mtime > "2026-11-29"',
    "mtime > 1796000000",
  ]);
});

test("behind a condition comes what joins it to another", () => {
  for (const text of ['vm_state == "active" ', "locked ", '"spot" in name ']) assert.deepEqual(suggested(text), ["and", "or"]);
});

test("what is taken stands where it was begun", () => {
  const [first] = suggestions("locked and vm_s", 15, FIELDS, () => []);
  assert.deepEqual([first?.from, first?.to, first?.text], [11, 15, "vm_state "]);
});

test("the nearest name is meant, and none that is far", () => {
  const names = FIELDS.map(({ name }) => name);
  const found = ["vm_stat", "mv_state", "nmae", "hypervisor"].map((typed) => meant(typed, names));
  assert.deepEqual(found, ["vm_state", "vm_state", "name", null]);
});
