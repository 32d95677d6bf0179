/** All that is known of one item, by group. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get, sentenceOf } from "../api/client";
import type { Cell, Field, QueryAnswer } from "../api/types";
import type { ListKind } from "../list/kinds";
import { Dialog } from "../parts/dialog";
import { Value } from "../parts/glyphs";
import { quoted } from "../query/language";
import { address, choose } from "../state/address";
import { fieldsOf } from "../state/fields";
import { caller } from "../state/session";
import { ReservationActions } from "./reservation";

/** The API gives so many at a time. */
const MOST_FIELDS = 200;

/** The item that the address says is opened, beside its list. */
export function ItemPanel({ kind }: { kind: ListKind }) {
  const key = address.value.query["open"];
  if (key === undefined) return null;
  return (
    <Dialog isAside title={`${kind.singular.charAt(0).toUpperCase()}${kind.singular.slice(1)} ${key}`} onClose={() => choose({ open: null })}>
      {kind.path === "reservations" && <ReservationActions key={key} id={key} onDone={() => choose({ open: null })} />}
      <Item key={key} kind={kind} id={key} />
    </Dialog>
  );
}

/** Every field of the query language, by group. */
export function Item({ kind, id }: { kind: ListKind; id: string }) {
  const fields = fieldsOf(kind.what).filter(isItsOwn);
  const row = useSignal<readonly Cell[] | null>(null);
  const said = useSignal("Loading…");
  useEffect(() => {
    const value = kind.key === "id" ? id : quoted(id);
    if (fields.length === 0 || value === null) return;
    valuesOf(kind.what, fields, `${kind.key} == ${value}`)
      .then((found) => {
        row.value = found;
        said.value = `There is no such ${kind.singular} any more.`;
      })
      .catch((error: unknown) => {
        said.value = sentenceOf(error);
      });
  }, [id, fields.length]);
  return row.value === null ? <p role="status">{said.value}</p> : <FieldGroups fields={fields} cells={row.value} />;
}

/** The values of one item; null when there is none. */
async function valuesOf(what: string, fields: readonly Field[], filter: string): Promise<readonly Cell[] | null> {
  const asked = { what, filter, all_projects: caller().is_admin };
  const names = fields.map(({ name }) => name);
  const parts = names.flatMap((_, index) => (index % MOST_FIELDS === 0 ? [names.slice(index, index + MOST_FIELDS)] : []));
  const answers = await Promise.all(parts.map((part) => get<QueryAnswer>("/fleetlight/query", { ...asked, fields: part.join(",") })));
  const rows = answers.map(({ body }) => body.data[0]);
  return rows.includes(undefined) ? null : rows.flatMap((cells) => cells!);
}

/** Fields with a prefix are a group each; those without any come first. */
function FieldGroups({ fields, cells }: { fields: readonly Field[]; cells: readonly Cell[] }) {
  const groups = new Map<string, number[]>();
  fields.forEach(({ name }, index) => {
    const group = /^([a-z_]+)[./]/.exec(name)?.[1] ?? "";
    groups.set(group, [...(groups.get(group) ?? []), index]);
  });
  return (
    <div class="groups">
      {[...groups].map(([group, indexes]) => (
        <section key={group}>
          {group !== "" && <h2>{group}</h2>}
          <dl class="values">
            {indexes.map((index) => (
              <div key={fields[index]!.name} title={fields[index]!.doc}>
                <dt>{fields[index]!.name}</dt>
                <dd>
                  <Value cell={cells[index]} field={fields[index]!} />
                </dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
    </div>
  );
}

/** Whether no other field says it too, as that of all disks says what the field of the fourth disk does. */
function isItsOwn({ name }: Field): boolean {
  return !/\d/.test(name.replace(/v[46]$/, "")) && !/^(nic|disk)\.?\w*\//.test(name) && !/^sd[ab]_/.test(name);
}
