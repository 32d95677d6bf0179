/** What is around every page: where one can go, who one is, and what the keys do. */

import { useSignal } from "@preact/signals";
import { Component, type ComponentChildren } from "preact";
import type { SessionAnswer } from "../api/types";
import { type Page, PAGES, pagesOf } from "../pages/pages";
import { address, link, titled } from "../state/address";
import { next, theme } from "../state/preferences";
import { logIn, logOut } from "../state/session";
import { Dialog } from "./dialog";
import { isHelpOpen, isPaletteOpen, PAGE_KEYS } from "./keys";
import { Icon } from "./icons";
import { Palette } from "./palette";

export function Shell({ caller }: { caller: SessionAnswer }) {
  const [path = caller.is_admin ? "fleet" : "instances", ...rest] = address.value.path;
  const page = PAGES.find((each) => each.path === path);
  const isMenuOpen = useSignal(false);
  titled(page?.title ?? "No such page");
  return (
    <>
      <a class="skip" href="#main">Skip to the page</a>
      <nav aria-label="Pages">
        <a class="brand" href={link([])}><Icon name="mark" /> Fleetlight</a>
        <button type="button" class="opener" aria-expanded={isMenuOpen.value} aria-controls="menu" onClick={() => (isMenuOpen.value = !isMenuOpen.value)}>
          <Icon name="menu" /> {page?.title ?? "Pages"}
        </button>
        <ul id="menu" class={isMenuOpen.value ? "open" : undefined} onClick={() => (isMenuOpen.value = false)}>
          {pagesOf(caller).map(({ path: each, title }) => (
            <li key={each}><a href={link([each])} aria-current={each === path ? "page" : undefined}>{title}</a></li>
          ))}
        </ul>
        <Caller caller={caller} />
      </nav>
      <main id="main" tabIndex={-1}>
        <Guard key={path}>{shown(page, rest, caller)}</Guard>
      </main>
      {isHelpOpen.value && <Help />}
      {isPaletteOpen.value && <Palette caller={caller} />}
    </>
  );
}

function shown(page: Page | undefined, rest: readonly string[], caller: SessionAnswer): ComponentChildren {
  if (page === undefined) return <p role="alert">There is no such page.</p>;
  if (page.isForAdmins && !caller.is_admin) return <p role="alert">{page.title} is for administrators.</p>;
  return page.show(rest);
}

function Caller({ caller }: { caller: SessionAnswer }) {
  return (
    <div class="caller">
      {caller.projects.length > 1 ? (
        <label>
          <span class="hidden">Project</span>
          <select value={caller.project?.id} onChange={(event) => void logIn({ project: event.currentTarget.value })}>
            {caller.projects.map((project) => (
              <option key={project.id} value={project.id}>{project.name}</option>
            ))}
          </select>
        </label>
      ) : (
        <span>{caller.project?.name}</span>
      )}
      <span title={caller.is_admin ? "administrator" : "member"}>{caller.user.name}</span>
      <button
        type="button"
        aria-label={`Colours: ${theme.value}`}
        title="Light or dark"
        onClick={() => (theme.value = next(["system", "light", "dark"], theme.value))}
      >
        <Icon name={theme.value} />
      </button>
      <button type="button" title="Keys" aria-label="Keys" onClick={() => (isHelpOpen.value = true)}>
        <Icon name="keys" />
      </button>
      {caller.logins.length > 0 && (
        <button type="button" onClick={() => void logOut()}>
          Log out
        </button>
      )}
    </div>
  );
}

function Help() {
  const keys = [
    ["/", "filter"],
    ["j, k", "next and previous row"],
    ["Enter", "open the row"],
    ["double click", "copy the cell of a table"],
    ["Ctrl-K", "go to any page, instance or action"],
    ...PAGE_KEYS.map(({ key, title }) => [`g ${key}`, title]),
    ["Esc", "close what is open"],
  ];
  return (
    <Dialog title="Keys" onClose={() => (isHelpOpen.value = false)}>
      <dl class="keys">
        {keys.map(([key, meaning]) => (
          <div key={key}>
            <dt><kbd>{key}</kbd></dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}

/** A mistake of a page does not take the others away. */
class Guard extends Component<{ children: ComponentChildren }, { error: Error | null }> {
  override state: { error: Error | null } = { error: null };

  static override getDerivedStateFromError(error: Error): { error: Error } {
    return { error };
  }

  override componentDidCatch(error: Error): void {
    console.error(error);
  }

  override render(): ComponentChildren {
    const { error } = this.state;
    return error === null ? this.props.children : <p role="alert">This page failed: {error.message}</p>;
  }
}
