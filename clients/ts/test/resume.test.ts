import assert from "node:assert/strict";
import { test } from "node:test";
import { fromBinary } from "@bufbuild/protobuf";
import { Code, codeName, type Lost, Outcome, ZgameError } from "../src/index.js";
import { type Ack, type Frame, ResumeRefusal } from "../gen/zgame/v1/wire_pb.js";
import { LineSchema, SaidSchema, SaySchema } from "./gen/chat/chat_pb.js";
import { type Peer, type Server, Stream, withClient } from "./server.js";

const resumable = (s: Server) => {
  s.welcome = { ...s.welcome, resume: "token 1", resumeWindowMs: 30_000 };
};
const resumed = (s: Server, token: string) => {
  s.welcome = { ...s.welcome, resumed: true, resume: token };
};

async function ack(peer: Peer): Promise<Ack> {
  const f = await peer.frames.next("an Ack");
  const c = f.control?.control;
  assert.ok(c?.case === "ack", JSON.stringify(f, (_, v: unknown) => (typeof v === "bigint" ? String(v) : v)));
  return c.value;
}

/** The next frame that is no Ack. */
const request = (peer: Peer): Promise<Frame> => peer.frames.until((f) => f.control === undefined, "a request");

test("what is in flight goes on over the next connection, and what has come is acknowledged", () => withClient(async ({ server, client, peer, sockets }) => {
  assert.deepEqual([peer.hello?.resumeWindowMs, peer.hello?.resume], [3_600_000, ""]);
  assert.deepEqual([(await ack(peer)).push, client.session?.resumed], [0n, false]);
  const got = new Stream<bigint>();
  client.on(LineSchema, (l) => got.put(l.seq));
  client.onLost(() => assert.fail("nothing is lost"));
  const asked = [1, 2, 3].map((n) => client.request(SaySchema, { text: String(n) }, SaidSchema));
  const first = await request(peer);
  peer.push(LineSchema, { seq: 1n }, 1n);
  peer.push(LineSchema, { seq: 2n }, 2n);
  assert.deepEqual([await got.next(), await got.next()], [1n, 2n]);
  peer.respond(first, SaidSchema, { seq: 1n });
  assert.equal((await asked[0])?.seq, 1n);
  for (let a = await peer.frames.next("an Ack"); ; a = await peer.frames.next("an Ack")) {
    const c = a.control?.control;
    if (c?.case === "ack" && c.value.push === 2n && c.value.response === first.seq) break;
  }
  resumed(server, "token 2");
  peer.socket.terminate();
  let next = await server.peers.next("a connection");
  assert.deepEqual([next.hello?.resume, next.hello?.lastPush, next.hello?.token], ["token 1", 2n, "ann"]);
  assert.equal((await ack(next)).push, 2n);
  for (const n of [2n, 3n]) {
    const f = await request(next);
    assert.deepEqual([f.seq, fromBinary(SaySchema, f.body).text], [first.seq + n - 1n, String(n)]);
    if (n === 3n) next.respond(f, SaidSchema, { seq: n });
  }
  assert.equal((await asked[2])?.seq, 3n);
  next.push(LineSchema, { seq: 3n }, 3n);
  assert.equal(await got.next(), 3n);
  // And once more, with the token of now.
  next.socket.terminate();
  next = await server.peers.next("a connection");
  assert.deepEqual([next.hello?.resume, next.hello?.lastPush], ["token 2", 3n]);
  next.respond(await request(next), SaidSchema, { seq: 2n });
  assert.equal((await asked[1])?.seq, 2n);
  assert.equal(sockets.most, 1);
  assert.equal(client.session?.resumed, true);
}, {}, resumable));

test("a gap of the session comes before what is kept", () => withClient(async ({ server, client, peer }) => {
  const got = new Stream<string>();
  client.on(LineSchema, (l) => got.put(`push ${l.seq}`));
  client.onGap((g) => got.put(`gap ${g.first} to ${g.last}`));
  peer.push(LineSchema, { seq: 1n }, 1n);
  await got.next();
  resumed(server, "token 2");
  peer.socket.terminate();
  const next = await server.peers.next("a connection");
  next.control({ case: "gap", value: { first: 2n, last: 7n } });
  next.push(LineSchema, { seq: 8n }, 8n);
  for (const want of ["gap 2 to 7", "push 8"]) assert.equal(await got.next(want), want);
  next.control({ case: "gap", value: { first: 9n, last: 9n } });
  await got.next("a gap");
  next.socket.terminate();
  assert.equal((await server.peers.next("a connection")).hello?.lastPush, 9n);
}, {}, resumable));

test("a session that is over is told of, and the client goes on with a new one", () => withClient(async ({ server, client, peer }) => {
  const lost = new Stream<Lost>();
  client.onLost((l) => lost.put(l));
  peer.push(LineSchema, {}, 4n);
  const asked = client.request(SaySchema, {}, SaidSchema);
  asked.catch(() => {});
  await request(peer);
  server.welcome = { ...server.welcome, session: 6n, resume: "another", refused: ResumeRefusal.EXPIRED };
  peer.socket.terminate();
  const l = await lost.next("the end of the session");
  assert.deepEqual([l.why, l.session?.id, l.lastPush], ["expired", 5n, 4n]);
  await assert.rejects(asked, (e) => e instanceof ZgameError && codeName(e.code) === codeName(Code.UNAVAILABLE) && e.outcome === Outcome.UNKNOWN);
  const next = await server.peers.next("a connection");
  assert.equal((await ack(next)).push, 0n);
  // A code that ends the session is no reason to ask for it.
  next.closing(3009);
  assert.equal((await lost.next("the end")).why, "ended");
  assert.deepEqual([(await server.peers.next("a connection")).hello?.resume], [""]);
}, {}, resumable));

test("codes after which the session is asked for", () => withClient(async ({ server, peer }) => {
  resumed(server, "token 1");
  let p = peer;
  for (const code of [3001, 3003, 3004, 3006, 3008, 1011]) {
    p.closing(code);
    p = await server.peers.next("a connection");
    assert.equal(p.hello?.resume, "token 1", String(code));
  }
}, {}, resumable));

test("a token that the gate does not take is asked for once more", () => {
  let asked = 0;
  return withClient(async ({ server, peer, states }) => {
    server.mute = true;
    peer.socket.terminate();
    for (let i = 0; i < 2; i++) (await server.peers.next("a connection")).closing(3501);
    const s = await states.until((s) => s.phase === "closed", "the end");
    assert.deepEqual([s.reason?.code, asked], [3501, 3]);
  }, { token: () => `token ${++asked}` }, resumable);
});

test("without resume, the session ends with its connection", () => withClient(async ({ server, client, peer }) => {
  assert.equal(peer.hello?.resumeWindowMs, 0);
  client.onLost(() => assert.fail("nothing that was there is lost"));
  peer.socket.terminate();
  assert.equal((await server.peers.next("a connection")).hello?.resume, "");
}, { resumeWindowMs: 0 }, resumable));
