import assert from "node:assert/strict";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { Client, Code, codeName, Outcome, type State, type Warning, ZgameError } from "../src/index.js";
import { Gates } from "../src/policy.js";
import { JoinedSchema, JoinSchema, LeaveSchema, LineSchema, MembersSchema, SaidSchema, SaySchema, WhoSchema } from "./gen/chat/chat_pb.js";
import { Counter, Server, Stream, withClient } from "./server.js";

function failure(code: number, outcome: Outcome = Outcome.NOT_EXECUTED) {
  return (e: unknown) => {
    assert.ok(e instanceof ZgameError, String(e));
    assert.deepEqual([codeName(e.code), e.outcome], [codeName(code), outcome], e.message);
    return true;
  };
}

const phase = (p: State["phase"]) => (s: State) => s.phase === p;

test("requests that are made before the connection is there wait for it, bounded, in order", async () => {
  const server = await Server.start();
  const client = new Client(server.url, { token: "ann", minBackoffMs: 1, maxWaiting: 3, WebSocket: new Counter().WebSocket });
  await assert.rejects(client.request(WhoSchema, {}, MembersSchema), failure(Code.UNAVAILABLE)); // nobody connects
  const connected = client.connect();
  const said = ["1", "2", "3"].map((text) => client.request(SaySchema, { text }, SaidSchema, { timeoutMs: 50_000 }));
  await assert.rejects(client.request(WhoSchema, {}, MembersSchema), failure(Code.BUSY));
  assert.throws(() => client.send(LeaveSchema, {}), failure(Code.UNAVAILABLE));
  await connected;
  const peer = await server.peers.next("a connection");
  for (let i = 1n; i <= 3n; i++) {
    const f = await peer.frames.next("a request");
    assert.ok(f.seq === i && f.timeoutMs > 0 && f.timeoutMs <= 50_000, `${f.seq} ${f.timeoutMs}`);
    peer.respond(f, SaidSchema, { seq: i });
  }
  assert.deepEqual((await Promise.all(said)).map((s) => s.seq), [1n, 2n, 3n]);
  // And between two connections.
  server.mute = true;
  peer.socket.terminate();
  await new Promise<void>((done) => client.onState((s) => s.phase === "waiting" && done()));
  const who = client.request(WhoSchema, {}, MembersSchema);
  server.mute = false;
  const next = await server.peers.next("the next connection");
  next.respond(await next.frames.next("a request"), MembersSchema, { members: ["ann"] });
  assert.deepEqual((await who).members, ["ann"]);
  client.close();
  await server.stop();
});

test("what waits ends with its deadline, its caller, the client, or when there will be no connection: it has not run", async () => {
  const server = await Server.start();
  server.mute = true;
  const options = { token: "ann", minBackoffMs: 1, retryFirst: true, WebSocket: new Counter().WebSocket };
  const client = new Client(server.url, options);
  client.connect().catch(() => {});
  await assert.rejects(client.request(WhoSchema, {}, MembersSchema, { timeoutMs: 1 }), failure(Code.TIMEOUT));
  const abort = new AbortController();
  const aborted = client.request(WhoSchema, {}, MembersSchema, { signal: abort.signal });
  abort.abort();
  await assert.rejects(aborted, failure(Code.CANCELLED));
  const cut = client.request(WhoSchema, {}, MembersSchema);
  client.close();
  await assert.rejects(cut, failure(Code.CANCELLED));
  await assert.rejects(client.request(WhoSchema, {}, MembersSchema), failure(Code.UNAVAILABLE));

  const another = await Server.start();
  another.mute = true;
  const refused = new Client(another.url, options);
  refused.connect().catch(() => {});
  const inVain = refused.request(WhoSchema, {}, MembersSchema);
  inVain.catch(() => {});
  (await another.peers.next("its Hello")).closing(3501);
  await assert.rejects(inVain, failure(Code.UNAVAILABLE));

  const impatient = new Client(server.url, { ...options, maxWaiting: 0 });
  impatient.connect().catch(() => {});
  await assert.rejects(impatient.request(WhoSchema, {}, MembersSchema), failure(Code.UNAVAILABLE));
  impatient.close();
  await Promise.all([server.stop(), another.stop()]);
});

test("a request while the gate sends away goes to the next one", async () => {
  const other = await Server.start();
  await withClient(async ({ client, peer, states }) => {
    const first = client.request(WhoSchema, {}, MembersSchema);
    const f = await peer.frames.next("a request");
    peer.control({ case: "goaway", value: { delayMs: 1, address: other.url } });
    for (let taken = true; taken; await new Promise((r) => setTimeout(r, 1))) { // until no new requests are taken
      try {
        client.send(LeaveSchema, {});
      } catch {
        taken = false;
      }
    }
    const second = client.request(JoinSchema, {}, JoinedSchema);
    peer.respond(f, MembersSchema, {});
    await first;
    const there = await other.peers.next("a connection there");
    there.respond(await there.frames.next("the request"), JoinedSchema, {});
    await second;
    await states.until(phase("online"));
  });
  await other.stop();
});

test("which gate comes next", () => {
  const g = new Gates(["a", "b", "c"], () => 0.999);
  const steps: [online: boolean, code: number, url: string, left: number][] = [
    [false, 0, "b", 2], [false, 3005, "c", 1], [false, 0, "a", 0], [false, 0, "b", 0],
    [true, 0, "b", 3], [false, 0, "c", 2], [true, 3008, "c", 3], [true, 3001, "a", 2], [true, 3007, "b", 2], [true, 3006, "b", 3],
  ];
  assert.equal(g.url, "a");
  for (const [online, code, url, left] of steps) {
    g.ended(code, online);
    assert.deepEqual([g.url, g.left], [url, left], `${online} ${code}`);
  }
  const list = ["a", "b", "c", "d"] as const;
  const first = new Set(Array.from({ length: 1000 }, () => new Gates(list).url));
  assert.deepEqual([...first].sort(), [...list], "each is the first of somebody");
  assert.equal(new Gates("x", () => 1).url, "x");
  assert.throws(() => new Gates([]), TypeError);
});

test("a list of gates: the one that answers, back to it, and to another when it goes", async () => {
  const closed = createServer().listen(0, "127.0.0.1");
  await new Promise((done) => closed.once("listening", done));
  const dead = `ws://127.0.0.1:${(closed.address() as AddressInfo).port}`;
  await new Promise((done) => closed.close(done));
  const [a, b] = [await Server.start(), await Server.start()];
  b.welcome = { ...b.welcome, node: "n2" };
  const sockets = new Counter();
  const { random } = Math;
  Math.random = () => 0.999; // the order is the list's
  try {
    const client = new Client([dead, a.url, b.url], { token: "ann", minBackoffMs: 1, maxBackoffMs: 4, WebSocket: sockets.WebSocket });
    const states = new Stream<State>();
    client.onState((s) => states.put(s));
    await client.connect();
    const tried = await states.until(phase("waiting"));
    assert.deepEqual([tried.reason?.kind === "dial" || tried.reason?.kind, tried.attempt, tried.delayMs > 0], [true, 1, true]);
    assert.equal((await states.until(phase("online"))).session?.node, "n1");
    (await a.peers.next("a connection")).socket.terminate(); // the session may be there
    const again = await a.peers.next("the next one");
    assert.equal((await states.until(phase("online"))).session?.node, "n1");
    again.closing(3001);
    const at = await b.peers.next("a connection there");
    assert.equal((await states.until(phase("online"))).session?.node, "n2");
    at.closing(3001);
    await a.peers.next("and back, by way of the dead one");
    assert.equal(sockets.most, 1);
    client.close();

    const none = new Client([dead, dead, dead], { minBackoffMs: 1, maxBackoffMs: 4, WebSocket: sockets.WebSocket });
    const before = sockets.all;
    await assert.rejects(none.connect(), failure(Code.UNAVAILABLE));
    assert.equal(sockets.all - before, 3, "each was tried once");
  } finally {
    Math.random = random;
    await Promise.all([a.stop(), b.stop()]);
  }
});

test("warnings come in order with the pushes", () => withClient(async ({ client, peer }) => {
  const got = new Stream<string>();
  client.on(LineSchema, (l) => got.put(`push ${l.seq}`));
  const stop = client.onWarning((w: Warning) => got.put(`${w.code} ${w.text}`));
  peer.push(LineSchema, { seq: 1n });
  peer.control({ case: "warning", value: { code: 3009, text: "too much" } });
  peer.push(LineSchema, { seq: 2n });
  for (const want of ["push 1", "3009 too much", "push 2"]) assert.equal(await got.next(want), want);
  stop();
  peer.control({ case: "warning", value: { code: 3009 } });
  peer.push(LineSchema, { seq: 3n });
  assert.equal(await got.next("a push"), "push 3");
}));
