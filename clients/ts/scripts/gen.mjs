// Generates TypeScript from the .proto files, for this package and for the pages that use it.
//
//   node clients/ts/scripts/gen.mjs           writes what is committed
//   node clients/ts/scripts/gen.mjs --check   writes nothing and exits with 1 when something is out of date
//   node clients/ts/scripts/gen.mjs OUT DIR FILE.proto...
//                                             writes TypeScript of a protocol of your own, found in DIR, to OUT
//
// No protoc: cmd/protogen compiles the .proto files and writes the CodeGeneratorRequest, protoc-gen-es answers it.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { CodeGeneratorRequestSchema, CodeGeneratorResponseSchema } from "@bufbuild/protobuf/wkt";

const ts = join(dirname(fileURLToPath(import.meta.url)), "..");
const root = join(ts, "../..");

// What outside this package is generated imports the framework's own types from it.
const fromPackage = "rewrite_imports=./zgame/**/*_pb.js:@zgame/client/gen";

const [out, include, ...files] = process.argv.slice(2).filter((a) => a !== "--check");
if (out && !files.length) {
  console.error("usage: node gen.mjs [--check] | node gen.mjs OUT DIR FILE.proto...");
  process.exit(2);
}
const targets = out ? [{ out: resolve(out), include: resolve(include), files, parameter: fromPackage }] : [
  { out: "clients/ts/gen", include: "proto", files: ["zgame/options.proto", "zgame/v1/wire.proto"] },
  { out: "clients/ts/test/gen", include: "proto,examples/chat/proto", files: ["chat/chat.proto"], parameter: fromPackage },
  { // what internal/esgen is compared with
    out: "internal/esgen/testdata/want", include: "proto,internal/esgen/testdata", parameter: fromPackage,
    files: ["demo/all.proto", "demo/other.proto", "demo/more.proto", "demo/names.proto", "demo/opts.proto"],
  },
  { out: "examples/web/gen", include: "proto,examples/chat/proto", files: ["chat/chat.proto"], parameter: fromPackage },
  { out: "examples/web/gen", include: "proto,examples/friend/proto", files: ["friend/friend.proto"], parameter: fromPackage },
  { out: "examples/game/web/gen", include: "proto,examples/game/proto", files: ["game/game.proto"], parameter: fromPackage },
];

const check = process.argv.includes("--check");
const tmp = mkdtempSync(join(tmpdir(), "zgame-gen-"));
let stale = 0;
try {
  for (const t of targets) {
    const descriptors = join(tmp, "request");
    execFileSync("go", ["run", "./cmd/protogen", "-descriptors", descriptors, "-out", tmp, "-module", "", "-I", t.include, ...t.files],
      { cwd: root, stdio: ["ignore", "inherit", "inherit"] });
    const request = fromBinary(CodeGeneratorRequestSchema, readFileSync(descriptors));
    request.parameter = ["target=ts", "import_extension=js", t.parameter].filter(Boolean).join(",");
    const answer = execFileSync(process.execPath, [join(ts, "node_modules/@bufbuild/protoc-gen-es/bin/protoc-gen-es")],
      { input: toBinary(CodeGeneratorRequestSchema, create(CodeGeneratorRequestSchema, request)), maxBuffer: 64 << 20 });
    const response = fromBinary(CodeGeneratorResponseSchema, answer);
    if (response.error) throw new Error(response.error);
    for (const f of response.file) {
      const path = resolve(root, t.out, f.name);
      if (!check) {
        mkdirSync(dirname(path), { recursive: true });
        writeFileSync(path, f.content);
      } else if (!existsSync(path) || readFileSync(path, "utf8") !== f.content) {
        console.error(`${relative(root, path)} is out of date with its .proto file: run node clients/ts/scripts/gen.mjs and commit`);
        stale++;
      }
    }
  }
} finally {
  rmSync(tmp, { recursive: true });
}
process.exitCode = stale ? 1 : 0;
