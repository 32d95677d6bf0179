/** The fields of each item type that the caller may see, read once. */

import { signal } from "@preact/signals";
import { get, sentenceOf } from "../api/client";
import type { Field } from "../api/types";

const known = signal<Readonly<Record<string, readonly Field[]>>>({});
const problems = signal<Readonly<Record<string, string>>>({});
const asked = new Set<string>();

/** Empty until they are read. */
export function fieldsOf(what: string): readonly Field[] {
  if (!asked.has(what)) void readFields(what);
  return known.value[what] ?? [];
}

/** Why they could not be read; "" while they are, and when they were. */
export function fieldsProblem(what: string): string {
  return problems.value[what] ?? "";
}

export async function readFields(what: string): Promise<void> {
  asked.add(what);
  try {
    const { body } = await get<{ fields: readonly Field[] }>("/fleetlight/query/fields", { what });
    known.value = { ...known.value, [what]: body.fields };
    problems.value = { ...problems.value, [what]: "" };
  } catch (error) {
    problems.value = { ...problems.value, [what]: sentenceOf(error) };
  }
}

/** What failed while the browser was offline is read when it is back. */
addEventListener("online", () => {
  for (const [what, problem] of Object.entries(problems.value)) if (problem !== "") void readFields(what);
});

/** Another caller sees other fields. */
export function forgetFields(): void {
  asked.clear();
  known.value = {};
  problems.value = {};
}
