/** What is always seen where there is room, and behind a word on a phone. */

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";

// As style.css has it.
const narrow = matchMedia("(max-width: 50rem)");
export const isNarrow = signal(narrow.matches);
narrow.addEventListener("change", () => {
  isNarrow.value = narrow.matches;
});

export function Fold({ title, children }: { title: string; children: ComponentChildren }) {
  if (!isNarrow.value) return <>{children}</>;
  return (
    <details class="fold">
      <summary>{title}</summary>
      {children}
    </details>
  );
}
