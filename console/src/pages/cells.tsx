/** The board of cells: which are well, how far the index is behind them, and what waits in them. */

import { ask } from "../api/client";
import { useAttempts } from "../parts/attempt";
import { Awaited } from "../parts/awaited";
import { Icon } from "../parts/icons";
import { Time } from "../parts/glyphs";
import { Head } from "../parts/head";
import { Plots } from "../parts/plots";
import { usePolled } from "../parts/polled";
import { shownSpan } from "../query/times";
import { address, choose, link } from "../state/address";

export interface BoardCell {
  readonly uuid: string;
  readonly name: string;
  readonly kind: string;
  readonly health: "ok" | "behind" | "uncertain" | "down" | "disabled";
  readonly reason: string | null;
  readonly route: string;
  readonly lag: number | null;
  readonly age_s: number | null;
  readonly followed_by: "changes" | "log" | "comparisons";
  readonly log_problem: string | null;
  readonly watermark: number | null;
  readonly epoch: string | null;
  readonly instances: number | null;
  readonly nodes: number | null;
  readonly drift: { readonly found: number; readonly at: string | null } | null;
  readonly dead_letters: number;
  readonly jobs_waiting: number | null;
  readonly jobs_running: number | null;
  readonly followers: readonly string[] | null;
  readonly keeps_past_until: string | null;
}

export interface Board {
  readonly cells: readonly BoardCell[];
  readonly safe_connect: { readonly uses_index: boolean; readonly reason: string | null; readonly since: string | null };
  readonly seal: { readonly holds: boolean; readonly at: string | null; readonly reason: string | null };
  readonly index: { readonly backend: string };
}

const COUNTS = ["Lag", "Age", "Instances", "Nodes", "Drift", "Dead letters", "Jobs waiting", "Jobs running"];
const REFRESH_MS = 3000;
/** So many cells are drawn at once; the filter finds the others. */
const MOST = 200;
const ORDER: readonly BoardCell["health"][] = ["down", "uncertain", "behind", "ok", "disabled"];
const worded = (health: BoardCell["health"]): string => (health === "ok" ? "well" : health);

export function CellsPage() {
  const { answer, problem, again } = usePolled<Board>("/fleetlight/cells", REFRESH_MS);
  const wanted = (address.value.query["filter"] ?? "").toLowerCase();
  if (answer.value === null) return <Awaited problem={problem.value} onAgain={() => void again()} />;
  const board = answer.value.body;
  const found = board.cells
    .filter(({ name, kind, health }) => `${name} ${kind} ${health}`.toLowerCase().includes(wanted))
    .sort((left, right) => ORDER.indexOf(left.health) - ORDER.indexOf(right.health) || left.name.localeCompare(right.name));
  return (
    <article>
      <header class="title">
        <h1>Cells</h1>
        <Summary cells={board.cells} />
      </header>
      {problem.value !== "" && (
        <p class="problem" role="alert">{problem.value} What follows is what was known before.</p>
      )}
      <State board={board} onReset={again} />
      <Plots names={["age_max_s", "lag_total", "jobs_waiting"]} />
      <label class="row">
        Find
        <input
          id="filter"
          type="search"
          value={wanted}
          placeholder="name, kind or health"
          onInput={(event) => choose({ filter: event.currentTarget.value || null }, false)}
        />
      </label>
      <div class="wide" tabIndex={0} role="region" aria-label="All cells">
        <table>
          <Head titles={["Cell", "Kind", "Health", "Lists from", ...COUNTS, "Followed by", "Indexers", "Past kept since", "Epoch"]} numbers={COUNTS} />
          <tbody>
            {found.slice(0, MOST).map((cell) => (
              <Line key={cell.uuid} cell={cell} />
            ))}
          </tbody>
        </table>
      </div>
      {found.length > MOST && <p class="hint">and {found.length - MOST} more; type a part of a name above</p>}
    </article>
  );
}

/** The health of a cell, by sign and word. */
export function Health({ of }: { of: BoardCell["health"] }) {
  return <span class={`health-${of}`}><Icon name={of} /> {worded(of)}</span>;
}

function Summary({ cells }: { cells: readonly BoardCell[] }) {
  const parts = ORDER.flatMap((health) => {
    const count = cells.filter((cell) => cell.health === health).length;
    return count === 0 ? [] : `${count} ${worded(health)}`;
  });
  return (
    <span class="total" role="status">{parts.join(", ")}</span>
  );
}

function State({ board, onReset }: { board: Board; onReset: () => Promise<void> }) {
  const { said, attempt } = useAttempts(onReset);
  const { safe_connect: safe, seal } = board;
  return (
    <section class="cards">
      <section>
        <h2>Index</h2>
        <p>{board.index.backend}. <Icon name={seal.holds ? "ok" : "partial"} /> {seal.holds ? "The seal holds." : `The seal does not hold: ${seal.reason ?? "it is looked at"}.`}</p>
      </section>
      <section>
        <h2>Safe connect</h2>
        <p>
          <Icon name={safe.uses_index ? "ok" : "partial"} />{" "}
          {safe.uses_index
            ? "Lists use the index."
            : <>Lists ask the cells since {safe.since === null ? "a while" : <Time at={safe.since} />}: {safe.reason ?? ""}</>}
        </p>
        {!safe.uses_index && (
          <button type="button" onClick={() => void attempt(() => ask("POST", "/fleetlight/safe-connect/reset"), "Lists use the index again.")}>
            Use the index again
          </button>
        )}
        {said.value !== "" && <p role="status">{said.value}</p>}
      </section>
    </section>
  );
}

function Line({ cell }: { cell: BoardCell }) {
  const count = (value: number | null): string => (value === null ? "–" : value.toLocaleString("en"));
  return (
    <tr class={cell.health === "down" ? "away" : undefined}>
      <th scope="row"><a href={link(["instances"], { filter: `cell == "${cell.name}"` })}><bdi>{cell.name}</bdi></a></th>
      <td>{cell.kind}</td>
      <td title={cell.reason ?? undefined}>
        <Health of={cell.health} />
        {cell.reason !== null && <div class="hint">{cell.reason}</div>}
      </td>
      <td>{cell.route}</td>
      <td class="number">{count(cell.lag)}</td>
      <td class="number">{cell.age_s === null ? "–" : shownSpan(cell.age_s)}</td>
      <td class="number">{count(cell.instances)}</td>
      <td class="number">{count(cell.nodes)}</td>
      <td class="number">{cell.drift === null ? "–" : count(cell.drift.found)}</td>
      <td class="number">
        {cell.dead_letters === 0 ? "0" : <a href={link(["index"], { tab: "failures", cell: cell.name })}>{cell.dead_letters}</a>}
      </td>
      <td class="number">{count(cell.jobs_waiting)}</td>
      <td class="number">{count(cell.jobs_running)}</td>
      <td>
        {cell.followed_by}
        {cell.log_problem !== null && <div class="hint">{cell.log_problem}</div>}
      </td>
      <td>{cell.followers?.join(", ") || "–"}</td>
      <td>{cell.keeps_past_until === null ? "keeps none" : <Time at={cell.keeps_past_until} />}</td>
      <td><code>{cell.epoch?.slice(0, 8) ?? "–"}</code></td>
    </tr>
  );
}
