/** Where a client is in its life: idle -> connecting -> online -> waiting -> connecting -> ... -> closed. */
export type Phase = "idle" | "connecting" | "online" | "waiting" | "closed";

/**
 * Why a connection ended or did not come about.
 *
 * - dial: no connection, or no websocket over it
 * - token: the token function failed
 * - handshake: no Welcome in time
 * - refused: the server closed before Welcome; code says why
 * - closed: the server closed; code says why
 * - lost: the connection broke without a word
 * - silent: nothing came for as long as Welcome allows
 * - protocol: the server sent what is not zgame's protocol
 * - goaway: the server asked to connect elsewhere, or again
 * - client: close() was called
 */
export type ReasonKind =
  | "dial" | "token" | "handshake" | "refused" | "closed" | "lost" | "silent" | "protocol" | "goaway" | "client";

export interface Reason {
  kind: ReasonKind;
  /** The websocket close code that the server sent, 0 if none. */
  code: number;
  /** The server's words, or those of the cause. */
  text: string;
}

/** What the gate said at login. */
export interface Session {
  id: bigint;
  generation: number;
  user: string;
  /** The gate's node. */
  node: string;
  epoch: bigint;
  resumed: boolean;
  /** Bytes; larger requests are refused. */
  maxMessage: number;
  /** Requests that may wait for their response. */
  maxInFlight: number;
  heartbeatMs: number;
  timeoutMs: number;
}

/** Pushes of an object to which the session is bound are missing, or may be: its state is to be loaded anew. */
export interface Gap {
  /** The object's key. */
  type: number;
  zone: number;
  id: string;
  /** At most so many; 0n: nobody knows. */
  missed: bigint;
}

/** What a client is doing now. */
export interface State {
  phase: Phase;
  /** Waiting and closed: why. */
  reason?: Reason;
  /** Waiting: how long until the next try. */
  delayMs: number;
  /** Tries in a row that failed. */
  attempt: number;
  /** What the gate said at the last login. */
  session?: Session;
}
