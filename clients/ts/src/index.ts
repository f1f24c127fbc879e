// The TypeScript client of a zgame gate, for browsers and Node.js.
//
//   const z = await connect("ws://localhost:7000/ws", { token: "ann" });
//   z.on(LineSchema, (line) => show(line));
//   const joined = await z.request(JoinSchema, { room: "go" }, JoinedSchema);

export { Client, connect } from "./client.js";
export type { Options, RequestOptions, SocketConstructor, SocketLike } from "./client.js";
export { Code, codeName, Outcome, retryable, ZgameError } from "./errors.js";
export { backoff, reconnects, reconnectable } from "./policy.js";
export { messageId } from "./ids.js";
export type { Gap, Lost, Phase, Reason, ReasonKind, Refused, Session, State, Warning } from "./state.js";
