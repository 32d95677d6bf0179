/** What a change changed: each field with its value before and after. */

import type { Field, Json } from "../api/types";
import { labelOf } from "../query/labels";
import { fieldsOf } from "../state/fields";
import { ValueText } from "./glyphs";

export function Differences({ changed }: { changed: Readonly<Record<string, readonly [Json, Json]>> }) {
  const fields = fieldsOf("instance");
  return (
    <ul class="changed">
      {Object.entries(changed).map(([name, [old, current]]) => {
        const field: Field = fields.find((each) => each.name === name) ?? { name, title: name, kind: "other", doc: "" };
        return (
          <li key={name}>
            <span class="hint" title={name}>
              {labelOf(field)}
            </span>{" "}
            <del>
              <ValueText value={old} field={field} />
            </del>{" "}
            <span aria-hidden="true">→</span>{" "}
            <ins><ValueText value={current} field={field} /></ins>
          </li>
        );
      })}
    </ul>
  );
}
