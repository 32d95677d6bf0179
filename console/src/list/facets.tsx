/** How many items there are by the values of some fields; a click writes the condition into the filter. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get } from "../api/client";
import type { CountsAnswer, Field, Group } from "../api/types";
import { printable } from "../parts/glyphs";
import { labelOf, tooltipOf } from "../query/labels";
import { isEqual, wants } from "../query/language";
import { GLYPHS } from "../query/values";
import { parametersOf, type Question } from "./rows";

const SHOWN = 6;

export interface FacetsProps {
  readonly question: Question;
  readonly fields: readonly Field[];
  readonly filter: string;
  readonly onToggle: (condition: string) => void;
}

export function Facets({ question, fields, filter, onToggle }: FacetsProps) {
  const counts = useCounts(question, fields);
  return (
    <aside class="facets" aria-label="Counts by value">
      {fields.map((field) => (
        <Facet key={field.name} found={counts[field.name]} field={field} filter={filter} onToggle={onToggle} />
      ))}
    </aside>
  );
}

/** The counts by the values of each field, one after the other: lists of others are not to wait behind all of them. */
function useCounts(question: Question, fields: readonly Field[]): Readonly<Record<string, CountsAnswer>> {
  const counts = useSignal<Readonly<Record<string, CountsAnswer>>>({});
  const { what, filter, asOf, allProjects } = question;
  useEffect(() => {
    const aborting = new AbortController();
    const { fields: _, order: __, ...parameters } = parametersOf(question);
    const count = async (): Promise<void> => {
      counts.value = {};
      for (const { name } of fields) {
        try {
          const { body } = await get<CountsAnswer>("/fleetlight/query/counts", { ...parameters, by: name }, aborting.signal);
          counts.value = { ...counts.value, [name]: body };
        } catch {
          if (aborting.signal.aborted) return;
        }
      }
    };
    void count();
    return () => aborting.abort();
  }, [what, filter, asOf, allProjects, fields.map(({ name }) => name).join()]);
  return counts.value;
}

type FacetProps = Omit<FacetsProps, "fields" | "question"> & { readonly field: Field; readonly found: CountsAnswer | undefined };

function Facet({ found, field, filter, onToggle }: FacetProps) {
  const isLong = useSignal(false);
  if (found === undefined || found.groups.length === 0) return null;
  const groups = [...found.groups].sort((left, right) => right.count - left.count);
  const shown = isLong.value ? groups.slice(0, 200) : groups.slice(0, SHOWN);
  return (
    <section>
      <h2 title={tooltipOf(field)}>
        {labelOf(field)}
        {found.partial && <span class="partial"> partial</span>}
      </h2>
      <ul>
        {shown.map((group) => (
          <Choice key={String(group.by[field.name])} group={group} name={field.name} filter={filter} onToggle={onToggle} />
        ))}
      </ul>
      {groups.length > SHOWN && (
        <button type="button" class="plain link" onClick={() => (isLong.value = !isLong.value)}>
          {isLong.value ? "fewer" : `${groups.length - SHOWN} more`}
        </button>
      )}
    </section>
  );
}

interface ChoiceProps {
  readonly group: Group;
  readonly name: string;
  readonly filter: string;
  readonly onToggle: (condition: string) => void;
}

function Choice({ group, name, filter, onToggle }: ChoiceProps) {
  const value = group.by[name];
  const status = group.statuses[name] ?? 0;
  const isPlain = typeof value === "string" || typeof value === "number" || typeof value === "boolean";
  const condition = status === 0 && isPlain ? isEqual(name, value) : null;
  const text = isPlain ? printable(typeof value === "boolean" ? (value ? "yes" : "no") : String(value)) || "(empty)" : GLYPHS[status === 0 ? 3 : status].meaning;
  return (
    <li>
      <button
        type="button"
        class="plain choice"
        disabled={condition === null}
        aria-pressed={condition !== null && wants(filter, condition)}
        onClick={() => condition !== null && onToggle(condition)}
      >
        <bdi>{text}</bdi>
        <span class="count">{group.count.toLocaleString("en")}</span>
      </button>
    </li>
  );
}
