import assert from "node:assert/strict";
import test from "node:test";
import { actionsFor, allows } from "../src/pages/actions";

test("a preview counts what the state of each instance allows", () => {
  assert.equal(allows("reboot", "error", null), false);
  assert.equal(allows("hard-reboot", "error", null), true);
  assert.equal(allows("reset-state", "building", "spawning"), true);
  assert.equal(allows("stop", "active", "powering-off"), false);
  assert.equal(allows("delete", "building", "spawning"), true);
});

test("what is offered fits the state and the caller", () => {
  const names = (state: string, isAdmin: boolean): string[] => actionsFor(state, false, isAdmin).map(({ name }) => name);
  assert.deepEqual(names("error", true), ["stop", "hard-reboot", "lock", "rebuild", "reset-state", "delete"]);
  assert.deepEqual(names("error", false), ["stop", "hard-reboot", "lock", "rebuild", "delete"]);
});
