import assert from "node:assert/strict";
import test from "node:test";
import { permitted } from "../src/query/permitted";

test("conditions on what only administrators see are left out one by one", () => {
  const found = permitted('cell == "cell1" and vm_state == "active" and not hv/acpi == 1');
  assert.deepEqual(found, { filter: 'vm_state == "active"', leftOut: ['cell == "cell1"', "not hv/acpi == 1"] });
});

test("a filter goes as a whole where a part of it would mean something else", () => {
  const either = 'cell == "cell1" or vm_state == "active"';
  assert.deepEqual(permitted(either), { filter: "", leftOut: [either] });
});

test("values and words of names stay, whatever they are called", () => {
  for (const filter of ["host node", 'name == "host"', 'vm_state == "active"', ""]) assert.deepEqual(permitted(filter), { filter, leftOut: [] });
});
