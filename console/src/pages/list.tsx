/** A list: filter, counts by value, rows, and what the answer covers. Everything chosen is in the address. */

import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { addressOf } from "../api/client";
import type { Field } from "../api/types";
import { Badge } from "../list/badge";
import { Columns } from "../list/columns";
import { Facets } from "../list/facets";
import { FilterBar } from "../list/filter_bar";
import type { ListKind } from "../list/kinds";
import { Live } from "../list/live";
import { DifferenceTable } from "../list/difference_table";
import { MomentBar, type Past, usePasts } from "../list/moment";
import { parametersOf, type Question, Rows } from "../list/rows";
import { Table } from "../list/table";
import { ListTools } from "../list/tools";
import { Awaited } from "../parts/awaited";
import { Fold } from "../parts/fold";
import { Icon } from "../parts/icons";
import { useListKeys } from "../parts/keys";
import { LiveBar } from "../parts/live_bar";
import { expressionOf, narrowed, quoted, wants, widened } from "../query/language";
import { permitted } from "../query/permitted";
import { meantIn } from "../query/suggest";
import { address, choose, goTo, keepPlace, link, placeHere } from "../state/address";
import { fieldsOf, fieldsProblem, readFields } from "../state/fields";
import { caller } from "../state/session";

export function ListPage({ kind }: { kind: ListKind }) {
  const fields = fieldsOf(kind.what);
  const { query } = address.value;
  const isPast = kind.hasPast && (query["as_of"] !== undefined || query["past"] === "1");
  const pasts = usePasts(isPast);
  if (fields.length === 0 || (isPast && pasts === null)) return <Awaited problem={fieldsProblem(kind.what)} onAgain={() => void readFields(kind.what)} rows={20} />;
  const { filter, leftOut } = caller().is_admin ? { filter: query["filter"] ?? "", leftOut: [] } : permitted(query["filter"] ?? "");
  const lacking = [...(query["columns"]?.split(",") ?? []).filter((name) => name !== "" && !fields.some((field) => field.name === name)), ...leftOut];
  const question = questionOf(kind, fields, query, filter, pasts ?? []);
  const key = JSON.stringify([question, query["against"]]);
  return <Listed key={key} kind={kind} fields={fields} question={question} filter={filter} lacking={lacking} pasts={isPast ? pasts : null} />;
}

interface ListedProps {
  readonly kind: ListKind;
  readonly fields: readonly Field[];
  readonly question: Question;
  /** As it was typed. */
  readonly filter: string;
  /** What the link asks for and is left out. */
  readonly lacking: readonly string[];
  /** Null while the list is as of now. */
  readonly pasts: readonly Past[] | null;
}

function Listed({ kind, fields, question, filter, lacking, pasts }: ListedProps) {
  const generation = useSignal(0);
  const place = useMemo(placeHere, []);
  const selected = useSignal(place?.selected ?? 0);
  const first = useSignal(place?.first ?? 0);
  const before = useRef<Rows | null>(null);
  const rows = useMemo(() => (before.current = new Rows(question, before.current)), [generation.value]);
  const again = (): void => {
    generation.value++;
  };
  // Not before there are rows: what is refused as a list is not asked for as a stream.
  const hasLive = question.asOf === null && rows.proof.value !== null;
  const live = useMemo(() => (hasLive ? new Live(rows, again) : null), [hasLive]);
  useEffect(() => {
    keepPlace(() => ({ first: first.value, selected: selected.value }));
    return () => keepPlace(null);
  }, []);
  useEffect(() => () => rows.close(), [rows]);
  useEffect(() => live?.show(rows), [live, rows]);
  useEffect(() => () => live?.close(), [live]);
  const columns = columnsOf(kind, fields, address.value.query["columns"]);
  const shown = columns.flatMap((name) => fields.find((field) => field.name === name) ?? []);
  const hrefOf = (key: string): string =>
    kind.path === "instances" ? link(["instances", key]) : link(address.value.path, { ...address.value.query, open: key });
  useListKeys(rows, selected, (key) => goTo(hrefOf(key)));
  const ask = (text: string): void => choose({ filter: text === "" ? null : text, open: null });
  const expression = expressionOf(filter, (word) => fields.some((field) => field.name === word && field.kind === "bool"));
  const toggle = (condition: string): void =>
    ask(wants(expression, condition) ? widened(expression, condition) : narrowed(expression, condition));
  const sort = (name: string): void => {
    const [first] = question.order;
    choose({ order: first === name ? `-${name}` : name });
  };
  return (
    <section class="list">
      <header class="title">
        <h1>{kind.title}</h1>
        <Total rows={rows} />
        <Badge
          proof={rows.proof.value}
          request={caller().is_admin ? `GET ${addressOf("/fleetlight/query", parametersOf(question))}` : null}
        />
        {live !== null && (
          <LiveBar
            state={live.state.value}
            reason={live.reason.value}
            pending={live.pending.value}
            onPause={(isPaused) => live.pause(isPaused)}
            onTakeIn={again}
          />
        )}
        {caller().is_admin && kind.what === "instance" && (
          <button type="button" aria-pressed={!question.allProjects} onClick={() => choose({ mine: question.allProjects ? "1" : null })}>
            <Icon name="person" /> My project
          </button>
        )}
        {kind.hasPast && pasts === null && (
          <button type="button" onClick={() => choose({ past: "1" })}>
            <Icon name="past" /> Past
          </button>
        )}
        <Fold title="Tools">
        <ListTools kind={kind} question={question} rows={rows} onAgain={again}>
          <Columns fields={fields} chosen={columns} usual={kind.columns} onChoose={(names) => choose({ columns: names.join(",") })} />
        </ListTools>
        </Fold>
      </header>
      <FilterBar
        text={filter}
        what={kind.what}
        fields={fields}
        example={kind.example}
        allProjects={question.allProjects}
        problem={rows.problem.value}
        meant={rows.problem.value === null ? null : meantIn(filter, fields)}
        onAsk={ask}
      />
      {lacking.length > 0 && (
        <p class="hint">
          Left out of what the link asks for, since {caller().is_admin ? "there is no such field" : "only administrators see it"}: {lacking.join(", ")}.
        </p>
      )}
      {pasts !== null && <MomentBar pasts={pasts} />}
      <div class="body">
        {rows.proof.value === null ? (
          <div class="facets" />
        ) : (
          <Fold title="Counts by value">
            <Facets
              question={question}
              fields={kind.facets.flatMap((name) => fields.find((field) => field.name === name) ?? [])}
              filter={expression}
              onToggle={toggle}
            />
          </Fold>
        )}
        {question.asOf !== null && address.value.query["against"] !== undefined ? (
          <DifferenceTable question={question} fields={shown} />
        ) : rows.total.value === null && rows.problem.value === null ? (
          <Awaited problem="" onAgain={again} rows={20} />
        ) : rows.total.value === 0 && rows.isWhole.value ? (
          <Empty kind={kind} filter={filter} onAll={() => ask("")} />
        ) : (
        <Table
          rows={rows}
          fields={shown}
          label={kind.title}
          order={question.order}
          selected={selected.value}
          first={first}
          onSort={sort}
          onSelect={(position) => (selected.value = position)}
          hrefOf={hrefOf}
        />
        )}
      </div>
    </section>
  );
}

/** What is there instead of rows, and what one may do then. */
function Empty({ kind, filter, onAll }: { kind: ListKind; filter: string; onAll: () => void }) {
  return (
    <div class="empty">
      {filter === "" ? <p>{kind.empty}</p> : <p>The filter lets no {kind.singular} pass.</p>}
      {filter !== "" && (
        <button type="button" onClick={onAll}>All {kind.title.toLowerCase()}</button>
      )}
      {kind.path === "reservations" && caller().is_admin && <a href={link(["capacity"])}>Reserve capacity</a>}
    </div>
  );
}

function Total({ rows }: { rows: Rows }) {
  const total = rows.total.value;
  if (total === null) return <span class="total">…</span>;
  return (
    <span class="total" role="status">{rows.isWhole.value ? total.toLocaleString("en") : `${rows.least.value.toLocaleString("en")} or more`}</span>
  );
}

/** What the address asks for. */
function questionOf(
  kind: ListKind,
  fields: readonly Field[],
  query: Readonly<Record<string, string>>,
  filter: string,
  pasts: readonly Past[],
): Question {
  const isFlag = (word: string): boolean => fields.some((field) => field.name === word && field.kind === "bool");
  const typed = expressionOf(filter, isFlag);
  const columns = columnsOf(kind, fields, query["columns"]);
  const cell = fields.some((field) => field.name === "cell") ? ["cell"] : [];
  // A link may ask for an order that there is not, or not for this caller: that is no reason for a list without rows.
  const isSortable = (name: string): boolean => fields.some((field) => field.sortable === true && field.name === name.replace(/^-/, ""));
  const order = query["order"]?.split(",").filter(isSortable) ?? [];
  const asOf = query["as_of"] ?? null;
  const forgetful = asOf === null ? [] : pasts.filter(({ since }) => since === null);
  const conditions = [kind.base, typed, ...forgetful.map(({ name }) => `cell != ${quoted(name)}`)];
  return {
    what: kind.what,
    filter: conditions.filter(Boolean).reduce(narrowed, ""),
    fields: [...new Set([kind.key, ...cell, ...columns])],
    order: order.length === 0 ? kind.order : order,
    asOf,
    allProjects: caller().is_admin && query["mine"] !== "1",
  };
}

/** The columns that are asked for, or the usual ones of those that the caller may see. */
function columnsOf(kind: ListKind, fields: readonly Field[], asked: string | undefined): readonly string[] {
  const named = asked?.split(",").filter((name) => fields.some((field) => field.name === name)) ?? [];
  if (named.length > 0) return named;
  return kind.columns.filter((name) => fields.some((field) => field.name === name));
}

