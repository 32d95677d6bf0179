/** Parts of a page, of which the address names the one that is shown. Arrow keys go from one to the next. */

import { useRef } from "preact/hooks";
import { choose } from "../state/address";

export interface TabsProps<T extends string> {
  readonly names: readonly T[];
  readonly chosen: T;
  readonly titles: Readonly<Record<T, string>>;
}

export function Tabs<T extends string>({ names, chosen, titles }: TabsProps<T>) {
  const list = useRef<HTMLDivElement>(null);
  const show = (name: T | undefined): void => {
    if (name === undefined) return;
    choose({ tab: name });
    list.current?.querySelector<HTMLElement>(`[data-name="${name}"]`)?.focus();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const at = names.indexOf(chosen);
    const wanted = { ArrowRight: (at + 1) % names.length, ArrowLeft: (at + names.length - 1) % names.length, Home: 0, End: names.length - 1 }[event.key];
    if (wanted === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    show(names[wanted]);
  };
  return (
    <div role="tablist" aria-label="Parts" class="tabs" ref={list} onKeyDown={onKeyDown}>
      {names.map((name) => (
        <button
          key={name}
          type="button"
          role="tab"
          data-name={name}
          aria-selected={name === chosen}
          tabIndex={name === chosen ? 0 : -1}
          onClick={() => show(name)}
        >
          {titles[name]}
        </button>
      ))}
    </div>
  );
}
