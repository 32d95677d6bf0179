/** The fields of each item type that the caller may see, read once. */

import { signal } from "@preact/signals";
import { get } from "../api/client";
import type { Field } from "../api/types";

const known = signal<Readonly<Record<string, readonly Field[]>>>({});
const asked = new Set<string>();

/** Empty until they are read. */
export function fieldsOf(what: string): readonly Field[] {
  if (!asked.has(what)) {
    asked.add(what);
    get<{ fields: readonly Field[] }>("/fleetlight/query/fields", { what })
      .then(({ body }) => {
        known.value = { ...known.value, [what]: body.fields };
      })
      .catch(() => asked.delete(what));
  }
  return known.value[what] ?? [];
}

/** Another caller sees other fields. */
export function forgetFields(): void {
  asked.clear();
  known.value = {};
}
