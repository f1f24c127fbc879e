import { type DescMessage, getOption, hasOption } from "@bufbuild/protobuf";
import { id as idOption } from "../gen/zgame/options_pb.js";

const ids = new WeakMap<DescMessage, number>();

/** The message id of a type: its option (zgame.id). Throws for a type that has none. */
export function messageId(schema: DescMessage): number {
  let id = ids.get(schema);
  if (id === undefined) {
    id = hasOption(schema, idOption) ? getOption(schema, idOption) : 0;
    if (id === 0) throw new TypeError(`zgame: ${schema.typeName} has no option (zgame.id)`);
    ids.set(schema, id);
  }
  return id;
}
