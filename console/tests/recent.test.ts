import assert from "node:assert/strict";
import test from "node:test";
import { eventText, joined, type RecentChange } from "../src/list/recent";
import { labelOf } from "../src/query/labels";

function change(id: string, revision: number): RecentChange {
  const instance = { id, name: id, project_id: null, deleted: false };
  return { instance, revision, at: "2026-11-26T01:15:40Z", event: null, publisher: null, request_id: null, user_id: null, changed: null };
}

test("what is read again is not there twice", () => {
  const both = joined([change("a", 3), change("b", 1)], [change("b", 1), change("a", 2)]);
  assert.deepEqual(
    both.map(({ instance, revision }) => `${instance.id}${revision}`),
    ["a3", "b1", "a2"],
  );
});

test("events are said in words", () => {
  const said = ["instance.power_off.end", "instance.create.start", "instance.create.error", "instance.update", null].map(eventText);
  assert.deepEqual(said, ["Power off: done", "Create: begun", "Create: failed", "Update", "Changed"]);
});

test("fields have one word in English each, whatever their titles are made of", () => {
  const word = (name: string, title: string): string => labelOf({ name, title });
  assert.equal(word("vm_state", "VMState"), "State");
  assert.equal(word("security_groups", "SecurityGroups"), "Security groups");
  assert.equal(word("disk_template", "Disk_template"), "Disk template");
  assert.equal(word("os_type", "OSType"), "OS type");
  assert.equal(word("hv/cpu_mask", "hv/cpu_mask"), "Cpu mask");
});
