/** How full the fleet is: used, reserved and free, by cell, zone, group and node, and how many more would fit. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { get } from "../api/client";
import { Badge } from "../list/badge";
import { useAttempts } from "../parts/attempt";
import { Awaited, Failed, Problem } from "../parts/awaited";
import { Time } from "../parts/glyphs";
import { Head } from "../parts/head";
import { usePolled } from "../parts/polled";
import { SizeFields, sizeOf } from "../parts/size_fields";
import { instant } from "../query/times";
import { shownSize } from "../query/values";
import { quoted } from "../query/language";
import { address, link } from "../state/address";
import { NewReservation } from "./reservation";

interface Resources {
  readonly vcpus: number;
  readonly memory_mib: number;
  readonly disk_mib: number;
}

export interface Part {
  readonly cell: string;
  readonly zone: string | null;
  readonly group: string | null;
  readonly nodes: number;
  readonly available_nodes: number;
  readonly total: Resources;
  readonly used: Resources;
  readonly reserved: Resources;
  readonly free: Resources;
  readonly largest_hole: Resources;
  readonly unknown: readonly string[];
  readonly silent_nodes: readonly string[];
  readonly fits: number | null;
  readonly fits_without_reservations: number | null;
  readonly node: string | null;
}

export interface CapacityAnswer {
  readonly cells: readonly Part[];
  readonly parts: readonly Part[];
  readonly nodes: readonly Part[];
  readonly missing: readonly { readonly cell: string; readonly why: string | null }[];
}

/** A part as it was, of a cell that does not answer now. */
interface Shown {
  readonly part: Part;
  readonly since: number | null;
  readonly why: string | null;
}

/** What each cell said last, and when. */
const known = new Map<string, { part: Part; at: number }>();

function shownCells({ cells, missing }: CapacityAnswer, at: number): readonly Shown[] {
  for (const part of cells) known.set(part.cell, { part, at });
  const away = missing.flatMap(({ cell, why }): Shown[] => {
    const last = known.get(cell);
    return last === undefined ? [] : [{ part: last.part, since: last.at, why }];
  });
  return [...cells.map((part) => ({ part, since: null, why: null })), ...away].sort((one, other) => one.part.cell.localeCompare(other.part.cell));
}

const REFRESH_MS = 10_000;
/** So many nodes of a cell are drawn, those with the most memory free. */
const MOST_NODES = 200;
const KINDS = ["vcpus", "memory_mib", "disk_mib"] as const;
const NAMES: Readonly<Record<(typeof KINDS)[number], string>> = { vcpus: "vCPU", memory_mib: "Memory", disk_mib: "Disk" };

export function CapacityPage() {
  const { answer, problem, again } = usePolled<CapacityAnswer>("/fleetlight/capacity", REFRESH_MS);
  const isDetailed = useSignal(false);
  const found = answer.value?.body;
  if (found === undefined) return <Awaited problem={problem.value} onAgain={() => void again()} />;
  const opened = address.value.query["cell"];
  const cells = shownCells(found, answer.value!.proof.at);
  const unseen = found.missing.filter(({ cell }) => !known.has(cell));
  const silent = found.cells.flatMap((cell) => [...cell.silent_nodes, ...cell.unknown]);
  return (
    <article>
      <header class="title">
        <h1>Capacity</h1>
        <Badge proof={answer.value!.proof} request={null} />
        <NewReservation onMade={() => void again()} />
        <a class="button" href={link(["reservations"])}>Reservations</a>
      </header>
      {problem.value !== "" && <Failed problem={problem.value} onAgain={() => void again()} />}
      {silent.length > 0 && <p class="problem">Not counted, because nothing is known of them: {silent.slice(0, 20).join(", ")}</p>}
      {unseen.length > 0 && <p class="problem">These cells do not answer, and nothing is known of them: {unseen.map(({ cell }) => cell).join(", ")}</p>}
      <Fits />
      <Parts rows={cells} caption="By cell" hasSum />
      {opened !== undefined && <Nodes key={opened} cell={opened} />}
      <p>
        <label class="check">
          <input type="checkbox" checked={isDetailed.value} onChange={(event) => (isDetailed.value = event.currentTarget.checked)} />
          By zone and group
        </label>
      </p>
      {isDetailed.value && <Parts rows={found.parts.map(asNow)} caption="By zone and group" />}
    </article>
  );
}

function asNow(part: Part): Shown {
  return { part, since: null, why: null };
}

function Parts({ rows, caption, hasSum = false }: { rows: readonly Shown[]; caption: string; hasSum?: boolean }) {
  return (
    <div class="wide" tabIndex={0} role="region" aria-label={caption}>
      <table>
        <caption>{caption}</caption>
        <Head titles={["Where", "Nodes", ...KINDS.map((kind) => NAMES[kind]), "Largest hole on one node"]} numbers={["Nodes"]} />
        <tbody>
          {rows.map((row) => (
            <Line key={`${row.part.cell} ${row.part.zone} ${row.part.group} ${row.part.node}`} row={row} />
          ))}
          {hasSum && rows.length > 1 && <Sum rows={rows} />}
        </tbody>
      </table>
    </div>
  );
}

function Line({ row: { part, since, why } }: { row: Shown }) {
  return (
    <tr class={since === null ? undefined : "away"} title={since === null ? undefined : (why ?? undefined)}>
      <th scope="row">
        <Where part={part} />
        {since !== null && (
          <div class="hint">
            does not answer; as of <Time at={instant(since)} />
          </div>
        )}
      </th>
      <Amounts part={part} />
      <td class="wraps">
        {amount("vcpus", part.largest_hole.vcpus)} vCPU, {shownSize(part.largest_hole.memory_mib)} of memory,{" "}
        {shownSize(part.largest_hole.disk_mib)} of disk
      </td>
    </tr>
  );
}

type Sums = Pick<Part, "nodes" | "available_nodes" | "total" | "used" | "reserved" | "free">;

function Sum({ rows }: { rows: readonly Shown[] }) {
  const sum = (of: (part: Part) => number): number => rows.reduce((all, { part }) => all + of(part), 0);
  const resources = (name: "total" | "used" | "reserved" | "free"): Resources => ({
    vcpus: sum((part) => part[name].vcpus),
    memory_mib: sum((part) => part[name].memory_mib),
    disk_mib: sum((part) => part[name].disk_mib),
  });
  const all: Sums = {
    nodes: sum((part) => part.nodes),
    available_nodes: sum((part) => part.available_nodes),
    total: resources("total"),
    used: resources("used"),
    reserved: resources("reserved"),
    free: resources("free"),
  };
  return (
    <tr class="sum">
      <th scope="row">All cells</th>
      <Amounts part={all} />
      <td />
    </tr>
  );
}

function Amounts({ part }: { part: Sums }) {
  return (
    <>
      <td class="number">{part.available_nodes === part.nodes ? part.nodes.toLocaleString("en") : `${part.available_nodes} of ${part.nodes}`}</td>
      {KINDS.map((kind) => (
        <td key={kind} class="amount">
          <Bar total={part.total[kind]} used={part.used[kind]} reserved={part.reserved[kind]} name={NAMES[kind]} />
          {amount(kind, part.used[kind])} used ({percent(part.used[kind], part.total[kind])}),{" "}
          {part.reserved[kind] === 0 ? "" : `${amount(kind, part.reserved[kind])} reserved, `}
          <span>{amount(kind, part.free[kind])} free</span>
        </td>
      ))}
    </>
  );
}

function percent(value: number, total: number): string {
  return total === 0 ? "–" : `${((100 * value) / total).toFixed(1)} %`;
}

/** A cell leads to its nodes, and a node to its instances. */
function Where({ part }: { part: Part }) {
  if (part.node !== null) {
    return <a href={link(["instances"], { filter: `pnode == ${quoted(part.node)} and cell == ${quoted(part.cell)}` })}>{part.node}</a>;
  }
  const name = [part.cell, part.zone, part.group].filter(Boolean).join(" · ");
  return part.zone !== null || part.group !== null ? <>{name}</> : <a href={link(["capacity"], { cell: part.cell })}>{name}</a>;
}

/** The nodes of one cell, those with the most memory free first. */
function Nodes({ cell }: { cell: string }) {
  const { answer, problem, again } = usePolled<CapacityAnswer>("/fleetlight/capacity", REFRESH_MS, { cell, nodes: 1 });
  const nodes = answer.value?.body.nodes;
  if (nodes === undefined) return <Awaited problem={problem.value} onAgain={() => void again()} />;
  const ordered = [...nodes].sort((left, right) => right.free.memory_mib - left.free.memory_mib);
  return (
    <section>
      <Parts rows={ordered.slice(0, MOST_NODES).map(asNow)} caption={`Nodes of ${cell}`} />
      <p>
        {ordered.length > MOST_NODES && `The ${MOST_NODES} of ${ordered.length} nodes with the most memory free. `}
        <a href={link(["nodes"], { filter: `cell == ${quoted(cell)}` })}>All of them in a list</a> <a href={link(["capacity"])}>Close</a>
      </p>
    </section>
  );
}

function amount(kind: (typeof KINDS)[number], value: number): string {
  return kind === "vcpus" ? value.toLocaleString("en") : shownSize(value);
}

/** Used is filled, reserved is hatched: not told apart by colour alone. */
function Bar({ total, used, reserved, name }: { total: number; used: number; reserved: number; name: string }): JSX.Element {
  const share = (value: number): number => (total === 0 ? 0 : Math.max(0, Math.min(100, (100 * value) / total)));
  const label = `${name}: ${Math.round(share(used))} % used, ${Math.round(share(reserved))} % reserved`;
  return (
    <svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label={label}>
      <title>{label}</title>
      <defs>
        <pattern id="hatched" width="2" height="2" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect class="reserved" width="1" height="2" />
        </pattern>
      </defs>
      <rect class="free" width="100" height="6" />
      <rect class="used" width={share(used)} height="6" />
      <rect x={share(used)} width={share(reserved)} height="6" fill="url(#hatched)" />
    </svg>
  );
}

/** How many more of one size the cells still take, and how many if nothing were reserved. */
function Fits() {
  const found = useSignal<readonly Part[] | null>(null);
  const { said: problem, attempt } = useAttempts();
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    const size = sizeOf(new FormData(event.currentTarget as HTMLFormElement));
    void attempt(async () => (found.value = (await get<CapacityAnswer>("/fleetlight/capacity", size)).body.cells));
  };
  return (
    <section>
      <form class="row" onSubmit={submit}>
        <strong>How many more fit of</strong>
        <SizeFields leastDisk={0} onFlavor={(form) => form.requestSubmit()} />
        <button type="submit">Count</button>
      </form>
      <Problem text={problem.value} />
      {found.value !== null && (
        <p role="status">
          <span class="fits">All cells: <strong>{found.value.reduce((all, { fits }) => all + (fits ?? 0), 0).toLocaleString("en")}</strong></span>
          {found.value.map(({ cell, fits, fits_without_reservations: without }) => (
            <span key={cell} class="fits">
              {cell}: <strong>{fits?.toLocaleString("en") ?? "–"}</strong>
              {without === fits ? "" : ` (${without?.toLocaleString("en") ?? "–"} if nothing were reserved)`}
            </span>
          ))}
        </p>
      )}
    </section>
  );
}
