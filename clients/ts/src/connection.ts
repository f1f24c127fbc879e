import { create, fromBinary, toBinary, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type Control, ControlSchema, type Frame, FrameKind, FrameSchema, PacketSchema, type Welcome,
} from "../gen/zgame/v1/wire_pb.js";
import type { SocketConstructor, SocketLike } from "./client.js";
import type { Gap, Reason, ReasonKind, Session, Warning } from "./state.js";

/** How a connection ended. */
export interface Ending {
  reason: Reason;
  /** How long it was logged in, 0 for never. */
  onlineMs: number;
  /** The server asks to wait so long. */
  delayMs: number;
  /** The server asks to go there. */
  address: string;
}

/** What a connection tells its client. */
export interface Events {
  /** Ahead of online. */
  welcome(welcome: Welcome): void;
  online(session: Session): void;
  response(frame: Frame): void;
  push(frame: Frame): void;
  gap(gap: Gap): void;
  warning(warning: Warning): void;
  rtt(ms: number): void;
  /** The server asks to leave; no new requests. leave() ends the connection. */
  goaway(): void;
  /** Once, the last. */
  end(ending: Ending): void;
}

/** What Hello says. */
export interface Login {
  token: string;
  name: string;
  /** The token of the session that is to be resumed, "" for none, the last push that came, and the last request that may have run. */
  resume: string;
  lastPush: bigint;
  lastSeq: bigint;
  resumeWindowMs: number;
}

const subprotocol = "zgame.v1.pb";
const wireVersion = 1;
/** For the server to answer our close frame; after that the socket is left to itself. */
const closeTimeoutMs = 1000;
/** Of a close frame that is no goodbye: the gate keeps the session. Browsers allow 1000, and 3000 to 4999. */
const troubleCode = 3900;
/** Longest delay of a server that is waited for, whatever it says. */
const maxServerDelayMs = 5 * 60_000;

function sessionOf(w: Welcome): Session {
  const heartbeatMs = w.heartbeatMs || 20_000;
  return {
    id: w.session, generation: w.generation, user: w.user, node: w.node, epoch: w.epoch, resumed: w.resumed,
    maxMessage: w.maxMessage || 64 << 10, maxInFlight: w.maxInFlight || 64,
    heartbeatMs, timeoutMs: w.timeoutMs || 2 * heartbeatMs,
  };
}

/** One connection: from opening a socket to its end, which events.end tells once. */
export class Connection {
  session: Session | undefined;
  private readonly socket: SocketLike;
  private readonly handshake: ReturnType<typeof setTimeout>;
  private timers: ReturnType<typeof setTimeout>[] = [];
  private opened = false;
  private welcomedAt = 0;
  private heardAt = 0;
  private ping = { nonce: 0n, at: 0 };
  private reason: Reason | undefined; // the first counts: ours, or what the server announced
  private delayMs = 0;
  private address = "";
  private leaving = ""; // what the server said when it asked to leave
  private beat: ReturnType<typeof setTimeout> | undefined;
  private ended = false;

  constructor(
    url: string, login: Login, handshakeTimeoutMs: number, WebSocket: SocketConstructor,
    private readonly events: Events,
  ) {
    this.socket = new WebSocket(url, subprotocol); // throws for a url that is none
    this.handshake = setTimeout(() => this.close("handshake", "no Welcome in time"), handshakeTimeoutMs);
    this.socket.binaryType = "arraybuffer";
    this.socket.addEventListener("open", () => {
      this.opened = true;
      if (this.socket.protocol !== subprotocol) {
        this.close("protocol", `the server does not speak ${subprotocol}`);
        return;
      }
      this.control({ case: "hello", value: {
        token: login.token, version: wireVersion, client: login.name,
        resume: login.resume, lastPush: login.lastPush, lastSeq: login.lastSeq, resumeWindowMs: login.resumeWindowMs,
      } });
    });
    this.socket.addEventListener("message", (e) => this.message(e.data));
    this.socket.addEventListener("close", (e) => this.closed(e.code, e.reason));
    this.socket.addEventListener("error", () => {
      // A close event follows; it says as much as browsers tell.
    });
  }

  /** Whether requests may be sent: logged in, and no end in sight. */
  get usable(): boolean {
    return this.welcomedAt > 0 && !this.reason && !this.ended && this.socket.readyState === 1;
  }

  /** Writes a frame, if the socket is open. */
  send(frame: MessageInitShape<typeof FrameSchema>): void {
    if (this.ended || this.socket.readyState !== 1) return;
    this.socket.send(toBinary(PacketSchema, create(PacketSchema, { frames: [frame] })));
  }

  /** Bytes that wait to be written. */
  get buffered(): number {
    return this.socket.bufferedAmount;
  }

  /** Ends the connection for a reason of ours. */
  close(kind: ReasonKind, text = ""): void {
    if (this.ended) return;
    this.reason ??= { kind, code: 0, text };
    // The reason travels as text.
    const goodbye = kind === "client" || kind === "goaway" || !this.welcomedAt;
    this.socket.close(goodbye ? 1000 : troubleCode, kind);
    this.timers.push(setTimeout(() => this.finish(), closeTimeoutMs));
  }

  private closed(code: number, text: string): void {
    // 1005 and 1006 are no codes of the server, but "none" and "cut".
    const cut = code === 1006;
    if (this.reason === undefined) {
      const kind = this.welcomedAt ? (cut ? "lost" : "closed") : this.opened && !cut ? "refused" : "dial";
      this.reason = { kind, code: cut ? 0 : code, text };
    } else if (this.reason.code === 0 && (this.reason.kind === "closed" || this.reason.kind === "refused")) {
      this.reason.code = cut ? 0 : code;
    }
    this.finish();
  }

  private finish(): void {
    if (this.ended) return;
    this.ended = true;
    clearTimeout(this.handshake);
    clearTimeout(this.beat);
    for (const t of this.timers) clearTimeout(t);
    this.events.end({
      reason: this.reason ?? { kind: "lost", code: 0, text: "" },
      onlineMs: this.welcomedAt ? Math.max(1, performance.now() - this.welcomedAt) : 0,
      delayMs: this.delayMs,
      address: this.address,
    });
  }

  private message(data: unknown): void {
    if (this.ended) return;
    this.heardAt = performance.now();
    if (!(data instanceof ArrayBuffer)) {
      this.close("protocol", "a text message");
      return;
    }
    let frames: Frame[];
    try {
      frames = fromBinary(PacketSchema, new Uint8Array(data)).frames;
    } catch (e) {
      this.close("protocol", String(e));
      return;
    }
    for (const f of frames) {
      if (f.kind === FrameKind.CONTROL) this.controlled(f.control);
      else if (!this.welcomedAt) this.close("protocol", "a frame before Welcome");
      else if (f.kind === FrameKind.RESPONSE) this.events.response(f);
      else if (f.kind === FrameKind.PUSH) this.events.push(f);
      if (this.reason?.kind === "protocol") return;
    }
  }

  private controlled(c: Control | undefined): void {
    switch (c?.control.case) {
      case "welcome":
        if (this.welcomedAt) {
          this.close("protocol", "a second Welcome");
          return;
        }
        this.welcome(c.control.value);
        break;
      case "ping":
        this.control({ case: "pong", value: { nonce: c.control.value.nonce } });
        break;
      case "pong":
        if (this.ping.at && c.control.value.nonce === this.ping.nonce) {
          const ms = performance.now() - this.ping.at;
          this.ping.at = 0;
          this.events.rtt(ms);
        }
        break;
      case "gap": {
        const { keyType, keyZone, keyId, missed, first, last } = c.control.value;
        if (this.welcomedAt) this.events.gap({ type: keyType, zone: keyZone, id: keyId, missed, first, last });
        break;
      }
      case "warning": {
        const { code, text } = c.control.value;
        this.events.warning({ code, text });
        break;
      }
      case "goaway": {
        const { delayMs, address, text } = c.control.value;
        this.address = address;
        this.timers.push(setTimeout(() => {
          if (this.ended || this.reason) return;
          this.leaving = text || "goaway";
          this.events.goaway();
        }, Math.min(delayMs, maxServerDelayMs)));
        break;
      }
      case "closing": {
        const { code, text, delayMs } = c.control.value;
        this.delayMs = Math.min(delayMs, maxServerDelayMs);
        this.reason ??= { kind: this.welcomedAt ? "closed" : "refused", code, text };
        break;
      }
    }
  }

  /** Ends the connection because the server asked to leave. */
  leave(): void {
    this.close("goaway", this.leaving);
  }

  /** Says what has come. */
  ack(push: bigint, response: bigint): void {
    this.control({ case: "ack", value: { push, response } });
  }

  private welcome(w: Welcome): void {
    clearTimeout(this.handshake);
    const session = sessionOf(w);
    this.session = session;
    this.welcomedAt = performance.now();
    this.events.welcome(w);
    const beat = () => {
      if (performance.now() - this.heardAt > session.timeoutMs) {
        this.close("silent", `nothing came for ${session.timeoutMs} ms`);
        return;
      }
      this.ping = { nonce: this.ping.nonce + 1n, at: performance.now() };
      this.control({ case: "ping", value: { nonce: this.ping.nonce } });
      // Often enough to notice silence soon after timeoutMs.
      this.beat = setTimeout(beat, Math.min(session.heartbeatMs, Math.max(session.timeoutMs / 4, 1)));
    };
    this.events.online(session);
    beat();
  }

  private control(control: NonNullable<MessageInitShape<typeof ControlSchema>["control"]>): void {
    this.send({ kind: FrameKind.CONTROL, control: { control } });
  }
}
