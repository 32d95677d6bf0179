/** All that is known of one item, by group. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get, sentenceOf } from "../api/client";
import type { Cell, Field, QueryAnswer } from "../api/types";
import type { ListKind } from "../list/kinds";
import { Awaited } from "../parts/awaited";
import { Dialog } from "../parts/dialog";
import { WholeValue } from "../parts/glyphs";
import { labelOf, tooltipOf } from "../query/labels";
import { quoted } from "../query/language";
import { address, choose, titled } from "../state/address";
import { fieldsOf } from "../state/fields";
import { caller } from "../state/session";
import { ReservationActions } from "./reservation";

/** The API gives so many at a time. */
const MOST_FIELDS = 200;

/** The item that the address says is opened, beside its list. */
export function ItemPanel({ kind }: { kind: ListKind }) {
  const key = address.value.query["open"];
  const name = useSignal("");
  if (key === undefined) return null;
  const title = `${kind.singular.charAt(0).toUpperCase()}${kind.singular.slice(1)} ${name.value || key}`;
  titled(title);
  return (
    <Dialog isAside title={title} onClose={() => choose({ open: null })}>
      {kind.path === "reservations" && <ReservationActions key={key} id={key} onDone={() => choose({ open: null })} />}
      <Item key={key} kind={kind} id={key} onName={(found) => (name.value = found)} />
    </Dialog>
  );
}

/** Every field of the query language, by group. */
export function Item({ kind, id, onName }: { kind: ListKind; id: string; onName?: (name: string) => void }) {
  const fields = fieldsOf(kind.what).filter(isItsOwn);
  const row = useSignal<readonly Cell[] | null>(null);
  const said = useSignal("");
  const read = (): void => {
    const value = kind.key === "id" ? id : quoted(id);
    if (fields.length === 0 || value === null) return;
    valuesOf(kind.what, fields, `${kind.key} == ${value}`)
      .then((found) => {
        row.value = found;
        onName?.(String(found?.[fields.findIndex((field) => field.name === "name")]?.[1] ?? ""));
        said.value = `There is no such ${kind.singular} any more.`;
      })
      .catch((error: unknown) => {
        said.value = sentenceOf(error);
      });
  };
  useEffect(read, [id, fields.length]);
  return row.value === null ? <Awaited problem={said.value} onAgain={read} rows={12} /> : <FieldGroups fields={fields} cells={row.value} />;
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

/** What fields are about, in this order; the first that fits. */
const GROUPS: readonly (readonly [string, RegExp])[] = [
  ["Name", /^(uuid|id|name|display_\w+|hostname|instance_name|tags|metadata|serial_no|summary)$/],
  ["State", /^(\w*state\w*|status|oper_\w+|admin_\w+|fault|locked\w*|progress|deleted|hidden|forthcoming|role|drained|offline|powered|master\w*|\w+_capable|archived|op(status|result|log)|mode|pending|owner)$/],
  ["Where", /^(cell|host|node|s?p?nodes?(\.\w+)*|\w*zone|hypervisor|launched_on|scheduler_hints|server_groups|group(\.\w+)?|instance)$/],
  ["Whose", /^(project|user)(_id)?$|^key|^reservation_id$|^launch_index$/],
  ["Size", /^be\/|^flavor|^instance_type_id$|^vcpus$|^([mdc]|sp)(total|free|node|nodes|nos|sockets)$/],
  ["System", /^(image|os|kernel|ramdisk|architecture|root_device|config_drive|user_data|trusted|bootid)/],
  ["Network", /^nic|^ip|^access_ip|^security_groups$|^network|^gateway|^[ps]ip$|^mac|_count$|^map$|^external_reservations$/],
  ["Disks", /^disk|^block_devices$|^shares$|^auto_disk_config$/],
  ["Times", /_(at|ts)$|^[cm]time$|^op(start|exec|end)$/],
  ["Hypervisor parameters", /^hv/],
  ["Node parameters", /^ndp/],
];

function FieldGroups({ fields, cells }: { fields: readonly Field[]; cells: readonly Cell[] }) {
  const groups = new Map<string, number[]>([...GROUPS, ["Other", null] as const].map(([title]) => [title, []]));
  fields.forEach((field, index) => groups.get(GROUPS.find(([, names]) => names.test(field.name))?.[0] ?? "Other")!.push(index));
  return (
    <div class="groups">
      {[...groups].map(
        ([group, indexes]) =>
          indexes.length > 0 && (
            <section key={group}>
              <h2>{group}</h2>
              <dl class="values">
                {indexes.map((index) => (
                  <div key={fields[index]!.name} title={tooltipOf(fields[index]!)}>
                    <dt>{labelOf(fields[index]!)}</dt>
                    <dd><WholeValue cell={cells[index]} field={fields[index]!} /></dd>
                  </div>
                ))}
              </dl>
            </section>
          ),
      )}
    </div>
  );
}

/** Whether no other field says it too: that of all disks says what the field of the fourth does, and some have two names. */
function isItsOwn({ name, title, doc }: Field, index: number, fields: readonly Field[]): boolean {
  if (/\d/.test(name.replace(/v[46]$/, "")) || /^(nic|disk)\.?\w*\//.test(name) || /^(sd[ab]_|nic_(link|mode|network)$|(ip|mac|bridge)$|(hv|be|nd)params$)/.test(name)) return false;
  return fields.findIndex((each) => each.title === title && each.doc === doc) === index;
}
