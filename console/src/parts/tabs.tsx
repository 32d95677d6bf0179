/** Parts of a page, of which the address names the one that is shown. */

import { choose } from "../state/address";

export interface TabsProps<T extends string> {
  readonly names: readonly T[];
  readonly chosen: T;
  readonly titles: Readonly<Record<T, string>>;
}

export function Tabs<T extends string>({ names, chosen, titles }: TabsProps<T>) {
  return (
    <div role="tablist" aria-label="Parts" class="tabs">
      {names.map((name) => (
        <button key={name} type="button" role="tab" aria-selected={name === chosen} onClick={() => choose({ tab: name })}>
          {titles[name]}
        </button>
      ))}
    </div>
  );
}
