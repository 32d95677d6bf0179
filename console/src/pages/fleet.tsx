/** The state of the fleet for its operators: completeness, health, failures, capacity, and recent changes. */

import type { ComponentChildren } from "preact";
import type { CountsAnswer } from "../api/types";
import { eventText, keyOf, type RecentAnswer } from "../list/recent";
import { Awaited } from "../parts/awaited";
import { Icon } from "../parts/icons";
import { printable, Time } from "../parts/glyphs";
import { type Polled, usePolled } from "../parts/polled";
import { link } from "../state/address";
import { nameOf } from "../state/people";
import type { CapacityAnswer } from "./capacity";
import { type Board, type BoardCell, Health } from "./cells";

interface Findings {
  readonly findings: readonly { readonly kind: string; readonly cell: string; readonly subject: string; readonly evidence: string; readonly remedy: string }[];
  readonly complete: boolean;
}

const SOON_MS = 5000;
const LATER_MS = 30_000;
/** So many of a kind are named; the pages that they lead to have all. */
const MOST = 5;

export function FleetPage() {
  const board = usePolled<Board>("/fleetlight/cells", SOON_MS);
  return (
    <article>
      <header class="title"><h1>Fleet</h1></header>
      <Part polled={board}>{({ cells, safe_connect: safe, seal }) => <Whole cells={cells} isIndexed={safe.uses_index && seal.holds} />}</Part>
      <div class="cards">
        <Failing board={board} />
        <Wrong />
        <Full />
        <Changed />
      </div>
    </article>
  );
}

/** What is made of an answer, or what stands there until it comes. */
function Part<T>({ polled, children }: { polled: Polled<T>; children: (body: T) => ComponentChildren }) {
  const found = polled.answer.value;
  return found === null ? <Awaited problem={polled.problem.value} onAgain={() => void polled.again()} rows={3} /> : <>{children(found.body)}</>;
}

function Whole({ cells, isIndexed }: { cells: readonly BoardCell[]; isIndexed: boolean }) {
  const ill = cells.filter(({ health }) => health !== "ok" && health !== "disabled");
  const instances = cells.reduce((all, cell) => all + (cell.instances ?? 0), 0).toLocaleString("en");
  const isWhole = ill.length === 0 && isIndexed;
  return (
    <section aria-label="Whole or not">
      <p class={isWhole ? "verdict whole" : "verdict partial"} role="status">
        <Icon name={isWhole ? "ok" : "partial"} /> {isWhole ? "Whole" : "Not whole"}: {cells.length - ill.length} of <a href={link(["cells"])}>{cells.length} cells</a> are well, with{" "}
        <a href={link(["instances"])}>{instances} instances</a>. {isIndexed ? "Lists come from the index." : <a href={link(["cells"])}>Lists do not come from the index.</a>}
      </p>
      <Lines
        lines={ill.map((cell) => (
          <>
            <a href={link(["cells"], { filter: cell.name })}>{cell.name}</a> <Health of={cell.health} /> <span class="hint">{cell.reason}</span>
          </>
        ))}
      />
    </section>
  );
}

function Failing({ board }: { board: Polled<Board> }) {
  const errors = usePolled<CountsAnswer>("/fleetlight/query/counts", LATER_MS, { what: "instance", filter: 'vm_state == "error"', all_projects: true });
  const jobs = usePolled<CountsAnswer>("/fleetlight/query/counts", LATER_MS, { what: "job", filter: 'status == "error"' });
  const letters = board.answer.value?.body.cells.reduce((all, cell) => all + cell.dead_letters, 0) ?? null;
  const count = ({ answer }: Polled<CountsAnswer>): number | null => (answer.value === null ? null : (answer.value.body.groups[0]?.count ?? 0));
  const rows = [
    { name: ["instance in error", "instances in error"], count: count(errors), href: link(["instances"], { filter: 'vm_state == "error"' }) },
    { name: ["job that failed", "jobs that failed"], count: count(jobs), href: link(["jobs"], { filter: 'status == "error"' }) },
    { name: ["message that could not be indexed", "messages that could not be indexed"], count: letters, href: link(["index"], { tab: "failures" }) },
  ];
  return (
    <Card title="Failures">
      <Lines
        isWhole={[errors, jobs].every(({ answer }) => answer.value?.proof.isComplete ?? true)}
        lines={rows.map(({ name, count: found, href }) => (
          <a key={name[1]} href={href}>
            <strong class={found !== null && found > 0 ? "problem" : undefined}>{found?.toLocaleString("en") ?? "…"}</strong> {name[found === 1 ? 0 : 1]}
          </a>
        ))}
      />
    </Card>
  );
}

function Wrong() {
  const findings = usePolled<Findings>("/fleetlight/findings", LATER_MS);
  return (
    <Card title="Findings">
      <Part polled={findings}>
        {({ findings: found, complete }) => (
          <>
            <Lines
              none={complete ? "Nothing was found." : "Nothing was found of what could be compared."}
              lines={found.slice(0, MOST).map(({ kind, cell, subject, evidence, remedy }) => (
                <span title={remedy}>
                  {kind} in {cell}: {/^[0-9a-f]{8}-/.test(subject) ? <a href={link(["instances", subject])}>{subject.slice(0, 8)}</a> : subject}{" "}
                  <span class="hint">{printable(evidence)}</span>
                </span>
              ))}
            />
            {found.length > MOST && <p class="hint">and {found.length - MOST} more (fleetlight findings)</p>}
          </>
        )}
      </Part>
    </Card>
  );
}

function Full() {
  const capacity = usePolled<CapacityAnswer>("/fleetlight/capacity", LATER_MS);
  return (
    <Card title="Fullest cells">
      <Part polled={capacity}>
        {({ cells, missing }) => {
          const shares = cells.map(({ cell, total, free }) => ({ cell, share: total.memory_mib === 0 ? 0 : 1 - free.memory_mib / total.memory_mib }));
          shares.sort((one, other) => other.share - one.share);
          return (
            <Lines
              isWhole={missing.length === 0}
              none="No cell has nodes."
              lines={shares.slice(0, MOST).map(({ cell, share }) => (
                <>
                  <a href={link(["capacity"], { cell })}>{cell}</a> {(100 * share).toFixed(1)} % of its memory is taken
                </>
              ))}
            />
          );
        }}
      </Part>
    </Card>
  );
}

function Changed() {
  const recent = usePolled<RecentAnswer>("/fleetlight/changes/recent", SOON_MS, { all_projects: true, limit: MOST });
  return (
    <Card title="Last changes">
      <Part polled={recent}>
        {({ changes, complete }) => (
          <Lines
            isWhole={complete}
            none="Nothing yet."
            lines={changes.slice(0, MOST).map((change) => (
              <span key={keyOf(change)}>
                <Time at={change.at} /> <a href={link(["changes"], { filter: `uuid == "${change.instance.id}"` })}>{printable(change.instance.name) || change.instance.id}</a>{" "}
                {eventText(change.event)}
                {change.user_id !== null && ` by ${printable(nameOf(change.user_id))}`}
              </span>
            ))}
          />
        )}
      </Part>
      <a href={link(["changes"])}>All changes</a>
    </Card>
  );
}

function Card({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section>
      <h2>{title}</h2>
      {children}
    </section>
  );
}

function Lines({ lines, none, isWhole = true }: { lines: readonly ComponentChildren[]; none?: string; isWhole?: boolean }) {
  return (
    <>
      {lines.length > 0 ? <ul class="lines">{lines.map((line, index) => <li key={index}>{line}</li>)}</ul> : none !== undefined && <p>{none}</p>}
      {!isWhole && <p class="partial"><Icon name="partial" /> Not complete.</p>}
    </>
  );
}
