// Bundles a page's script with this client: the same input gives the same bytes, so that bundles are committed and CI
// compares them.
//
//   node clients/ts/scripts/bundle.mjs ENTRY OUT           writes OUT
//   node clients/ts/scripts/bundle.mjs ENTRY OUT --check   writes nothing and exits with 1 when OUT is out of date
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const ts = join(dirname(fileURLToPath(import.meta.url)), "..");
const [entry, out, flag] = process.argv.slice(2);
if (!entry || !out || (flag && flag !== "--check")) {
  console.error("usage: node clients/ts/scripts/bundle.mjs ENTRY OUT [--check]");
  process.exit(2);
}
const result = await build({
  entryPoints: [resolve(entry)],
  // Paths in the output, if any, are relative to the repository, whoever calls from wherever.
  absWorkingDir: join(ts, "../.."),
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  write: false,
  logLevel: "warning",
  alias: { "@zgame/client/gen": join(ts, "gen"), "@zgame/client": join(ts, "src/index.ts") },
  nodePaths: [join(ts, "node_modules")],
  tsconfigRaw: { compilerOptions: { target: "ES2022", verbatimModuleSyntax: true } },
});
const text = result.outputFiles[0].text;
if (flag === "--check") {
  if (!existsSync(out) || readFileSync(out, "utf8") !== text) {
    console.error(`${out} is out of date with ${entry}: run node clients/ts/scripts/bundle.mjs ${entry} ${out} and commit`);
    process.exit(1);
  }
} else {
  mkdirSync(dirname(out), { recursive: true });
  writeFileSync(out, text);
  console.log(`${out}: ${text.length} characters`);
}
