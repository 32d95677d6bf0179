import assert from "node:assert/strict";
import test from "node:test";
import { eventText, joined, Recent, type RecentChange } from "../src/list/recent";
import { labelOf } from "../src/query/labels";

function change(id: string, revision: number): RecentChange {
  const instance = { id, name: id, project_id: null, deleted: false };
  return { instance, revision, at: "2026-11-26T01:15:40Z", event: null, publisher: null, request_id: null, user_id: null, changed: null };
}

test("what is read again is not there twice", () => {
  const both = joined([change("a", 3), change("b", 1)], [change("b", 1), change("a", 2)]).map(({ instance, revision }) => `${instance.id}${revision}`);
  assert.deepEqual(both, ["a3", "b1", "a2"]);
});

test("events are said in words", () => {
  const said = ["instance.power_off.end", "instance.create.start", "instance.create.error", "instance.update", null].map(eventText);
  assert.deepEqual(said, ["Power off: done", "Create: begun", "Create: failed", "Update", "Changed"]);
});

test("fields have one word in English each, whatever their titles are made of", () => {
  const titles = { vm_state: "VMState", security_groups: "SecurityGroups", disk_template: "Disk_template", os_type: "OSType", "disk.uuids": "Disk_UUIDs", "hv/cpu_mask": "hv/cpu_mask" };
  const words = Object.entries(titles).map(([name, title]) => labelOf({ name, title }));
  assert.deepEqual(words, ["State", "Security groups", "Disk template", "OS type", "Disk UUIDs", "Cpu mask"]);
});

test("older changes that come after the list has begun anew are dropped", async () => {
  const newest = ["a", "b"].map((id) => ({ changes: [change(id, 1)], marker: `before ${id}`, complete: true }));
  let answer!: (late: Response) => void;
  const late = new Promise<Response>((resolve) => (answer = resolve));
  globalThis.fetch = (input) => (String(input).includes("marker=") ? late : Promise.resolve(Response.json(newest.shift())));
  Object.defineProperty(globalThis, "navigator", { value: { locks: { request: () => new Promise(() => undefined) } }, configurable: true });
  const recent = new Recent("", true);
  while (recent.marker.value === null) await new Promise((resolve) => setImmediate(resolve));
  const older = recent.older();
  await recent.again();
  answer(Response.json({ changes: [change("c", 1)], marker: null, complete: true }));
  await older;
  recent.close();
  assert.deepEqual([recent.changes.value.map(({ instance }) => instance.id), recent.marker.value], [["b"], "before b"]);
});
