/** What changed lately in all cells: when, by whom, and what from what to what; the newest first. */

import { useEffect, useMemo } from "preact/hooks";
import { FilterBar } from "../list/filter_bar";
import { LISTS } from "../list/kinds";
import { eventText, keyOf, Recent, type RecentChange } from "../list/recent";
import { Awaited, Failed } from "../parts/awaited";
import { Differences } from "../parts/difference";
import { printable, Time } from "../parts/glyphs";
import { Icon } from "../parts/icons";
import { LiveBar } from "../parts/live_bar";
import { expressionOf } from "../query/language";
import { meantIn, TIMES } from "../query/suggest";
import { address, choose, link } from "../state/address";
import { fieldsOf } from "../state/fields";
import { nameOf } from "../state/people";
import { caller } from "../state/session";

const INSTANCES = LISTS.find(({ path }) => path === "instances")!;

export function ChangesPage() {
  const fields = fieldsOf("instance");
  const { query } = address.value;
  const typed = query["filter"] ?? "";
  const filter = expressionOf(typed, (word) => fields.some(({ name, kind }) => name === word && kind === "bool"));
  const allProjects = caller().is_admin && query["mine"] !== "1";
  const narrowed = { user_id: query["user_id"], changed_since: query["changed_since"], changed_before: query["changed_before"] };
  const recent = useMemo(() => new Recent(filter, allProjects, narrowed), [filter, allProjects, ...Object.values(narrowed)]);
  useEffect(() => () => recent.close(), [recent]);
  const newest = recent.newest.value;
  const problem = recent.problem.value;
  return (
    <article>
      <header class="title">
        <h1>Changes</h1>
        <LiveBar
          state={recent.state.value}
          reason={recent.reason.value}
          pending={recent.pending.value}
          onPause={(isPaused) => recent.pause(isPaused)}
          onTakeIn={() => void recent.again()}
        />
        {caller().is_admin && (
          <button type="button" aria-pressed={!allProjects} onClick={() => choose({ mine: allProjects ? "1" : null })}>
            <Icon name="person" /> My project
          </button>
        )}
      </header>
      <FilterBar
        text={typed}
        what="instance"
        fields={fields}
        example={INSTANCES.example}
        allProjects={allProjects}
        problem={newest === null && problem !== "" ? problem : null}
        meant={problem === "" ? null : meantIn(typed, fields)}
        onAsk={(text) => choose({ filter: text || null })}
      />
      <Narrowing recent={recent} />
      {newest?.complete === false && (
        <p class="problem">
          <Icon name="partial" /> Changes of some cells are missing{newest.missing === undefined ? "." : `: ${newest.missing.map(({ cell, reason }) => `${cell} (${reason})`).join(", ")}.`}
        </p>
      )}
      {newest === null ? <Awaited problem="" onAgain={() => void recent.again()} rows={problem === "" ? 12 : 0} /> : <Made recent={recent} />}
      {newest !== null && problem !== "" && <Failed problem={problem} onAgain={() => void recent.again()} />}
    </article>
  );
}

/** By whom, from when and to when. */
function Narrowing({ recent }: { recent: Recent }) {
  const { query } = address.value;
  const users = [...new Set(recent.changes.value.flatMap((change) => change.user_id ?? []))];
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    choose(Object.fromEntries([...new FormData(event.currentTarget as HTMLFormElement)].map(([name, value]) => [name, String(value).trim() || null])));
  };
  const fields = [
    { name: "user_id", title: "By", example: "anyone", known: users.map((id) => ({ value: id, label: nameOf(id) })) },
    { name: "changed_since", title: "From", example: "the beginning", known: TIMES.map((value) => ({ value, label: value })) },
    { name: "changed_before", title: "To", example: "now", known: TIMES.map((value) => ({ value, label: value })) },
  ];
  return (
    <form class="row narrowing" onSubmit={submit}>
      {fields.map(({ name, title, example, known }) => (
        <label key={`${name} ${query[name]}`}>
          {title}
          <input name={name} list={`known-${name}`} defaultValue={query[name] ?? ""} placeholder={example} />
          <datalist id={`known-${name}`}>
            {known.map(({ value, label }) => (
              <option key={value} value={value} label={label} />
            ))}
          </datalist>
        </label>
      ))}
      <button type="submit">Show these</button>
    </form>
  );
}

function Made({ recent }: { recent: Recent }) {
  const changes = recent.changes.value;
  return (
    <>
      {changes.length === 0 && recent.marker.value === null && <p class="empty">Nothing that the filter lets pass has changed as far back as cells keep their changes.</p>}
      {changes.length > 0 && (
        <div class="wide" tabIndex={0} role="region" aria-label="Changes, the newest first">
          <table class="changes">
            <thead>
              <tr>
                {["When", "Instance", ...(caller().is_admin ? ["Cell"] : []), "What", "Changed", "By"].map((title) => (
                  <th key={title} scope="col">{title}</th>
                ))}
                <th scope="col"><span class="hidden">More</span></th>
              </tr>
            </thead>
            <tbody>
              {changes.map((change) => (
                <Line key={keyOf(change)} change={change} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {recent.marker.value !== null && (
        <p>
          <button type="button" disabled={recent.isBusy.value} onClick={() => void recent.older()}>
            Older changes
          </button>
        </p>
      )}
    </>
  );
}

function Line({ change }: { change: RecentChange }) {
  const { instance } = change;
  return (
    <tr>
      <td><Time at={change.at} /></td>
      <th scope="row">
        {instance.deleted ? <bdi>{printable(instance.name)}</bdi> : <a href={link(["instances", instance.id])}>{printable(instance.name) || instance.id}</a>}
      </th>
      {instance.cell !== undefined && <td>{instance.cell}</td>}
      <td title={change.event ?? undefined}>{change.changed === null && change.revision === 1 ? "New" : eventText(change.event)}</td>
      <td>{change.changed !== null && <Differences changed={change.changed} />}</td>
      <td>
        <bdi title={change.user_id ?? undefined}>{change.user_id === null ? <span class="hint">the cell itself</span> : printable(nameOf(change.user_id))}</bdi>
      </td>
      <td>
        {caller().is_admin ? (
          <a href={link(["jobs"], { filter: `instance == "${instance.id}"` })}>Jobs</a>
        ) : (
          !instance.deleted && <a href={link(["instances", instance.id], { tab: "history" })}>History</a>
        )}
      </td>
    </tr>
  );
}
