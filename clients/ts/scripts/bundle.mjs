// Bundles a page's script with this client: the same input gives the same bytes, so that bundles are committed and CI
// compares them.
//
//   node clients/ts/scripts/bundle.mjs ENTRY OUT           bundles ENTRY into the file OUT
//   node clients/ts/scripts/bundle.mjs ENTRY DIR/          the same into DIR/, and copies the page's .html, .css and .svg there
//   node clients/ts/scripts/bundle.mjs ENTRY OUT --check   writes nothing and exits with 1 when something is out of date
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, extname, join, resolve } from "node:path";
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

const files = new Map(); // path -> text
if (out.endsWith("/")) {
  files.set(join(out, basename(entry, ".ts") + ".js"), result.outputFiles[0].text);
  for (const f of readdirSync(dirname(entry)).sort()) {
    if ([".html", ".css", ".svg"].includes(extname(f))) files.set(join(out, f), readFileSync(join(dirname(entry), f), "utf8"));
  }
} else {
  files.set(out, result.outputFiles[0].text);
}

for (const [path, text] of files) {
  if (flag !== "--check") {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
    console.log(`${path}: ${text.length} characters`);
  } else if (!existsSync(path) || readFileSync(path, "utf8") !== text) {
    console.error(`${path} is out of date: run node clients/ts/scripts/bundle.mjs ${entry} ${out} and commit`);
    process.exitCode = 1;
  }
}
