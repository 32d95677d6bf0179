/** The pages that there are, in the order of the navigation. */

import type { ComponentChildren } from "preact";
import type { SessionAnswer } from "../api/types";
import { LISTS } from "../list/kinds";
import { BulkPage } from "./bulk";
import { CapacityPage } from "./capacity";
import { ChangesPage } from "./changes";
import { CellsPage } from "./cells";
import { FleetPage } from "./fleet";
import { IndexPage } from "./index_work";
import { InstancePage } from "./instance";
import { ItemPanel } from "./item";
import { ListPage } from "./list";

export interface Page {
  readonly path: string;
  readonly title: string;
  readonly isForAdmins: boolean;
  readonly show: (rest: readonly string[]) => ComponentChildren;
}

export const PAGES: readonly Page[] = [
  { path: "fleet", title: "Fleet", isForAdmins: true, show: () => <FleetPage /> },
  ...LISTS.map((kind) => ({
    path: kind.path,
    title: kind.title,
    isForAdmins: kind.isForAdmins,
    show: ([key]: readonly string[]) =>
      key !== undefined && kind.path === "instances" ? (
        <InstancePage key={key} id={key} />
      ) : (
        <>
          <ListPage kind={kind} />
          <ItemPanel kind={kind} />
        </>
      ),
  })),
  { path: "changes", title: "Changes", isForAdmins: false, show: () => <ChangesPage /> },
  { path: "cells", title: "Cells", isForAdmins: true, show: () => <CellsPage /> },
  { path: "capacity", title: "Capacity", isForAdmins: true, show: () => <CapacityPage /> },
  { path: "index", title: "Index", isForAdmins: true, show: () => <IndexPage /> },
  { path: "bulk", title: "Bulk changes", isForAdmins: false, show: ([id]) => <BulkPage id={id ?? null} /> },
];

export function pagesOf(caller: SessionAnswer): readonly Page[] {
  return PAGES.filter((page) => caller.is_admin || !page.isForAdmins);
}
