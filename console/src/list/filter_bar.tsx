/** The filter bar: a text of the query language, completed while it is typed. An ARIA combobox over a plain input. */

import { useSignal } from "@preact/signals";
import { useEffect, useId, useRef } from "preact/hooks";
import { get } from "../api/client";
import type { CountsAnswer, Field } from "../api/types";
import { Icon } from "../parts/icons";
import { labelOf } from "../query/labels";
import { isTime, operatorsOf, type Suggestion, suggestions, TIMES } from "../query/suggest";
import { isEqual, narrowed, quoted } from "../query/language";

const MOST_VALUES = 500;

export interface FilterBarProps {
  readonly text: string;
  readonly what: string;
  readonly fields: readonly Field[];
  readonly example: string;
  readonly allProjects: boolean;
  readonly problem: string | null;
  /** A name that was meant, where one in the text does not exist. */
  readonly meant: { readonly typed: string; readonly name: string } | null;
  readonly onAsk: (text: string) => void;
}

export function FilterBar({ text, what, fields, example, allProjects, problem, meant, onAsk }: FilterBarProps) {
  const typed = useSignal(text);
  const caret = useSignal(text.length);
  const chosen = useSignal(-1);
  const isOpen = useSignal(false);
  const input = useRef<HTMLInputElement>(null);
  const listId = useId();
  const values = useValues(what, allProjects);
  useEffect(() => {
    typed.value = text;
  }, [text]);

  const found = isOpen.value ? suggestions(typed.value, caret.value, fields, values.of) : [];
  const isShown = found.length > 0;
  const take = (suggestion: Suggestion): void => {
    const rest = typed.value.slice(suggestion.to);
    typed.value = typed.value.slice(0, suggestion.from) + suggestion.text + rest.trimStart();
    caret.value = suggestion.from + suggestion.text.length;
    chosen.value = -1;
    requestAnimationFrame(() => {
      input.current?.focus();
      input.current?.setSelectionRange(caret.value, caret.value);
    });
  };
  const askNow = (): void => {
    isOpen.value = false;
    onAsk(typed.value.trim());
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      isOpen.value = true;
      const step = event.key === "ArrowDown" ? 1 : -1;
      chosen.value = Math.max(-1, Math.min(found.length - 1, chosen.value + step));
    } else if ((event.key === "Tab" || event.key === "Enter") && isShown && chosen.value >= 0) {
      event.preventDefault();
      take(found[chosen.value]!);
    } else if (event.key === "Tab" && isShown && found.length === 1 && !event.shiftKey) {
      event.preventDefault();
      take(found[0]!);
    } else if (event.key === "Enter") askNow();
    else if (event.key === "Escape") {
      isOpen.value = false;
      input.current?.blur();
    }
  };
  const onInput = (): void => {
    typed.value = input.current!.value;
    caret.value = input.current!.selectionStart ?? typed.value.length;
    isOpen.value = true;
    chosen.value = -1;
  };
  return (
    <form
      class="filter"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        askNow();
      }}
    >
      <div class="combobox">
        <input
          ref={input}
          id="filter"
          type="text"
          role="combobox"
          aria-label="Filter"
          aria-expanded={isShown}
          aria-controls={listId}
          aria-autocomplete="list"
          aria-activedescendant={isShown && chosen.value >= 0 ? `${listId}-${chosen.value}` : undefined}
          aria-invalid={problem !== null}
          aria-describedby={problem === null ? undefined : `${listId}-problem`}
          autocomplete="off"
          spellcheck={false}
          placeholder={example}
          value={typed.value}
          onInput={onInput}
          onKeyDown={onKeyDown}
          onFocus={() => (isOpen.value = true)}
          onBlur={() => (isOpen.value = false)}
        />
        <ul id={listId} role="listbox" aria-label="Suggestions" class="suggestions" hidden={!isShown}>
          {found.map((suggestion, index) => (
            <li
              key={suggestion.text}
              id={`${listId}-${index}`}
              role="option"
              aria-selected={index === chosen.value}
              onMouseDown={(event) => {
                event.preventDefault();
                take(suggestion);
              }}
            >
              <code>{suggestion.text}</code> <span class="hint">{suggestion.hint}</span>
            </li>
          ))}
        </ul>
      </div>
      <ConditionMaker
        fields={fields}
        values={values}
        onMake={(condition) => {
          typed.value = narrowed(typed.value.trim(), condition);
          askNow();
        }}
      />
      <button type="submit" class="primary"><Icon name="search" /> Search</button>
      {problem !== null && (
        <p id={`${listId}-problem`} class="problem" role="alert">
          {problem}
          {meant !== null && (
            <>
              {" Did you mean "}
              <button
                type="button"
                class="plain link"
                onClick={() => {
                  typed.value = typed.value.replace(meant.typed, meant.name);
                  askNow();
                }}
              >
                {meant.name}
              </button>
              {"?"}
            </>
          )}
        </p>
      )}
    </form>
  );
}

interface Values {
  of: (field: Field) => readonly string[];
  load: (field: Field) => void;
}

/** Values that items have, the commonest first; read when a field is first asked for. */
function useValues(what: string, allProjects: boolean): Values {
  const known = useSignal<Readonly<Record<string, readonly string[]>>>({});
  const asked = useRef(new Set<string>());
  useEffect(() => {
    asked.current.clear();
    known.value = {};
  }, [what, allProjects]);
  const load = (field: Field): void => {
    if (asked.current.has(field.name) || field.kind !== "text") return;
    asked.current.add(field.name);
    get<CountsAnswer>("/fleetlight/query/counts", { what, by: field.name, all_projects: allProjects })
      .then(({ body }) => {
        const groups = [...body.groups].sort((left, right) => right.count - left.count).slice(0, MOST_VALUES);
        const values = groups.flatMap((group) => (typeof group.by[field.name] === "string" ? [String(group.by[field.name])] : []));
        known.value = { ...known.value, [field.name]: values };
      })
      .catch(() => undefined); // then nothing is suggested
  };
  return {
    load,
    of: (field) => {
      load(field);
      return known.value[field.name] ?? [];
    },
  };
}

const OPERATOR_NAMES: Readonly<Record<string, string>> = { "=*": "is like", "==": "is", "!=": "is not" };

/** Drop-downs that write a condition, so that the language is learned by looking. */
function ConditionMaker({ fields, values, onMake }: { fields: readonly Field[]; values: Values; onMake: (condition: string) => void }) {
  const name = useSignal("");
  const operator = useSignal("==");
  const value = useSignal("");
  const valuesId = useId();
  const field = fields.find((each) => each.name === name.value);
  const condition = field === undefined ? null : written(field, operator.value, value.value);
  return (
    <details class="maker">
      <summary>Add a condition</summary>
      <div class="panel">
        <label>
          Field
          <select
            value={name.value}
            onChange={(event) => {
              name.value = event.currentTarget.value;
              const picked = fields.find((each) => each.name === name.value);
              if (picked !== undefined) values.load(picked);
            }}
          >
            <option value="">choose</option>
            {fields.map((each) => (
              <option key={each.name} value={each.name}>{labelOf(each)} ({each.name})</option>
            ))}
          </select>
        </label>
        {field !== undefined && field.kind !== "bool" && (
          <label>
            Comparison
            <select value={operator.value} onChange={(event) => (operator.value = event.currentTarget.value)}>
              {operatorsOf(field).map((each) => (
                <option key={each} value={each}>{OPERATOR_NAMES[each] ?? each}</option>
              ))}
            </select>
          </label>
        )}
        <label>
          Value
          <input list={valuesId} value={value.value} onInput={(event) => (value.value = event.currentTarget.value)} />
          <datalist id={valuesId}>
            {field !== undefined && (isTime(field) ? TIMES : values.of(field)).map((each) => <option key={each} value={each} />)}
          </datalist>
        </label>
        <output><code>{condition ?? "…"}</code></output>
        <button type="button" disabled={condition === null} onClick={() => condition !== null && onMake(condition)}>
          Add
        </button>
      </div>
    </details>
  );
}

/** The condition that three fields of the form say; null while they say none. */
export function written(field: Field, operator: string, value: string): string | null {
  if (field.kind === "bool") return isEqual(field.name, !/^(no|false|0)$/i.test(value.trim()));
  if (value === "") return null;
  const isText = field.kind === "text" || field.kind === "other";
  if (!isText && /^[+-]?\d+$/.test(value.trim())) return `${field.name} ${operator} ${value.trim()}`;
  if (!isText && !isTime(field)) return null;
  if (operator === "=~" || operator === "!~") return value.includes("/") ? null : `${field.name} ${operator} m/${value}/`;
  const text = quoted(value);
  return text === null ? null : `${field.name} ${operator} ${text}`;
}
