/** The last hour, as lines: what the API has measured itself, or a Prometheus of all its processes. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { momentOf } from "../query/times";
import { timeStyle } from "../state/preferences";
import { usePolled } from "./polled";

interface SeriesAnswer {
  readonly step_s: number;
  readonly from: string;
  /** Why Prometheus was not to be had. */
  readonly problem: string | null;
  readonly series: Readonly<Record<string, readonly (number | null)[]>>;
}

const REFRESH_MS = 10_000;
const HEIGHT_PX = 110;
const TITLES: Readonly<Record<string, string>> = {
  age_max_s: "Age of the oldest cell in the index (s)",
  lag_total: "Changes not in the index yet",
  jobs_waiting: "Jobs waiting",
  requests_per_s: "Requests per second",
  latency_p50_ms: "Latency of requests, median (ms)",
  latency_p99_ms: "Latency of requests, 99 of 100 (ms)",
  route_index: "Cells per second answered from the index",
  route_live: "Cells per second that were asked themselves",
  messages_per_s: "Messages per second",
};

export function Plots({ names }: { names: readonly string[] }) {
  const { answer } = usePolled<SeriesAnswer>("/fleetlight/series", REFRESH_MS);
  const found = answer.value?.body;
  if (found === undefined) return null;
  return (
    <div class="plots">
      {found.problem !== null && <p class="problem">Only of the process that answers: {found.problem}</p>}
      {names.map((name) => {
        const values = found.series[name];
        return values === undefined ? null : <Plot key={name} title={TITLES[name] ?? name} values={values} from={momentOf(found.from)} stepS={found.step_s} />;
      })}
    </div>
  );
}

function rounded(value: number): string {
  return value.toLocaleString("en", { maximumFractionDigits: 1 });
}

interface PlotProps {
  readonly title: string;
  readonly values: readonly (number | null)[];
  readonly from: number;
  readonly stepS: number;
}

function Plot({ title, values, from, stepS }: PlotProps) {
  const element = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const data: uPlot.AlignedData = [values.map((_, index) => from / 1000 + index * stepS), [...values]];
  useEffect(() => {
    const parent = element.current!;
    // Asked each time it is drawn: the colours may have become light or dark.
    const colour = (): string => getComputedStyle(parent).color;
    const axis = { stroke: colour, grid: { stroke: "rgb(128 128 128 / 0.25)" }, size: 56 };
    const options: uPlot.Options = {
      width: parent.clientWidth,
      height: HEIGHT_PX,
      legend: { show: false },
      cursor: { show: false },
      padding: [8, 20, 0, 0],
      tzDate: (seconds) => (timeStyle.value === "utc" ? uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : new Date(seconds * 1000)),
      scales: { y: { range: (_, low, high) => [Math.min(0, low), Math.max(1, high * 1.1)] } },
      series: [{}, { stroke: colour, width: 1.5 }],
      axes: [{ ...axis, size: 28 }, axis],
    };
    plot.current = new uPlot(options, data, parent);
    return () => plot.current?.destroy();
  }, [timeStyle.value]);
  useEffect(() => plot.current?.setData(data));
  const known = values.filter((value): value is number => value !== null);
  const newest = known.at(-1);
  return (
    <figure>
      <figcaption>{title}: <strong>{newest === undefined ? "–" : rounded(newest)}</strong></figcaption>
      <div ref={element} role="img" aria-label={`${title} in the last hour: at most ${known.length === 0 ? "unknown" : rounded(Math.max(...known))}`} />
    </figure>
  );
}
