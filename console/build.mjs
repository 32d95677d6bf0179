// Build the console's assets into api/console/static: minified, named by their hashes, with a gzip file beside each.
import { build } from "esbuild";
import { mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";

const SOURCE = path.join(import.meta.dirname, "src");
const TARGET = path.join(import.meta.dirname, "..", "api", "console", "static");
const made = `${TARGET}.new`; // the API never sees half of them
const ENTRIES = ["main.tsx", "style.css", "icon.svg"];

rmSync(made, { recursive: true, force: true });
mkdirSync(made, { recursive: true });
const { metafile } = await build({
  entryPoints: ENTRIES.map((name) => path.join(SOURCE, name)),
  outdir: made,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  entryNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  loader: { ".svg": "copy" },
  publicPath: "/console/",
  metafile: true,
  logLevel: "warning",
});

/** src/index.html, with the name that each entry was built under; absolute, since the page has many addresses. */
function page() {
  let html = readFileSync(path.join(SOURCE, "index.html"), "utf8");
  for (const [file, { entryPoint }] of Object.entries(metafile.outputs)) {
    if (entryPoint) html = html.replace(`"${path.basename(entryPoint)}"`, `"/console/${path.basename(file)}"`);
  }
  for (const name of ENTRIES) {
    if (html.includes(`"${name}"`)) throw new Error(`src/index.html names ${name}, which was not built`);
  }
  return html;
}

writeFileSync(path.join(made, "index.html"), page());
let total = 0;
for (const name of readdirSync(made)) {
  const compressed = gzipSync(readFileSync(path.join(made, name)), { level: 9 });
  writeFileSync(path.join(made, `${name}.gz`), compressed);
  total += compressed.length;
}
rmSync(TARGET, { recursive: true, force: true });
renameSync(made, TARGET);
console.log(`The console: ${(total / 1000).toFixed(1)} kB compressed`);
