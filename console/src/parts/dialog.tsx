/** A dialog above the page; Escape and a click beside it close it. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { printable } from "./glyphs";
import { Icon } from "./icons";

export interface DialogProps {
  /** It may have a name in it that a tenant chose. */
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
  /** At the side, for what is read beside the list. */
  readonly isAside?: boolean;
}

export function Dialog({ title, onClose, children, isAside = false }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  // Before the next key comes, which is meant for it.
  useLayoutEffect(() => {
    const dialog = element.current!;
    if (isAside) dialog.show();
    else dialog.showModal();
    return () => dialog.close();
  }, []);
  return (
    <dialog
      ref={element}
      class={isAside ? "aside" : undefined}
      aria-label={printable(title)}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === element.current && !isAside && onClose()}
    >
      <header>
        <h2><bdi>{printable(title)}</bdi></h2>
        <button type="button" class="plain" aria-label="Close" onClick={onClose}><Icon name="close" /></button>
      </header>
      <div class="content">{children}</div>
    </dialog>
  );
}
