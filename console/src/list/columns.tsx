/** Which fields are columns, and in which order. */

import { useSignal } from "@preact/signals";
import type { Field } from "../api/types";
import { Icon } from "../parts/icons";
import { labelOf } from "../query/labels";
import { Dialog } from "../parts/dialog";

export interface ColumnsProps {
  readonly fields: readonly Field[];
  readonly chosen: readonly string[];
  readonly usual: readonly string[];
  readonly onChoose: (names: readonly string[]) => void;
}

export function Columns({ fields, chosen, usual, onChoose }: ColumnsProps) {
  const isOpen = useSignal(false);
  const wanted = useSignal("");
  const close = (): void => {
    isOpen.value = false;
  };
  const move = (name: string, step: number): void => {
    const names = chosen.filter((each) => each !== name);
    names.splice(Math.max(0, chosen.indexOf(name) + step), 0, name);
    onChoose(names);
  };
  const wordOf = (name: string): string => {
    const field = fields.find((each) => each.name === name);
    return field === undefined ? name : labelOf(field);
  };
  const text = wanted.value.toLowerCase();
  const others = fields.filter(
    ({ name, title, doc }) => !chosen.includes(name) && `${name} ${labelOf({ name, title })} ${title} ${doc}`.toLowerCase().includes(text),
  );
  return (
    <>
      <button type="button" onClick={() => (isOpen.value = true)}>
        <Icon name="columns" /> Columns
      </button>
      {isOpen.value && (
        <Dialog title="Columns" onClose={close}>
          <ul class="columns">
            {chosen.map((name, index) => (
              <li key={name}>
                {wordOf(name)} <code class="hint">{name}</code>
                <button type="button" aria-label={`Move ${name} left`} disabled={index === 0} onClick={() => move(name, -1)}>
                  <Icon name="left" />
                </button>
                <button
                  type="button"
                  aria-label={`Move ${name} right`}
                  disabled={index === chosen.length - 1}
                  onClick={() => move(name, 1)}
                >
                  <Icon name="right" />
                </button>
                <button
                  type="button"
                  aria-label={`Remove ${name}`}
                  disabled={chosen.length === 1}
                  onClick={() => onChoose(chosen.filter((each) => each !== name))}
                >
                  <Icon name="close" />
                </button>
              </li>
            ))}
          </ul>
          <p>
            <button type="button" onClick={() => onChoose(usual)}>
              The usual columns
            </button>
          </p>
          <label>
            Add a field
            <input type="search" value={wanted.value} onInput={(event) => (wanted.value = event.currentTarget.value)} />
          </label>
          <ul class="columns offered">
            {others.slice(0, 60).map((field) => (
              <li key={field.name}>
                <button type="button" class="plain link" onClick={() => onChoose([...chosen, field.name])}>
                  {labelOf(field)}
                </button>{" "}
                <code class="hint">{field.name}</code> <span class="hint">{field.doc}</span>
              </li>
            ))}
          </ul>
          {others.length > 60 && <p class="hint">and {others.length - 60} more; type a part of a name</p>}
        </Dialog>
      )}
    </>
  );
}
