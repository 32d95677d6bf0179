/** Changes of all instances that a filter lets pass: previewed, frozen, carried out, stopped and gone on with. */

import { ask } from "../api/client";
import { ageOf } from "../api/proof";
import type { CountsAnswer, Group } from "../api/types";
import { useAttempts } from "../parts/attempt";
import { Awaited, Failed, Problem } from "../parts/awaited";
import { Icon } from "../parts/icons";
import { Confirm, useAsked } from "../parts/confirm";
import { printable, Time } from "../parts/glyphs";
import { Head } from "../parts/head";
import { usePolled } from "../parts/polled";
import { narrowed } from "../query/language";
import { shownSpan } from "../query/times";
import { address, go, link, titled } from "../state/address";
import { nameOf } from "../state/people";
import { caller } from "../state/session";
import { ACTIONS, allows } from "./actions";

interface Bulk extends Readonly<Record<"total" | "running" | "done" | "failed" | "skipped" | "unknown", number>> {
  readonly id: string;
  readonly action: string;
  readonly filter: string;
  readonly state: "previewed" | "running" | "stopped" | "done";
  readonly as_of: string;
  readonly complete: boolean;
  readonly left_out: readonly { readonly cell: string; readonly instances: number | null; readonly age_s: number | null }[];
  readonly by_project: Readonly<Record<string, number>>;
  readonly by_cell: Readonly<Record<string, number>>;
  readonly reason: string | null;
  readonly items?: readonly { readonly uuid: string; readonly name: string; readonly state: string; readonly reason: string | null }[];
  readonly by: string;
  readonly created_at: string;
}

const NAMES = ["stop", "start", "reboot", "hard-reboot", "reset-state", "delete"];
const KNOWN_MS = 10_000;
const REFRESH_MS = 1000;

export function BulkPage({ id }: { id: string | null }) {
  return id === null ? <AllBulk /> : <OneBulk key={id} id={id} />;
}

function AllBulk() {
  const { answer, problem, again } = usePolled<{ bulk: readonly Bulk[] }>("/fleetlight/bulk", 5 * REFRESH_MS);
  return (
    <article>
      <header class="title"><h1>Bulk changes</h1></header>
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
            <a href={link(["bulk", bulk.id])}>{titleOf(bulk)}</a>
            <code>{bulk.filter || "all"}</code>
            <State bulk={bulk} />
            <span class="hint">by <bdi>{nameOf(bulk.by)}</bdi>, <Time at={bulk.created_at} /></span>
          </li>
        ))}
      </ul>
    </article>
  );
}

function Preview({ filter }: { filter: string }) {
  const { said: problem, attempt } = useAttempts();
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const body = { action: form.get("action"), filter: form.get("filter"), all_projects: isOfAllProjects() };
    void attempt(async () => go(["bulk", (await ask<Bulk>("POST", "/fleetlight/bulk", { body })).body.id]));
  };
  return (
    <form class="row" onSubmit={submit}>
      <label>
        Action
        <select name="action">
          {ACTIONS.filter(({ name, isForAdmins }) => NAMES.includes(name) && (caller().is_admin || isForAdmins !== true)).map(({ name, title }) => (
            <option key={name} value={name}>{title}</option>
          ))}
        </select>
      </label>
      <label class="grows">
        All instances with
        <input name="filter" id="filter" required value={filter} placeholder='project_id == "demo" and vm_state == "active"' />
      </label>
      <button type="submit" class="primary">Preview</button>
      <span class="hint">Of {isOfAllProjects() ? "all projects" : "your project"}. Nothing is changed yet.</span>
      <Problem text={problem.value} />
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
  const { said, attempt } = useAttempts(again);
  const asked = useAsked();
  const bulk = answer.value?.body;
  if (bulk === undefined) return <Awaited problem={problem.value} onAgain={() => void again()} />;
  titled(titleOf(bulk));
  const begin = (): void => {
    asked.value = {
      title: `${titleOf(bulk)}?`,
      does: `${ACTIONS.find(({ name }) => name === bulk.action)?.does ?? ""} Of those that were frozen, each that has not changed since.`,
      verb: bulk.state === "stopped" ? "Go on" : wordOf(bulk),
      isSerious: true,
      act: () => void attempt(() => ask("POST", `${path}/start`, { body: bulk.complete ? {} : { accept_incomplete: true } })),
    };
  };
  const ended = bulk.done + bulk.failed + bulk.skipped + bulk.unknown;
  const toDo = bulk.total - ended - bulk.running;
  return (
    <article>
      <header class="title">
        <h1>{titleOf(bulk)}</h1>
        <State bulk={bulk} />
      </header>
      <p>
        <code>{bulk.filter || "all"}</code>, as they were <Time at={bulk.as_of} />. What changed since then
        is skipped.
      </p>
      {!bulk.complete && <p class="problem"><Icon name="partial" /> The list was not complete: instances of cells that did not answer are not among them{lacking(bulk)}.</p>}
      {(bulk.state === "previewed" || bulk.state === "stopped") && <Allowed bulk={bulk} />}
      <Confirm asked={asked} />
      <Problem text={said.value || problem.value} />
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
          <button type="button" class="serious" onClick={begin}>
            {bulk.state === "stopped" ? "Go on" : `${wordOf(bulk)} all ${bulk.total.toLocaleString("en")}`}
          </button>
        )}
        {bulk.state === "running" && toDo > 0 && (
          <button type="button" title="What their cells have accepted goes on" onClick={() => void attempt(() => ask("POST", `${path}/stop`))}>
            Stop
          </button>
        )}
      </p>
      <table class="small">
        <Head titles={["Instance", "State", "Why"]} />
        <tbody>
          {bulk.items?.map((item) => (
            <tr key={item.uuid}>
              <td><a href={link(["instances", item.uuid])}><bdi>{printable(item.name)}</bdi></a></td>
              <td>{item.state}</td>
              <td>{item.reason ?? ""}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </article>
  );
}

function wordOf({ action }: Bulk): string {
  return ACTIONS.find(({ name }) => name === action)?.title ?? action;
}

function titleOf(bulk: Bulk): string {
  return `${wordOf(bulk)} ${bulk.total.toLocaleString("en")} instance${bulk.total === 1 ? "" : "s"}`;
}

/** It is done when everything of it was; what was skipped or has failed was not. */
function State({ bulk: { state, done, total } }: { bulk: Bulk }) {
  const isDone = state !== "done" || done === total;
  return <span class={`state state-${isDone ? state : "stopped"}`}>{isDone ? state : `${done.toLocaleString("en")} of ${total.toLocaleString("en")} done`}</span>;
}

/** The cells that are left out, for those who may know of them: how many instances of each, by what is known of when. */
function lacking({ left_out }: Bulk): string {
  const cells = left_out.map(({ cell, instances, age_s }) => {
    const count = instances === null ? "unknown number" : instances.toLocaleString("en");
    return `${cell} (${count}${age_s === null ? "" : `, as of ${shownSpan(age_s)} ago`})`;
  });
  return cells.length === 0 ? "" : `: ${cells.join(", ")}`;
}

/** What the states of the instances allow now, before anything is ordered; those made after the preview are not frozen. */
function Allowed({ bulk }: { bulk: Bulk }) {
  const allProjects = Object.keys(bulk.by_project).some((project) => project !== caller().project?.id);
  const filter = narrowed(bulk.filter, `created_at <= "${bulk.as_of}"`);
  const { answer } = usePolled<CountsAnswer>("/fleetlight/query/counts", KNOWN_MS, { by: "vm_state,task_state", filter, all_projects: allProjects });
  if (answer.value === null) return null;
  const { body, proof } = answer.value;
  const stateOf = ({ by }: Group): string => [by["vm_state"], by["task_state"]].filter(Boolean).join(", ");
  const canBe = ({ by }: Group): boolean => allows(bulk.action, String(by["vm_state"]), by["task_state"] === null ? null : String(by["task_state"]));
  const sum = (groups: readonly Group[]): number => groups.reduce((all, { count }) => all + count, 0);
  const cannot = body.groups.filter((group) => !canBe(group));
  const others = bulk.total - sum(body.groups);
  const left = [
    ...cannot.map((group) => `${stateOf(group)} (${group.count.toLocaleString("en")})`),
    ...(others > 0 ? [`no longer found by the filter (${others.toLocaleString("en")})`] : []),
  ];
  const age = ageOf(proof);
  return (
    <p role="status" class={left.length > 0 ? "problem" : undefined}>
      {(sum(body.groups) - sum(cannot)).toLocaleString("en")} of {Math.max(bulk.total, sum(body.groups)).toLocaleString("en")} can, by their states now
      {left.length > 0 && `; not those that are ${left.join(", ")}`}
      {age !== null && age >= 1 ? `. What is known of them is up to ${shownSpan(age)} old.` : "."}
    </p>
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
            <li key={name}><bdi>{printable(name)}</bdi>: {count.toLocaleString("en")}</li>
          ))}
      </ul>
    </section>
  );
}
