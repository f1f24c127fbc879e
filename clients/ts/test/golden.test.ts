// Golden frames hold this client and the server equal: the file is the Go codec's.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { type DescMessage, fromBinary, fromJson, type JsonValue, toBinary, toJson } from "@bufbuild/protobuf";
import { BatchSchema, PacketSchema } from "../gen/zgame/v1/wire_pb.js";

interface Golden {
  name: string;
  type: string;
  hex: string;
  json: JsonValue;
}

const goldens = JSON.parse(readFileSync("../../zmsg/testdata/golden/golden.json", "utf8")) as Golden[];
const schemas: Record<string, DescMessage> = { "zgame.v1.Packet": PacketSchema, "zgame.v1.Batch": BatchSchema };

test("there are golden frames", () => assert.ok(goldens.length >= 20));

for (const g of goldens) {
  test(`golden ${g.type}: ${g.name}`, () => {
    const schema = schemas[g.type];
    assert.ok(schema, `an unknown type ${g.type}`);
    const message = fromBinary(schema, Buffer.from(g.hex, "hex"));
    assert.deepEqual(toJson(schema, message), g.json);
    assert.equal(Buffer.from(toBinary(schema, message)).toString("hex"), g.hex);
    assert.equal(Buffer.from(toBinary(schema, fromJson(schema, g.json))).toString("hex"), g.hex);
  });
}
