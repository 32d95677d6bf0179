/** How full the fleet is: used, reserved and free, by cell, zone, group and node, and how many more would fit. */

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { get, sentenceOf } from "../api/client";
import { Badge } from "../list/badge";
import { Awaited, Failed } from "../parts/awaited";
import { usePolled } from "../parts/polled";
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
  const silent = found.cells.flatMap((cell) => [...cell.silent_nodes, ...cell.unknown]);
  return (
    <article>
      <header class="title">
        <h1>Capacity</h1>
        <Badge proof={answer.value!.proof} request={null} />
        <NewReservation onMade={() => void again()} />
      </header>
      {problem.value !== "" && <Failed problem={problem.value} onAgain={() => void again()} />}
      {silent.length > 0 && <p class="problem">Not counted, because nothing is known of them: {silent.slice(0, 20).join(", ")}</p>}
      <Fits />
      <Parts parts={found.cells} caption="By cell" />
      {opened !== undefined && <Nodes key={opened} cell={opened} />}
      <p>
        <label class="check">
          <input
            type="checkbox"
            checked={isDetailed.value}
            onChange={(event) => {
              isDetailed.value = event.currentTarget.checked;
            }}
          />
          by zone and group
        </label>{" "}
        <a href={link(["reservations"])}>reservations</a>
      </p>
      {isDetailed.value && <Parts parts={found.parts} caption="By zone and group" />}
    </article>
  );
}

function Parts({ parts, caption }: { parts: readonly Part[]; caption: string }) {
  return (
    <div class="wide" tabIndex={0} role="region" aria-label={caption}>
      <table>
        <caption>{caption}</caption>
        <thead>
          <tr>
            <th scope="col">Where</th>
            <th scope="col" class="number">
              Nodes
            </th>
            {KINDS.map((kind) => (
              <th key={kind} scope="col">
                {NAMES[kind]}
              </th>
            ))}
            <th scope="col">Largest hole on one node</th>
          </tr>
        </thead>
        <tbody>
          {parts.map((part) => (
            <tr key={`${part.cell} ${part.zone} ${part.group} ${part.node}`}>
              <th scope="row">
                <Where part={part} />
              </th>
              <td class="number">
                {part.available_nodes === part.nodes ? part.nodes : `${part.available_nodes} of ${part.nodes}`}
              </td>
              {KINDS.map((kind) => (
                <td key={kind}>
                  <Bar total={part.total[kind]} used={part.used[kind]} reserved={part.reserved[kind]} name={NAMES[kind]} />
                  {amount(kind, part.used[kind])} used, {part.reserved[kind] === 0 ? "" : `${amount(kind, part.reserved[kind])} reserved, `}
                  {amount(kind, part.free[kind])} free
                </td>
              ))}
              <td>
                {amount("vcpus", part.largest_hole.vcpus)} vCPU, {shownSize(part.largest_hole.memory_mib)} of memory,{" "}
                {shownSize(part.largest_hole.disk_mib)} of disk
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
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
      <Parts parts={ordered.slice(0, MOST_NODES)} caption={`Nodes of ${cell}`} />
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
  const problem = useSignal("");
  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    try {
      found.value = (await get<CapacityAnswer>("/fleetlight/capacity", sizeOf(new FormData(event.currentTarget as HTMLFormElement)))).body.cells;
      problem.value = "";
    } catch (error) {
      problem.value = sentenceOf(error);
    }
  };
  return (
    <section>
      <form class="row" onSubmit={(event) => void submit(event)}>
        <strong>How many more fit of</strong>
        <label>
          vCPU <input name="vcpus" type="number" min="1" defaultValue="2" size={4} required />
        </label>
        <label>
          Memory in GiB <input name="memory" type="number" min="0.125" step="any" defaultValue="4" size={6} required />
        </label>
        <label>
          Disk in GiB <input name="disk" type="number" min="0" step="any" defaultValue="20" size={6} required />
        </label>
        <button type="submit">Count</button>
      </form>
      {problem.value !== "" && (
        <p class="problem" role="alert">
          {problem.value}
        </p>
      )}
      {found.value !== null && (
        <p role="status">
          {found.value.map(({ cell, fits, fits_without_reservations: without }) => (
            <span key={cell} class="fits">
              {cell}: <strong>{fits}</strong>
              {without === fits ? "" : ` (${without} if nothing were reserved)`}
            </span>
          ))}
        </p>
      )}
    </section>
  );
}

/** The parameters of the API for a size of the form, which is in GiB. */
function sizeOf(form: FormData): Readonly<Record<string, number>> {
  const mib = (name: string): number => Math.round(Number(form.get(name)) * 1024);
  return { vcpus: Number(form.get("vcpus")), memory_mib: mib("memory"), disk_mib: mib("disk") };
}
