/** The console's own icons, beside words or in buttons that have a name. */

const PATHS = {
  mark: "M2 3.5h12M2 8h8.5M2 12.5h5",
  ok: "M3 8.5l3.5 3.5L13 4.5",
  partial: "M8 2l6.5 11.5h-13zM8 6.5v3M8 11.5h.1",
  down: "M4 4l8 8M12 4l-8 8",
  uncertain: "M5.5 5.5a2.5 2.5 0 1 1 3.5 2.3c-.7.3-1 .7-1 1.7M8 12.5h.1",
  behind: "M3.5 8h.1M8 8h.1M12.5 8h.1",
  disabled: "M5.5 3.5v9M10.5 3.5v9",
  menu: "M2 4h12M2 8h12M2 12h12",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 0 0 0-9M10.5 10.5L14 14",
  refresh: "M13 8a5 5 0 1 1-1.5-3.5M13 2v3h-3",
  columns: "M2.5 3h11v10h-11zM6 3v10M10 3v10",
  star: "M8 2l1.8 3.9l4.2.5l-3.1 2.9l.8 4.2L8 11.4l-3.7 2.1l.8-4.2L2 6.4l4.2-.5z",
  download: "M8 2v8M5 7l3 3l3-3M2.5 13.5h11",
  many: "M2.5 2.5h8v8h-8zM5.5 13.5h8v-8",
  clock: "M8 2a6 6 0 1 0 0 12a6 6 0 0 0 0-12M8 4.5V8l2.5 1.5",
  past: "M3 8a5 5 0 1 0 1.5-3.5M3 2v3h3M8 5v3l2 1.5",
  person: "M8 2.5a2.5 2.5 0 1 0 0 5a2.5 2.5 0 0 0 0-5M3 14c0-3 2-4.5 5-4.5s5 1.5 5 4.5",
  plus: "M8 3v10M3 8h10",
  live: "M8 6.5a1.5 1.5 0 1 0 0 3a1.5 1.5 0 0 0 0-3M4.5 11.5a5 5 0 0 1 0-7M11.5 4.5a5 5 0 0 1 0 7",
  paused: "M5.5 3.5v9M10.5 3.5v9",
  play: "M5 3l7.5 5L5 13z",
  waiting: "M3.5 8h.1M8 8h.1M12.5 8h.1",
  close: "M4 4l8 8M12 4l-8 8",
  left: "M13 8H3M7 4L3 8l4 4",
  right: "M3 8h10M9 4l4 4l-4 4",
  system: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12",
  light: "M8 5a3 3 0 1 0 0 6a3 3 0 0 0 0-6M8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M3.4 12.6l.7-.7M11.9 4.1l.7-.7",
  dark: "M13 9.5A5.5 5.5 0 1 1 6.5 3a4.5 4.5 0 0 0 6.5 6.5",
  keys: "M1.5 4h13v8h-13zM4 6.5h.1M6.7 6.5h.1M9.3 6.5h.1M12 6.5h.1M5 9.5h6",
} as const;

export function Icon({ name }: { name: keyof typeof PATHS }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d={PATHS[name]} /></svg>
  );
}
