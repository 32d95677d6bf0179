/** The index: work on it with its progress, what the audit found, and messages that could not be indexed. */

import { useSignal } from "@preact/signals";
import { ask } from "../api/client";
import type { Json } from "../api/types";
import { useAttempts } from "../parts/attempt";
import { Awaited, Problem } from "../parts/awaited";
import { Confirm, useAsked } from "../parts/confirm";
import { printable, Time } from "../parts/glyphs";
import { Head } from "../parts/head";
import { Plots } from "../parts/plots";
import { usePolled } from "../parts/polled";
import { Tabs } from "../parts/tabs";
import { shownSpan } from "../query/times";
import { address } from "../state/address";
import { nameOf } from "../state/people";

interface Work {
  readonly id: string;
  readonly kind: string;
  readonly cells: readonly string[];
  readonly state: "waiting" | "running" | "done" | "failed" | "stopped";
  readonly done: number;
  readonly total: number | null;
  readonly rate: number | null;
  readonly left_s: number | null;
  readonly started_at: string | null;
  readonly ended_at: string | null;
  readonly by: string;
  readonly result: string | null;
  readonly findings: readonly { readonly cell: string; readonly uuid: string; readonly problem: string }[];
}

interface Round {
  readonly cell: string;
  readonly at: string | null;
  readonly compared: number | null;
  readonly found: number | null;
  readonly repaired: number | null;
}

interface Failure {
  readonly id: string;
  readonly cell: string;
  readonly reason: string;
  readonly detail: string;
  readonly instance: string | null;
  readonly last_at: string;
  readonly times: number;
  readonly message: Json;
}

interface Kind {
  readonly title: string;
  readonly does: string;
  /** Whether it can be of some cells only. */
  readonly isOfCells?: boolean;
  /** Whether it is asked once before it begins. */
  readonly isAsked?: boolean;
}

const KINDS: Readonly<Record<string, Kind>> = {
  verify: { title: "Compare", does: "Compare the index with the cells, and change nothing.", isOfCells: true },
  sync: { title: "Sync", does: "Read all instances of the cells into the index again; lists go on meanwhile.", isOfCells: true },
  rebuild: { title: "Rebuild", does: "Make a new index beside the one that is read, and put it in its place when it is whole. The old one is kept, in place of one that was kept before.", isAsked: true },
  back: { title: "Go back", does: "Put the index that the last rebuild replaced in its place again, once it has what changed since. The other one is kept; lists go on meanwhile.", isAsked: true },
  "drop-old": { title: "Drop the old index", does: "Remove the index that the last rebuild replaced, and free its disk. Then there is no way back to it.", isAsked: true },
  purge: { title: "Purge", does: "Remove documents of instances that were deleted long ago, and of cells that have left.", isOfCells: true, isAsked: true },
};
const TABS = ["work", "audit", "failures"] as const;
const REFRESH_MS = 1500;

export function IndexPage() {
  const tab = TABS.find((each) => each === address.value.query["tab"]) ?? "work";
  return (
    <article>
      <header class="title"><h1>Index</h1></header>
      <Tabs names={TABS} chosen={tab} titles={{ work: "Work", audit: "Audit", failures: "Failed messages" }} />
      {tab === "work" && <WorkTab />}
      {tab === "audit" && <AuditTab />}
      {tab === "failures" && <FailuresTab />}
    </article>
  );
}

function WorkTab() {
  const { answer, problem, again } = usePolled<{ work: readonly Work[] }>("/fleetlight/index/work", REFRESH_MS);
  const { said, attempt } = useAttempts(again);
  const kind = useSignal("verify");
  const asked = useAsked();
  const chosen = KINDS[kind.value]!;
  const start = (event: SubmitEvent): void => {
    event.preventDefault();
    const cells = String(new FormData(event.currentTarget as HTMLFormElement).get("cells") ?? "")
      .split(/[\s,]+/)
      .filter(Boolean);
    const act = (): void => void attempt(() => ask("POST", "/fleetlight/index/work", { body: { kind: kind.value, ...(cells.length === 0 ? {} : { cells }) } }));
    if (chosen.isAsked === true) asked.value = { title: `${chosen.title}?`, does: chosen.does, verb: chosen.title, isSerious: true, act };
    else act();
  };
  return (
    <>
      <Confirm asked={asked} />
      <form class="row" onSubmit={start}>
        <label>
          Work
          <select value={kind.value} onChange={(event) => (kind.value = event.currentTarget.value)}>
            {Object.entries(KINDS).map(([name, { title }]) => (
              <option key={name} value={name}>{title}</option>
            ))}
          </select>
        </label>
        {chosen.isOfCells === true && (
          <label>Cells <input name="cells" placeholder="all" /></label>
        )}
        <button type="submit" class="primary">Start</button>
        <span class="hint">{chosen.does}</span>
      </form>
      <Problem text={said.value || problem.value} />
      <Plots names={["messages_per_s", "lag_total", "age_max_s"]} />
      {answer.value?.body.work.length === 0 && <p>No work was started here yet.</p>}
      {answer.value?.body.work.map((work) => (
        <OneWork key={work.id} work={work} onStop={() => void attempt(() => ask("DELETE", `/fleetlight/index/work/${work.id}`))} />
      ))}
    </>
  );
}

function titleOf({ kind }: Work): string {
  return KINDS[kind]?.title ?? `${kind.charAt(0).toUpperCase()}${kind.slice(1)}`;
}

function OneWork({ work, onStop }: { work: Work; onStop: () => void }) {
  const isOpen = work.state === "running" || work.state === "waiting";
  return (
    <div class="work" role="group" aria-label={`${titleOf(work)}, ${work.state}`}>
      <h2>{titleOf(work)} <span class={`state state-${work.state}`}>{work.state}</span></h2>
      <p class="hint">
        {work.cells.length === 0 ? "all cells" : work.cells.join(", ")}, by <bdi>{nameOf(work.by)}</bdi>
        {work.started_at !== null && <>, started <Time at={work.started_at} /></>}
        {work.ended_at !== null && <>, ended <Time at={work.ended_at} /></>}
      </p>
      {isOpen && (
        <p>
          {work.total === null ? (
            <progress aria-label="Progress" />
          ) : (
            <progress max={Math.max(1, work.total)} value={work.done} aria-label="Progress" />
          )}{" "}
          {work.done.toLocaleString("en")}
          {work.total === null ? "" : ` of ${work.total.toLocaleString("en")}`}
          {work.rate === null ? "" : `, ${Math.round(work.rate).toLocaleString("en")} per second`}
          {work.left_s === null ? "" : `, ${shownSpan(work.left_s)} left`}{" "}
          <button type="button" onClick={onStop}>Stop</button>
        </p>
      )}
      {work.result !== null && <p>{work.result}</p>}
      {work.findings.length > 0 && (
        <table class="small">
          <Head titles={["Cell", "Instance", "Problem"]} />
          <tbody>
            {work.findings.map((finding) => (
              <tr key={`${finding.cell} ${finding.uuid}`}>
                <td>{finding.cell}</td>
                <td><code>{finding.uuid}</code></td>
                <td>{finding.problem}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </div>
  );
}

function AuditTab() {
  const { answer, problem, again } = usePolled<{ rounds: readonly Round[] }>("/fleetlight/index/audit", 5 * REFRESH_MS);
  if (answer.value === null) return <Awaited problem={problem.value} onAgain={() => void again()} />;
  return (
    <table class="small">
      <caption>The last look of the audit at each cell</caption>
      <Head titles={["Cell", "When", "Compared", "Wrong", "Repaired"]} numbers={["Compared", "Wrong", "Repaired"]} />
      <tbody>
        {answer.value.body.rounds.map((round) => (
          <tr key={round.cell}>
            <th scope="row">{round.cell}</th>
            <td>{round.at === null ? "not yet" : <Time at={round.at} />}</td>
            <td class="number">{round.compared?.toLocaleString("en") ?? "–"}</td>
            <td class="number">{round.found?.toLocaleString("en") ?? "–"}</td>
            <td class="number">{round.repaired?.toLocaleString("en") ?? "–"}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function FailuresTab() {
  const cell = address.value.query["cell"] ?? null;
  const { answer, problem, again } = usePolled<{ failures: readonly Failure[]; marker: string | null }>(
    "/fleetlight/index/failures",
    5 * REFRESH_MS,
    { cell, limit: 100 },
  );
  const { said, attempt } = useAttempts(again);
  const asked = useAsked();
  const drop = (failure: Failure): void => {
    asked.value = {
      title: "Drop the message?",
      does: "It is forgotten, and can never be tried again.",
      verb: "Drop",
      isSerious: true,
      act: () => void attempt(() => ask("DELETE", `/fleetlight/index/failures/${failure.id}`), "It was dropped."),
    };
  };
  const found = answer.value?.body;
  return (
    <>
      <Confirm asked={asked} />
      {found === undefined && <Awaited problem={problem.value} onAgain={() => void again()} />}
      {(said.value || problem.value) !== "" && <p role="status">{said.value || problem.value}</p>}
      {found?.failures.length === 0 && <p>Every message could be indexed.</p>}
      {found?.failures.map((failure) => (
        <div key={failure.id} class="work" role="group" aria-label={failure.reason}>
          <h2>{failure.reason}</h2>
          <p>{failure.detail}</p>
          <p class="hint">
            {failure.cell}
            {failure.instance === null ? "" : `, instance ${failure.instance}`}, {failure.times} times, last{" "}
            <Time at={failure.last_at} />
          </p>
          <details>
            <summary>The message</summary>
            <pre tabIndex={0}>{printable(JSON.stringify(failure.message, null, 2)).replaceAll("␊", "\n")}</pre>
          </details>
          <button type="button" onClick={() => void attempt(() => ask("POST", `/fleetlight/index/failures/${failure.id}/retry`), "It is tried again.")}>
            Try again
          </button>{" "}
          <button type="button" class="serious" onClick={() => drop(failure)}>
            Drop
          </button>
        </div>
      ))}
      {found?.marker != null && <p class="hint">There are more; they are shown when these are gone.</p>}
    </>
  );
}
