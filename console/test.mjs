// Run the client's unit tests, tests/*.test.ts, in Node's own runner.
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import path from "node:path";

const here = import.meta.dirname;
const tests = readdirSync(path.join(here, "tests")).filter((name) => /\.test\.tsx?$/.test(name));
const outdir = mkdtempSync(path.join(here, "node_modules", ".tests-"));
try {
  const { metafile } = await build({
    entryPoints: tests.map((name) => path.join(here, "tests", name)),
    outdir,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    format: "esm",
    platform: "node",
    jsx: "automatic",
    jsxImportSource: "preact",
    sourcemap: "inline",
    metafile: true,
    logLevel: "warning",
  });
  const bundles = Object.keys(metafile.outputs).map((file) => path.resolve(file));
  const ran = spawnSync(process.execPath, ["--enable-source-maps", "--test", ...bundles], { stdio: "inherit" });
  process.exitCode = ran.status ?? 1;
} finally {
  rmSync(outdir, { recursive: true, force: true });
}
