import { create, type DescMessage, fromBinary, type MessageInitShape, type MessageShape, toBinary } from "@bufbuild/protobuf";
import { type Frame, FrameKind, ResumeRefusal, type Welcome } from "../gen/zgame/v1/wire_pb.js";
import { Connection, type Ending } from "./connection.js";
import { Code, Outcome, ZgameError } from "./errors.js";
import { messageId } from "./ids.js";
import { backoff, Gates, outlives, reconnectable } from "./policy.js";
import type { Gap, Lost, Reason, Refused, Session, State, Warning } from "./state.js";

/** What is needed of a WebSocket: the browser's, Node's own, or the package ws's. */
export interface SocketLike {
  binaryType: string;
  readonly readyState: number;
  readonly bufferedAmount: number;
  readonly protocol: string;
  send(data: Uint8Array<ArrayBuffer>): void;
  close(code?: number, reason?: string): void;
  addEventListener(type: "open" | "error", f: () => void): void;
  addEventListener(type: "message", f: (e: { data: unknown }) => void): void;
  addEventListener(type: "close", f: (e: { code: number; reason: string }) => void): void;
}
export type SocketConstructor = new (url: string, protocol: string) => SocketLike;

export interface Options {
  /**
   * Shown to the gate at each login; a function is asked anew for each, for tokens that expire. Where the gate does not take one (3501) of a client that has been
   * online, it is asked once more, and then the client is closed.
   */
  token?: string | (() => string | Promise<string>);
  /** Tells the server which program this is, for its logs. Default "zclient-ts". */
  name?: string;
  /** Lets connect() try until it succeeds, instead of failing with the first try, or with a list of URLs one at each. Default false. */
  retryFirst?: boolean;
  /** The wait before the n-th try in a row is a random part of min(maxBackoffMs, minBackoffMs*2^n). Default 500, 30000. */
  minBackoffMs?: number;
  maxBackoffMs?: number;
  /** For how long the session is to outlive a lost connection, at most; the gate may grant less. 0: not at all. Default an hour. */
  resumeWindowMs?: number;
  /** How long a connection must have lasted to be a success, after which back-off begins anew. Default 10000. */
  stableAfterMs?: number;
  /** For all of connect, websocket and login. Default 10000. */
  handshakeTimeoutMs?: number;
  /** The deadline of a request that names none. Default 10000. */
  requestTimeoutMs?: number;
  /** How many requests may wait for a connection while there is none; more are Code.BUSY. 0: they fail at once, with Code.UNAVAILABLE. Default 64. */
  maxWaiting?: number;
  /** How long requests in flight may take to end when the server asks to go elsewhere. Default 5000. */
  drainTimeoutMs?: number;
  /** Bytes that may wait to be written; more is Code.BUSY. Default 1 MiB. */
  maxBuffered?: number;
  /** The WebSocket to use. Default: the global one (browsers, Node.js from 22 on). */
  WebSocket?: SocketConstructor;
}

export interface RequestOptions {
  timeoutMs?: number;
  signal?: AbortSignal;
}

/** A request that waits for a connection. */
interface Waiting {
  /** Sends it; says why not. */
  begin(): ZgameError | undefined;
  reject(e: ZgameError): void;
}

interface Call {
  frame: { kind: FrameKind; id: number; seq: bigint; body: Uint8Array; timeoutMs: number };
  resolve(frame: Frame): void;
  reject(e: ZgameError): void;
}

/** What a frame has around its body in a packet, at most. */
const maxFrameHead = 64;

/** How long what has come waits for its Ack: far below what a gate keeps, and no more than ten a second, which gates allow. */
const ackDelayMs = 250;
const unauthorized = 3501;

const refusals: Record<ResumeRefusal, Refused> = {
  [ResumeRefusal.UNSPECIFIED]: "invalid", [ResumeRefusal.EXPIRED]: "expired", [ResumeRefusal.INVALID]: "invalid", [ResumeRefusal.USER]: "user", [ResumeRefusal.OFF]: "off",
};

const defaults = {
  name: "zclient-ts", retryFirst: false, minBackoffMs: 500, maxBackoffMs: 30_000, stableAfterMs: 10_000,
  handshakeTimeoutMs: 10_000, requestTimeoutMs: 10_000, drainTimeoutMs: 5_000, maxBuffered: 1 << 20, maxWaiting: 64, resumeWindowMs: 3_600_000,
};

/**
 * Connects and logs in. Of several URLs, which are gates to choose from, each is tried in turn, in an order of this client's own. Use new Client and its connect() to add handlers before the first push can come.
 * Rejects with a ZgameError whose text says why.
 */
export async function connect(url: string | readonly string[], options: Options = {}): Promise<Client> {
  const c = new Client(url, options);
  await c.connect();
  return c;
}

/**
 * One user's connection to a gate, which is made again when it is lost. There is at most one at a time. While the gate keeps the session, nothing is lost with a connection:
 * requests in flight are sent again with the same seq and run once, pushes that were missed come, in order, or as a gap.
 *
 * Pushes, states and responses are handed over in the order in which they came. A response settles a promise, so that what
 * awaits it runs after the handlers of pushes of the same packet.
 */
export class Client {
  private readonly o: typeof defaults & Options;
  private connection: Connection | undefined;
  private draining = false;
  private seq = 0n;
  private readonly calls = new Map<bigint, Call>();
  private readonly waiting = new Set<Waiting>();
  private readonly gates: Gates;
  private readonly pushes = new Map<number, ((body: Uint8Array) => void)[]>();
  private states: ((s: State) => void)[] = [];
  private gaps: ((g: Gap) => void)[] = [];
  private losses: ((l: Lost) => void)[] = [];
  private warnings: ((w: Warning) => void)[] = [];
  // Of the session, which outlives connections.
  private resume = ""; // its token; "": it ends with its connection
  private windowMs = 0; // for how long the gate waits
  private lostAt = 0; // when its connection was lost, 0: it has one
  private lastPush = 0n;
  private lastResponse = 0n;
  private acking: ReturnType<typeof setTimeout> | undefined;
  private refreshed = false; // the token was asked for once more
  private current: State = { phase: "idle", delayMs: 0, attempt: 0 };
  private attempt = 0;
  private everOnline = false;
  private closing = false;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private drain: ReturnType<typeof setTimeout> | undefined;
  private rttMs = 0;

  constructor(url: string | readonly string[], options: Options = {}) {
    this.gates = new Gates(url);
    const given = Object.fromEntries(Object.entries(options).filter(([, v]) => v !== undefined));
    this.o = { ...defaults, ...given };
  }

  /** Connects, and keeps the client connected from then on. May be called once. */
  connect(): Promise<void> {
    if (this.current.phase !== "idle") return Promise.reject(new TypeError("zgame: connect was called before"));
    return new Promise((resolve, reject) => {
      const stop = this.onState((s) => {
        if (s.phase === "online") resolve();
        else if (s.phase === "closed") reject(this.unavailable());
        else return;
        stop();
      });
      void this.open(this.gates.url);
    });
  }

  /** What the client is doing now. */
  get state(): State {
    return this.current;
  }

  /** What the gate said at the last login. */
  get session(): Session | undefined {
    return this.current.session;
  }

  /** The round trip to the gate and back as last measured, in milliseconds; 0 before the first time. */
  get rtt(): number {
    return this.rttMs;
  }

  /** Calls f at each change of state from now on. The function that it returns ends that. */
  onState(f: (s: State) => void): () => void {
    this.states = [...this.states, f];
    return () => {
      this.states = this.states.filter((g) => g !== f);
    };
  }

  /** Calls f for each gap from now on, in order with the pushes. The function that it returns ends that. */
  onGap(f: (g: Gap) => void): () => void {
    this.gaps = [...this.gaps, f];
    return () => {
      this.gaps = this.gaps.filter((g) => g !== f);
    };
  }

  /** Calls f for each session that is over while the client goes on, in order with the pushes. The function that it returns ends that. */
  onLost(f: (l: Lost) => void): () => void {
    this.losses = [...this.losses, f];
    return () => {
      this.losses = this.losses.filter((g) => g !== f);
    };
  }

  /** Calls f for each warning of the gate that the client sends too much, in order with the pushes. The function that it returns ends that. */
  onWarning(f: (w: Warning) => void): () => void {
    this.warnings = [...this.warnings, f];
    return () => {
      this.warnings = this.warnings.filter((g) => g !== f);
    };
  }

  /** Calls f for each push of the type from now on, in the order in which they come. The function that it returns ends that. */
  on<M extends DescMessage>(schema: M, f: (message: MessageShape<M>) => void): () => void {
    const id = messageId(schema);
    const handler = (body: Uint8Array) => {
      let message: MessageShape<M>;
      try {
        message = fromBinary(schema, body);
      } catch (e) {
        console.warn(`zgame: a push is not the ${schema.typeName} that its id says:`, e);
        return;
      }
      f(message);
    };
    this.pushes.set(id, [...(this.pushes.get(id) ?? []), handler]);
    return () => {
      this.pushes.set(id, (this.pushes.get(id) ?? []).filter((g) => g !== handler));
    };
  }

  /**
   * Sends a request and waits for its response; while there is no connection, it waits for one (maxWaiting). Every rejection is a ZgameError, whose outcome says whether the request ran;
   * but for a type without a message id and an init that is no message, which are programming mistakes and throw.
   */
  request<Q extends DescMessage, R extends DescMessage>(
    schema: Q, init: MessageInitShape<Q>, response: R, options: RequestOptions = {},
  ): Promise<MessageShape<R>> {
    const id = messageId(schema);
    const expected = messageId(response);
    const body = toBinary(schema, create(schema, init));
    const timeoutMs = Math.max(1, Math.ceil(options.timeoutMs ?? this.o.requestTimeoutMs));
    const { signal } = options;
    return new Promise<Frame>((resolve, reject) => {
      if (signal?.aborted) {
        reject(new ZgameError(Code.CANCELLED, Outcome.NOT_EXECUTED, "the caller gave up"));
        return;
      }
      const deadline = performance.now() + timeoutMs;
      let seq = 0n; // until it is sent
      let waits = false;
      const done = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", abort);
        this.waiting.delete(call);
        if (this.calls.delete(seq)) this.leaveWhenIdle();
      };
      const fail = (e: ZgameError) => {
        done();
        reject(e);
      };
      const give = (code: number, text: string) => fail(new ZgameError(code, seq ? Outcome.UNKNOWN : Outcome.NOT_EXECUTED, text));
      const abort = () => give(Code.CANCELLED, "the caller gave up");
      const call: Waiting = {
        begin: () => {
          const refused = this.refuse(body, true);
          if (refused) return refused;
          seq = ++this.seq;
          const left = waits ? Math.max(1, Math.ceil(deadline - performance.now())) : timeoutMs;
          const frame = { kind: FrameKind.REQUEST, id, seq, body, timeoutMs: left };
          this.calls.set(seq, {
            frame,
            resolve: (f) => {
              done();
              resolve(f);
            },
            reject: fail,
          });
          this.connection?.send(frame);
          return undefined;
        },
        reject: fail,
      };
      const timer = setTimeout(() => give(Code.TIMEOUT, "no response within the deadline"), timeoutMs);
      signal?.addEventListener("abort", abort);
      const refused = call.begin();
      if (!refused) return;
      if (refused.code !== Code.UNAVAILABLE || this.closing || this.current.phase === "idle" || this.o.maxWaiting <= 0) fail(refused);
      else if (this.waiting.size >= this.o.maxWaiting) give(Code.BUSY, "too many requests wait for a connection");
      else {
        waits = true;
        this.waiting.add(call);
      }
    }).then((f) => {
      if (f.code !== Code.OK) {
        throw new ZgameError(f.code, f.outcome > 2 ? Outcome.UNKNOWN : (f.outcome as Outcome), f.text);
      }
      if (f.id !== expected && (f.id !== 0 || f.body.length !== 0)) {
        throw new ZgameError(Code.INTERNAL, Outcome.EXECUTED, `the response has id ${f.id}, expected ${expected} (${response.typeName})`);
      }
      try {
        return fromBinary(response, f.body);
      } catch (e) {
        throw new ZgameError(Code.INTERNAL, Outcome.EXECUTED, `the response is not a ${response.typeName}: ${String(e)}`);
      }
    });
  }

  /** Sends a one-way message: nobody answers, and it may be lost with the connection. Throws a ZgameError when it cannot be sent. */
  send<Q extends DescMessage>(schema: Q, init: MessageInitShape<Q>): void {
    const id = messageId(schema);
    const body = toBinary(schema, create(schema, init));
    const refused = this.refuse(body, false);
    if (refused) throw refused;
    this.connection?.send({ kind: FrameKind.REQUEST, id, body });
  }

  /** Closes the connection; requests in flight end with Code.CANCELLED. */
  close(): void {
    if (this.closing) return;
    this.closing = true;
    clearTimeout(this.retry);
    if (this.connection) this.connection.close("client");
    else this.closed({ kind: "client", code: 0, text: "" });
  }

  /** Why a message cannot be sent now, if so. */
  private refuse(body: Uint8Array, request: boolean): ZgameError | undefined {
    const c = this.connection;
    const no = (code: number, text: string) => new ZgameError(code, Outcome.NOT_EXECUTED, text);
    if (!c?.session || this.closing) return this.unavailable();
    if (this.draining || !c.usable) return no(Code.UNAVAILABLE, "the connection is ending");
    const most = c.session.maxMessage - maxFrameHead;
    if (body.length > most) return no(Code.TOO_LARGE, `the message has ${body.length} bytes, this session's limit is ${most} (gate.max_message)`);
    if (c.buffered > this.o.maxBuffered) return no(Code.BUSY, "too much waits to be written");
    if (request && this.calls.size >= c.session.maxInFlight) return no(Code.BUSY, "too many requests are in flight");
    return undefined;
  }

  private unavailable(): ZgameError {
    const { phase, reason } = this.current;
    const why = reason ? `, ${describe(reason)}` : "";
    return new ZgameError(Code.UNAVAILABLE, Outcome.NOT_EXECUTED, `not connected: ${phase}${why}`);
  }

  private set(s: Omit<State, "session">, session = this.current.session): void {
    this.current = session ? { ...s, session } : s;
    for (const f of this.states) guard(() => f(this.current));
  }

  private async open(url: string): Promise<void> {
    this.set({ phase: "connecting", delayMs: 0, attempt: this.attempt });
    let token: string;
    try {
      token = typeof this.o.token === "function" ? await this.o.token() : (this.o.token ?? "");
    } catch (e) {
      this.ended({ reason: { kind: "token", code: 0, text: String(e) }, onlineMs: 0, delayMs: 0, address: "" });
      return;
    }
    if (this.closing) return; // meanwhile
    const WebSocket = this.o.WebSocket ?? (globalThis.WebSocket as unknown as SocketConstructor | undefined);
    try {
      if (!WebSocket) throw new TypeError("there is no WebSocket here: pass options.WebSocket");
      const login = {
        token, name: this.o.name, resume: this.resume, lastPush: this.lastPush, lastSeq: this.seq, resumeWindowMs: Math.max(0, this.o.resumeWindowMs),
      };
      const c: Connection = new Connection(url, login, this.o.handshakeTimeoutMs, WebSocket, {
        welcome: (w) => this.welcomed(w, c),
        online: (session) => {
          this.everOnline = true;
          this.draining = false;
          this.refreshed = false;
          for (const w of [...this.waiting]) { // ahead of what handlers of the state ask for
            const refused = w.begin();
            if (!refused) this.waiting.delete(w);
            else if (refused.code !== Code.UNAVAILABLE) w.reject(refused);
          }
          this.set({ phase: "online", delayMs: 0, attempt: 0 }, session);
        },
        response: (f) => {
          this.lastResponse = f.seq;
          this.came();
          this.calls.get(f.seq)?.resolve(f);
        },
        push: (f) => {
          if (this.closing) return;
          this.lastPush = f.seq;
          this.came();
          for (const h of this.pushes.get(f.id) ?? []) guard(() => h(f.body));
        },
        gap: (g) => {
          if (this.closing) return;
          if (g.last) this.lastPush = g.last;
          for (const f of this.gaps) guard(() => f(g));
        },
        warning: (w) => {
          if (this.closing) return;
          for (const f of this.warnings) guard(() => f(w));
        },
        rtt: (ms) => {
          this.rttMs = ms;
        },
        goaway: () => {
          this.draining = true;
          this.drain = setTimeout(() => c.leave(), this.o.drainTimeoutMs);
          this.leaveWhenIdle();
        },
        end: (e) => this.ended(e),
      });
      this.connection = c;
    } catch (e) { // a URL that is none
      this.ended({ reason: { kind: "dial", code: 0, text: String(e) }, onlineMs: 0, delayMs: 0, address: "" });
    }
  }

  /** Takes over what the gate says of the session, ahead of all else. */
  private welcomed(w: Welcome, c: Connection): void {
    const before = this.resume;
    if (before && !w.resumed) {
      const why = refusals[w.refused] ?? "invalid";
      this.lose(why, { kind: "lost", code: 0, text: `the session is not there any more: ${why}` });
    }
    this.lostAt = 0;
    this.windowMs = w.resumeWindowMs;
    this.resume = this.o.resumeWindowMs > 0 ? w.resume : "";
    if (this.resume) c.ack(this.lastPush, this.lastResponse); // the first shows that we have the token
    if (before && w.resumed) for (const call of [...this.calls.values()]) c.send(call.frame);
  }

  /** Sees that what has come is acknowledged. */
  private came(): void {
    if (!this.resume || this.acking !== undefined) return;
    this.acking = setTimeout(() => {
      this.acking = undefined;
      if (this.resume && this.connection?.session) this.connection.ack(this.lastPush, this.lastResponse);
    }, ackDelayMs);
  }

  /** Gives the session up. */
  private lose(why: Refused, reason: Reason): void {
    const lost: Lost = { why, session: this.current.session, lastPush: this.lastPush };
    this.resume = "";
    this.lastPush = this.lastResponse = 0n;
    this.lostAt = 0;
    this.failAll(Code.UNAVAILABLE, reason);
    for (const f of this.losses) guard(() => f(lost));
  }

  /** Decides, at the end of a connection or of a try, whether the session is waited for. */
  private waits(reason: Reason, again: boolean): void {
    if (!this.resume) this.failAll(Code.UNAVAILABLE, reason);
    else if (!again && !outlives(reason)) this.lose("ended", reason);
    else if (!this.lostAt) this.lostAt = performance.now();
    else if (performance.now() - this.lostAt > this.windowMs + this.o.handshakeTimeoutMs) this.lose("expired", reason);
  }

  private leaveWhenIdle(): void {
    if (this.draining && this.calls.size === 0) this.connection?.leave();
  }

  private ended(e: Ending): void {
    clearTimeout(this.drain);
    this.connection = undefined;
    this.draining = false;
    if (e.onlineMs >= this.o.stableAfterMs) this.attempt = 0;
    this.gates.ended(e.reason.code, e.onlineMs > 0);
    const reason: Reason = this.closing ? { kind: "client", code: 0, text: "" } : e.reason;
    // A token that the gate does not take is asked for once more: it may have expired just now.
    const again = reason.code === unauthorized && typeof this.o.token === "function" && this.everOnline && !this.refreshed && !this.closing;
    this.refreshed ||= again;
    if (this.closing || (!reconnectable(reason) && !again) || (!this.everOnline && !this.o.retryFirst && this.gates.left === 0)) {
      this.closed(reason);
      return;
    }
    let delayMs = backoff(this.o.minBackoffMs, this.o.maxBackoffMs, this.attempt, Math.random(), e.delayMs);
    let { url } = this.gates;
    if (reason.kind === "goaway") {
      if (this.attempt === 0) delayMs = 0; // it was waited for already; a second Goaway in a row backs off, though
      url = e.address || url;
    }
    this.attempt++;
    this.retry = setTimeout(() => void this.open(url), delayMs);
    this.set({ phase: "waiting", reason, delayMs, attempt: this.attempt });
    this.waits(reason, again);
  }

  private closed(reason: Reason): void {
    this.closing = true;
    clearTimeout(this.retry);
    clearTimeout(this.acking);
    this.set({ phase: "closed", reason, delayMs: 0, attempt: this.attempt });
    const code = reason.kind === "client" ? Code.CANCELLED : Code.UNAVAILABLE;
    this.failAll(code, reason);
    for (const w of [...this.waiting]) w.reject(new ZgameError(code, Outcome.NOT_EXECUTED, `not connected: closed, ${describe(reason)}`));
  }

  private failAll(code: number, reason: Reason): void {
    for (const call of [...this.calls.values()]) {
      call.reject(new ZgameError(code, Outcome.UNKNOWN, `the connection ended: ${describe(reason)}`));
    }
  }
}

function describe(r: Reason): string {
  return [r.kind, r.code || "", r.text && `(${r.text})`].filter(Boolean).join(" ");
}

/** Runs a handler of the user: what it throws is reported and holds up nothing else. */
function guard(f: () => void): void {
  try {
    f();
  } catch (e) {
    if (typeof globalThis.reportError === "function") globalThis.reportError(e);
    else console.error("zgame: a handler has thrown:", e);
  }
}
