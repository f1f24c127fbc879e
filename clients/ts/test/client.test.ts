import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { fromBinary } from "@bufbuild/protobuf";
import {
  backoff, Code, codeName, connect, messageId, Outcome, reconnects, type ReasonKind, type State, ZgameError,
} from "../src/index.js";
import { FrameKind, PingSchema } from "../gen/zgame/v1/wire_pb.js";
import {
  JoinedSchema, LeaveSchema, LineSchema, MembersSchema, SaidSchema, SaySchema, WhoSchema,
} from "./gen/chat/chat_pb.js";
import { Counter, type Peer, Server, Stream, withClient } from "./server.js";

function failure(code: number, outcome: Outcome) {
  return (e: unknown) => {
    assert.ok(e instanceof ZgameError, String(e));
    assert.deepEqual([codeName(e.code), e.outcome], [codeName(code), outcome], e.message);
    return true;
  };
}

const phase = (p: State["phase"]) => (s: State) => s.phase === p;

test("login, request, response", () => withClient(async ({ client, peer }) => {
  assert.equal(peer.hello?.token, "ann");
  assert.equal(peer.hello.client, "zclient-ts");
  assert.equal(client.session?.node, "n1");
  assert.equal(client.session.id, 5n);
  const said = client.request(SaySchema, { room: "go", text: "hello" }, SaidSchema, { timeoutMs: 5000 });
  const f = await peer.frames.next("a request");
  assert.deepEqual([f.kind, f.id, f.timeoutMs], [FrameKind.REQUEST, 1005, 5000]);
  assert.equal(fromBinary(SaySchema, f.body).text, "hello");
  peer.respond(f, SaidSchema, { room: "go", seq: 3n });
  assert.equal((await said).seq, 3n);
}));

test("responses", () => withClient(async ({ client, peer }) => {
  const ask = async (answer: { code?: number; outcome?: number; text?: string; id?: number; body?: Uint8Array }) => {
    const r = client.request(SaySchema, {}, SaidSchema);
    r.catch(() => {}); // awaited below
    const { seq } = await peer.frames.next("a request");
    peer.send({ kind: FrameKind.RESPONSE, seq, ...answer });
    return r;
  };
  await assert.rejects(ask({ code: 2, outcome: 1, text: "nobody" }), failure(Code.NO_ROUTE, Outcome.NOT_EXECUTED));
  await assert.rejects(ask({ code: 1000, text: "join first" }), (e) => failure(1000, Outcome.EXECUTED)(e) && (e as ZgameError).text === "join first");
  await assert.rejects(ask({ code: 4, outcome: 9 }), failure(Code.TIMEOUT, Outcome.UNKNOWN));
  await assert.rejects(ask({ id: 1002 }), failure(Code.INTERNAL, Outcome.EXECUTED));
  await assert.rejects(ask({ id: 1006, body: Uint8Array.of(0xff) }), failure(Code.INTERNAL, Outcome.EXECUTED));
  assert.equal((await ask({})).seq, 0n);
}));

test("order of one-way messages and requests", () => withClient(async ({ client, peer }) => {
  const answers: Promise<unknown>[] = [];
  for (let i = 0; i < 50; i++) {
    if (i % 2) client.send(SaySchema, { text: String(i) });
    else answers.push(client.request(SaySchema, { text: String(i) }, SaidSchema));
  }
  for (let i = 0; i < 50; i++) {
    const f = await peer.frames.next("a frame");
    assert.equal(fromBinary(SaySchema, f.body).text, String(i));
    assert.equal(f.seq === 0n, i % 2 === 1);
    if (f.seq) peer.respond(f, SaidSchema, { seq: BigInt(i) });
  }
  assert.equal((await Promise.all(answers)).length, 25);
}));

test("a gap comes between the pushes around it", () => withClient(async ({ client, peer }) => {
  const got = new Stream<string>();
  client.on(LineSchema, (l) => got.put(`push ${l.seq}`));
  const stop = client.onGap((g) => got.put(`gap ${g.type}/${g.zone}/${g.id} ${g.missed}`));
  client.onGap(() => {
    throw new Error("a handler that throws holds up nothing");
  });
  peer.push(LineSchema, { seq: 1n });
  peer.control({ case: "gap", value: { keyType: 2, keyZone: 1, keyId: "go", missed: 3n } });
  peer.push(LineSchema, { seq: 5n });
  for (const want of ["push 1", "gap 2/1/go 3", "push 5"]) assert.equal(await got.next(want), want);
  stop();
  peer.control({ case: "gap", value: {} });
  peer.push(LineSchema, { seq: 6n });
  assert.equal(await got.next("a push"), "push 6");
}));

test("pushes in order, handlers that end and handlers that throw", () => withClient(async ({ client, peer }) => {
  const got = new Stream<bigint>();
  const thrown = new Stream<unknown>();
  const { error, warn } = console;
  console.error = (_: string, e: unknown) => thrown.put(e);
  const end = client.on(LineSchema, () => {
    throw new Error("on purpose");
  });
  client.on(LineSchema, (l) => got.put(l.seq));
  peer.push(LineSchema, { seq: 1n });
  assert.equal(await got.next("a push"), 1n);
  assert.match(String(await thrown.next("the error")), /on purpose/);
  console.error = error;
  end();
  console.warn = () => {};
  peer.send({ kind: FrameKind.PUSH, id: 1000, body: Uint8Array.of(0xff) });
  peer.send({ kind: FrameKind.PUSH, id: 4711 });
  for (let i = 0n; i < 500n; i++) peer.push(LineSchema, { seq: i });
  for (let i = 0n; i < 500n; i++) assert.equal(await got.next("a push"), i);
  console.warn = warn;
}));

const closes: { name: string; end: (p: Peer) => void; again: boolean; kind: ReasonKind; code: number }[] = [
  { name: "shutdown", end: (p) => p.closing(3001), again: true, kind: "closed", code: 3001 },
  { name: "last transient", end: (p) => p.closing(3499), again: true, kind: "closed", code: 3499 },
  { name: "first terminal", end: (p) => p.closing(3500), again: false, kind: "closed", code: 3500 },
  { name: "last terminal", end: (p) => p.closing(3999), again: false, kind: "closed", code: 3999 },
  { name: "application", end: (p) => p.closing(4000), again: false, kind: "closed", code: 4000 },
  { name: "last application", end: (p) => p.closing(4999), again: false, kind: "closed", code: 4999 },
  { name: "close frame alone, terminal", end: (p) => p.socket.close(3501, "x"), again: false, kind: "closed", code: 3501 },
  { name: "close frame alone, transient", end: (p) => p.socket.close(3001, "x"), again: true, kind: "closed", code: 3001 },
  { name: "normal", end: (p) => p.socket.close(1000), again: true, kind: "closed", code: 1000 },
  { name: "going away", end: (p) => p.socket.close(1001), again: true, kind: "closed", code: 1001 },
  { name: "no code", end: (p) => p.socket.close(), again: true, kind: "closed", code: 1005 },
  { name: "cut", end: (p) => p.socket.terminate(), again: true, kind: "lost", code: 0 },
  { name: "rubbish", end: (p) => p.socket.send(Uint8Array.of(0xff)), again: true, kind: "protocol", code: 0 },
  { name: "text", end: (p) => p.socket.send("{}"), again: true, kind: "protocol", code: 0 },
  { name: "second Welcome", end: (p) => p.control({ case: "welcome", value: {} }), again: true, kind: "protocol", code: 0 },
  {
    name: "Closing, then cut",
    end: (p) => {
      p.control({ case: "closing", value: { code: 3503, text: "out" } });
      p.socket.close();
    },
    again: false, kind: "closed", code: 3503,
  },
];
for (const c of closes) {
  test(`closed by the server: ${c.name}`, () => withClient(async ({ client, server, peer, states, sockets }) => {
    await states.until(phase("online"), "online");
    const lost = client.request(WhoSchema, {}, MembersSchema);
    lost.catch(() => {});
    await peer.frames.next("the request");
    c.end(peer);
    const s = await states.next("a state");
    assert.equal(s.phase, c.again ? "waiting" : "closed");
    assert.deepEqual([s.reason?.kind, s.reason?.code], [c.kind, c.code]);
    await assert.rejects(lost, failure(Code.UNAVAILABLE, Outcome.UNKNOWN));
    if (c.again) {
      await states.until(phase("online"), "online again");
      await server.peers.next("a connection");
      client.send(WhoSchema, {});
    } else {
      assert.throws(() => client.send(WhoSchema, {}), failure(Code.UNAVAILABLE, Outcome.NOT_EXECUTED));
    }
    assert.equal(sockets.most, 1);
  }));
}

test("the server's delay is honoured", () => withClient(async ({ peer, states }) => {
  peer.closing(3001, 123);
  const s = await states.until(phase("waiting"));
  assert.deepEqual([s.delayMs, s.attempt], [123, 1]);
  await states.until(phase("online"));
}));

test("a server that is slow to welcome collects no connections", () => withClient(async ({ server, peer, states, sockets }) => {
  await states.until(phase("online"));
  server.mute = true;
  peer.socket.terminate();
  await states.until(phase("waiting"));
  for (let i = 0; i < 10; i++) {
    assert.equal((await states.until(phase("waiting"))).reason?.kind, "handshake");
  }
  server.mute = false;
  await states.until(phase("online"));
  assert.equal(sockets.most, 1);
}, { handshakeTimeoutMs: 200, retryFirst: true }));

test("silence, and the round trip", () => withClient(async ({ client, server, states }) => {
  while (client.rtt === 0) await new Promise((r) => setTimeout(r, 1));
  server.mute = true;
  assert.equal((await states.until(phase("waiting"))).reason?.kind, "silent");
  server.mute = false;
  await states.until(phase("online"));
}, {}, (s) => {
  s.welcome = { ...s.welcome, heartbeatMs: 20, timeoutMs: 1000 };
}));

test("the server's pings are answered", () => withClient(async ({ peer }) => {
  peer.control({ case: "ping", value: { nonce: 9n } });
  const f = await peer.frames.next("a pong");
  assert.deepEqual(f.control?.control.case, "pong");
  assert.equal(f.control?.control.value?.$typeName === "zgame.v1.Pong" && f.control.control.value.nonce, 9n);
}));

test("goaway: requests in flight end, then it goes where it is told", async () => {
  const other = await Server.start();
  await withClient(async ({ client, server, peer, states, sockets }) => {
    const members = client.request(WhoSchema, {}, MembersSchema);
    const f = await peer.frames.next("a request");
    peer.control({ case: "goaway", value: { delayMs: 1, address: other.url, text: "draining" } });
    for (;;) { // until no new requests are taken
      try {
        client.send(LeaveSchema, {});
      } catch (e) {
        failure(Code.UNAVAILABLE, Outcome.NOT_EXECUTED)(e);
        break;
      }
      await new Promise((r) => setTimeout(r, 1));
    }
    peer.respond(f, MembersSchema, { members: ["ann"] });
    assert.deepEqual((await members).members, ["ann"]);
    assert.deepEqual((await states.until(phase("waiting"))).reason, { kind: "goaway", code: 0, text: "draining" });
    const there = await other.peers.next("a connection there");
    await states.until(phase("online"));
    there.socket.terminate(); // from then on it is the configured gate again
    await server.peers.next("a connection here");
    assert.equal(sockets.most, 1);
  });
  await other.stop();
});

test("goaway: a request that never ends does not hold it up", () => withClient(async ({ client, server, peer }) => {
  const r = client.request(WhoSchema, {}, MembersSchema);
  r.catch(() => {});
  await peer.frames.next("a request");
  peer.control({ case: "goaway", value: {} });
  await assert.rejects(r, failure(Code.UNAVAILABLE, Outcome.UNKNOWN));
  await server.peers.next("a connection");
}, { drainTimeoutMs: 10 }));

test("deadline, abort, late responses", () => withClient(async ({ client, peer }) => {
  await assert.rejects(client.request(WhoSchema, {}, MembersSchema, { timeoutMs: 10 }), failure(Code.TIMEOUT, Outcome.UNKNOWN));
  const late = await peer.frames.next("a request");
  const abort = new AbortController();
  const r = client.request(WhoSchema, {}, MembersSchema, { signal: abort.signal });
  r.catch(() => {});
  abort.abort();
  await assert.rejects(r, failure(Code.CANCELLED, Outcome.UNKNOWN));
  await assert.rejects(client.request(WhoSchema, {}, MembersSchema, { signal: abort.signal }), failure(Code.CANCELLED, Outcome.NOT_EXECUTED));
  peer.respond(late, MembersSchema, { members: ["late"] });
  await peer.frames.next("the aborted request");
  const next = client.request(WhoSchema, {}, MembersSchema);
  peer.respond(await peer.frames.next("a request"), MembersSchema, { members: ["in time"] });
  assert.deepEqual((await next).members, ["in time"]);
}));

test("bounds", () => withClient(async ({ client, peer }) => {
  const r = [client.request(WhoSchema, {}, MembersSchema), client.request(WhoSchema, {}, MembersSchema)];
  await assert.rejects(client.request(WhoSchema, {}, MembersSchema), failure(Code.BUSY, Outcome.NOT_EXECUTED));
  client.send(WhoSchema, {}); // one-way is not in flight
  for (let i = 0; i < 2; i++) peer.respond(await peer.frames.next("a request"), MembersSchema, {});
  await Promise.all(r);
  const big = { text: "x".repeat(1000) };
  await assert.rejects(client.request(SaySchema, big, SaidSchema), failure(Code.TOO_LARGE, Outcome.NOT_EXECUTED));
  assert.throws(() => client.send(SaySchema, big), failure(Code.TOO_LARGE, Outcome.NOT_EXECUTED));
  assert.throws(() => client.send(PingSchema, {}), TypeError);
}, {}, (s) => {
  s.welcome = { ...s.welcome, maxInFlight: 2, maxMessage: 1000 };
}));

test("close", () => withClient(async ({ client, peer, states }) => {
  const r = client.request(WhoSchema, {}, MembersSchema);
  r.catch(() => {});
  client.send(LeaveSchema, {});
  client.close();
  client.close();
  await assert.rejects(r, failure(Code.CANCELLED, Outcome.UNKNOWN));
  assert.equal((await states.until(phase("closed"))).reason?.kind, "client");
  assert.equal((await peer.frames.next("the request")).id, 1007);
  assert.equal((await peer.frames.next("what was sent before")).id, 1003);
  assert.equal((await peer.ended.next("the end")).code, 1000);
  await assert.rejects(client.request(WhoSchema, {}, MembersSchema), failure(Code.UNAVAILABLE, Outcome.NOT_EXECUTED));
  await assert.rejects(client.connect(), TypeError);
}));

test("close while waiting", () => withClient(async ({ client, peer, states, sockets }) => {
  peer.closing(3001, 60_000);
  await states.until(phase("waiting"));
  client.close();
  await states.until(phase("closed"));
  assert.equal(sockets.all, 1);
}));

test("connect fails", async () => {
  const { WebSocket } = new Counter();
  const http = createServer((_, r) => r.writeHead(404).end()).listen(0, "127.0.0.1");
  await once(http, "listening");
  const url = `ws://127.0.0.1:${(http.address() as AddressInfo).port}`;
  await assert.rejects(connect(url, { WebSocket }), /dial/);
  http.close();
  await once(http, "close");
  await assert.rejects(connect(url, { WebSocket }), /dial/);
  await assert.rejects(connect("nonsense", { WebSocket, retryFirst: false }), /dial/);
  await assert.rejects(connect(url, { WebSocket, token: () => Promise.reject(new Error("no token")) }), /no token/);

  const foreign = await Server.start("chat");
  await assert.rejects(connect(foreign.url, { WebSocket }));
  await foreign.stop();

  const refuses = await Server.start();
  refuses.mute = true;
  void refuses.peers.next().then((p) => p.closing(3501));
  await assert.rejects(connect(refuses.url, { WebSocket, retryFirst: true }), /refused 3501/);
  void refuses.peers.next().then((p) => p.push(LineSchema, {}));
  await assert.rejects(connect(refuses.url, { WebSocket }), /a frame before Welcome/);
  await refuses.stop();
});

test("the first try may fail; tokens are asked for anew", async () => {
  const server = await Server.start();
  let tries = 0;
  const z = await connect(server.url, {
    WebSocket: new Counter().WebSocket, retryFirst: true, minBackoffMs: 1,
    token: () => {
      if (++tries < 3) throw new Error("not yet");
      return `token-${tries}`;
    },
  });
  assert.equal((await server.peers.next()).hello?.token, "token-3");
  z.close();
  await server.stop();
});

test("pure decisions", () => {
  assert.deepEqual([1000, 1006, 3000, 3499, 3500, 3999, 4000, 4999].map(reconnects), [true, true, true, true, false, false, false, false]);
  assert.deepEqual([0, 1, 2, 3, 4, 5, 1000].map((n) => backoff(1, 10, n, 1, 0)), [1, 2, 4, 8, 10, 10, 10]);
  assert.equal(backoff(1, 10, 0, 1, 3), 3);
  assert.equal(backoff(1, 10, 1, 0.5, 3), 4);
  assert.equal(messageId(JoinedSchema), 1002);
  assert.deepEqual([0, 2, 19, 30, 31, 999, 1000].map(codeName), ["ok", "no_route", "conflict", "unusable", "framework", "framework", "application"]);
  assert.equal(new ZgameError(Code.BUSY, Outcome.NOT_EXECUTED, "full").message, "busy: full (code 3, not_executed)");
  assert.ok(new ZgameError(Code.BUSY, Outcome.NOT_EXECUTED, "").retryable);
});
