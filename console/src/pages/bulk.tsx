/** Changes of all instances that a filter lets pass: previewed, frozen, carried out, stopped and gone on with. */

import { useSignal } from "@preact/signals";
import { ask, sentenceOf } from "../api/client";
import { Awaited, Failed } from "../parts/awaited";
import { printable, Time } from "../parts/glyphs";
import { usePolled } from "../parts/polled";
import { address, go, link } from "../state/address";
import { caller } from "../state/session";

interface Bulk {
  readonly id: string;
  readonly action: string;
  readonly filter: string;
  readonly state: "previewed" | "running" | "stopped" | "done";
  readonly as_of: string;
  readonly complete: boolean;
  readonly total: number;
  readonly by_project: Readonly<Record<string, number>>;
  readonly by_cell: Readonly<Record<string, number>>;
  readonly running: number;
  readonly done: number;
  readonly failed: number;
  readonly skipped: number;
  readonly unknown: number;
  readonly reason: string | null;
  readonly items?: readonly { readonly uuid: string; readonly name: string; readonly state: string; readonly reason: string | null }[];
  readonly by: string;
  readonly created_at: string;
  readonly expires_at: string;
}

const ACTIONS = ["stop", "start", "reboot", "delete"] as const;
const REFRESH_MS = 1000;

export function BulkPage({ id }: { id: string | null }) {
  return id === null ? <AllBulk /> : <OneBulk key={id} id={id} />;
}

function AllBulk() {
  const { answer, problem, again } = usePolled<{ bulk: readonly Bulk[] }>("/fleetlight/bulk", 5 * REFRESH_MS);
  return (
    <article>
      <header class="title">
        <h1>Bulk changes</h1>
      </header>
      <Preview filter={address.value.query["filter"] ?? ""} />
      {answer.value === null ? (
        <Awaited problem={problem.value} onAgain={() => void again()} />
      ) : (
        problem.value !== "" && <Failed problem={problem.value} onAgain={() => void again()} />
      )}
      {answer.value?.body.bulk.length === 0 && <p class="empty">No bulk change yet: say above which instances, and preview what an action would do to them.</p>}
      <ul class="columns">
        {answer.value?.body.bulk.map((bulk) => (
          <li key={bulk.id}>
            <a href={link(["bulk", bulk.id])}>
              {bulk.action} {bulk.total.toLocaleString("en")}
            </a>
            <code>{bulk.filter || "all"}</code>
            <span class={`state state-${bulk.state}`}>{bulk.state}</span>
            <span class="hint">
              by <bdi>{bulk.by}</bdi>, <Time at={bulk.created_at} />
            </span>
          </li>
        ))}
      </ul>
    </article>
  );
}

function Preview({ filter }: { filter: string }) {
  const problem = useSignal("");
  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const body = { action: form.get("action"), filter: form.get("filter"), all_projects: isOfAllProjects() };
    try {
      const answer = await ask<Bulk>("POST", "/fleetlight/bulk", { body });
      go(["bulk", answer.body.id]);
    } catch (error) {
      problem.value = sentenceOf(error);
    }
  };
  return (
    <form class="row" onSubmit={(event) => void submit(event)}>
      <label>
        Action
        <select name="action">
          {ACTIONS.map((action) => (
            <option key={action}>{action}</option>
          ))}
        </select>
      </label>
      <label class="grows">
        All instances with
        <input name="filter" id="filter" required value={filter} placeholder='project_id == "demo" and vm_state == "active"' />
      </label>
      <button type="submit">Preview</button>
      <span class="hint">Of {isOfAllProjects() ? "all projects" : "your project"}. Nothing is changed yet.</span>
      {problem.value !== "" && (
        <p class="problem" role="alert">
          {problem.value}
        </p>
      )}
    </form>
  );
}

/** As the list that led here. */
function isOfAllProjects(): boolean {
  return caller().is_admin && address.value.query["mine"] !== "1";
}

function OneBulk({ id }: { id: string }) {
  const path = `/fleetlight/bulk/${encodeURIComponent(id)}`;
  const { answer, problem, again } = usePolled<Bulk>(path, REFRESH_MS);
  const said = useSignal("");
  const attempt = async (verb: string, body?: unknown): Promise<void> => {
    try {
      await ask("POST", `${path}/${verb}`, body === undefined ? {} : { body });
      said.value = "";
    } catch (error) {
      said.value = sentenceOf(error);
    }
    await again();
  };
  const bulk = answer.value?.body;
  if (bulk === undefined) return <Awaited problem={problem.value} onAgain={() => void again()} />;
  const ended = bulk.done + bulk.failed + bulk.skipped + bulk.unknown;
  const toDo = bulk.total - ended - bulk.running;
  return (
    <article>
      <header class="title">
        <h1>
          {bulk.action} {bulk.total.toLocaleString("en")} instances
        </h1>
        <span class={`state state-${bulk.state}`}>{bulk.state}</span>
      </header>
      <p>
        <code>{bulk.filter || "all"}</code>, as they were <Time at={bulk.as_of} />. What changed since then
        is skipped.
      </p>
      {!bulk.complete && <p class="problem">⚠ The list was not complete: instances of cells that did not answer are not among them.</p>}
      {(said.value || problem.value) !== "" && (
        <p class="problem" role="alert">
          {said.value || problem.value}
        </p>
      )}
      {bulk.reason !== null && <p class="problem">Stopped: {bulk.reason}.</p>}
      <div class="cards">
        <Shares title="By project" shares={bulk.by_project} />
        <Shares title="By cell" shares={bulk.by_cell} />
      </div>
      <p role="status">
        <progress max={Math.max(1, bulk.total)} value={ended} aria-label="Progress" /> {bulk.done} done, {bulk.failed} failed, {bulk.skipped}{" "}
        skipped, {bulk.unknown} unknown, {bulk.running} running, {toDo} to do
      </p>
      {bulk.state === "stopped" && bulk.running > 0 && <p>Stopped; jobs that their cells had accepted already go on: {bulk.running}.</p>}
      <p>
        {(bulk.state === "previewed" || bulk.state === "stopped") && (
          <button type="button" class="serious" onClick={() => void attempt("start", bulk.complete ? {} : { accept_incomplete: true })}>
            {bulk.state === "stopped" ? "Go on" : `${bulk.action} all ${bulk.total.toLocaleString("en")}`}
          </button>
        )}
        {bulk.state === "running" && toDo > 0 && (
          <button type="button" title="What their cells have accepted goes on" onClick={() => void attempt("stop")}>
            Stop
          </button>
        )}
      </p>
      <table class="small">
        <thead>
          <tr>
            <th scope="col">Instance</th>
            <th scope="col">State</th>
            <th scope="col">Why</th>
          </tr>
        </thead>
        <tbody>
          {bulk.items?.map((item) => (
            <tr key={item.uuid}>
              <td>
                <a href={link(["instances", item.uuid])}>
                  <bdi>{printable(item.name)}</bdi>
                </a>
              </td>
              <td>{item.state}</td>
              <td>{item.reason ?? ""}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </article>
  );
}

function Shares({ title, shares }: { title: string; shares: Readonly<Record<string, number>> }) {
  return (
    <section>
      <h2>{title}</h2>
      <ul>
        {Object.entries(shares)
          .sort(([, left], [, right]) => right - left)
          .slice(0, 20)
          .map(([name, count]) => (
            <li key={name}>
              <bdi>{printable(name)}</bdi>: {count.toLocaleString("en")}
            </li>
          ))}
      </ul>
    </section>
  );
}
