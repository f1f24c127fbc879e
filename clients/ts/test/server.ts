// A gate of a few lines: it reads Hello, says Welcome, answers pings, and gives the rest to the test.
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { create, type DescMessage, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { WebSocket, WebSocketServer } from "ws";
import { Client, messageId, type Options, type SocketConstructor, type State } from "../src/index.js";
import {
  type ControlSchema, type Frame, FrameKind, type FrameSchema, type Hello, PacketSchema, type WelcomeSchema,
} from "../gen/zgame/v1/wire_pb.js";

/** Bounds every wait for what must happen: far above what a busy machine needs. */
export const patienceMs = 60_000;

/** What comes one after the other, waited for by a test. */
export class Stream<T> {
  private items: T[] = [];
  private waiting: ((v: T) => void)[] = [];

  put(v: T): void {
    const w = this.waiting.shift();
    if (w) w(v);
    else this.items.push(v);
  }

  next(what = "something"): Promise<T> {
    if (this.items.length > 0) return Promise.resolve(this.items.shift() as T);
    return new Promise((resolve, reject) => {
      const t = setTimeout(() => reject(new Error(`waited in vain for ${what}`)), patienceMs);
      this.waiting.push((v) => {
        clearTimeout(t);
        resolve(v);
      });
    });
  }

  async until(ok: (v: T) => boolean, what = "something"): Promise<T> {
    for (;;) {
      const v = await this.next(what);
      if (ok(v)) return v;
    }
  }
}

export class Peer {
  hello: Hello | undefined;
  readonly frames = new Stream<Frame>();
  readonly ended = new Stream<{ code: number; reason: string }>();

  constructor(readonly socket: WebSocket) {
    socket.on("close", (code, reason) => this.ended.put({ code, reason: reason.toString() }));
  }

  send(...frames: MessageInitShape<typeof FrameSchema>[]): void {
    this.socket.send(toBinary(PacketSchema, create(PacketSchema, { frames })));
  }

  control(control: NonNullable<MessageInitShape<typeof ControlSchema>["control"]>): void {
    this.send({ kind: FrameKind.CONTROL, control: { control } });
  }

  closing(code: number, delayMs = 0): void {
    this.control({ case: "closing", value: { code, text: "the reason", delayMs } });
    this.socket.close(code, "the reason");
  }

  respond<M extends DescMessage>(to: Frame, schema: M, init: MessageInitShape<M>): void {
    this.send({ kind: FrameKind.RESPONSE, id: messageId(schema), seq: to.seq, body: toBinary(schema, create(schema, init)) });
  }

  push<M extends DescMessage>(schema: M, init: MessageInitShape<M>, seq = 0n): void {
    this.send({ kind: FrameKind.PUSH, id: messageId(schema), seq, body: toBinary(schema, create(schema, init)) });
  }
}

export class Server {
  readonly peers = new Stream<Peer>();
  /** Answers no Hello and no Ping from now on. */
  mute = false;
  welcome: MessageInitShape<typeof WelcomeSchema> = {
    session: 5n, generation: 1, user: "ann", node: "n1", epoch: 7n, heartbeatMs: 60_000, timeoutMs: 120_000,
    maxMessage: 64 << 10, maxInFlight: 64, version: 1,
  };

  private constructor(private readonly wss: WebSocketServer) {
    wss.on("connection", (socket) => this.serve(new Peer(socket)));
  }

  static async start(protocol = "zgame.v1.pb"): Promise<Server> {
    const wss = new WebSocketServer({ port: 0, host: "127.0.0.1", handleProtocols: () => protocol });
    await once(wss, "listening");
    return new Server(wss);
  }

  get url(): string {
    return `ws://127.0.0.1:${(this.wss.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    for (const c of this.wss.clients) c.terminate();
    this.wss.close();
    await once(this.wss, "close");
  }

  private serve(p: Peer): void {
    p.socket.on("message", (data, binary) => {
      if (!binary) throw new Error("the client sent text");
      for (const f of fromBinary(PacketSchema, data as Buffer).frames) {
        const c = f.control?.control;
        if (c?.case === "hello") {
          p.hello = c.value;
          if (!this.mute) p.control({ case: "welcome", value: this.welcome });
          this.peers.put(p);
        } else if (c?.case === "ping") {
          if (!this.mute) p.control({ case: "pong", value: { nonce: c.value.nonce } });
        } else {
          p.frames.put(f);
        }
      }
    });
  }
}

/** Counts the sockets of a client that are open at one time. */
export class Counter {
  now = 0;
  most = 0;
  all = 0;
  readonly WebSocket: SocketConstructor;

  constructor() {
    const counter = this;
    this.WebSocket = class extends WebSocket {
      constructor(url: string, protocol: string) {
        super(url, protocol);
        counter.all++;
        counter.most = Math.max(counter.most, ++counter.now);
        this.once("close", () => counter.now--);
      }
    } as unknown as SocketConstructor;
  }
}

export interface Setup {
  server: Server;
  client: Client;
  peer: Peer;
  states: Stream<State>;
  sockets: Counter;
}

/** Runs f with a client that is online at a server of its own. */
export async function withClient(
  f: (s: Setup) => Promise<void>, options: Options = {}, change: (s: Server) => void = () => {},
): Promise<void> {
  const server = await Server.start();
  change(server);
  const sockets = new Counter();
  const client = new Client(server.url, { token: "ann", minBackoffMs: 1, maxBackoffMs: 4, WebSocket: sockets.WebSocket, ...options });
  const states = new Stream<State>();
  client.onState((s) => states.put(s));
  try {
    await client.connect();
    await f({ server, client, peer: await server.peers.next("a connection"), states, sockets });
  } finally {
    client.close();
    await server.stop();
  }
}
