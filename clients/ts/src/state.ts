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

/**
 * Pushes are missing, or may be: what they tell of is to be loaded anew. It is of an object to which the session is bound, or, where first is not 0n, of the session,
 * which has come back and has missed more than the gate keeps.
 */
export interface Gap {
  /** The object's key. */
  type: number;
  zone: number;
  id: string;
  /** At most so many; 0n: nobody knows. */
  missed: bigint;
  /** The numbers of the session's pushes that are missing; last 0n: nobody knows how far. */
  first: bigint;
  last: bigint;
}

/**
 * Why a client did not get its session back.
 *
 * - expired (RESUME_EXPIRED): the session has ended, most likely the client was away for too long
 * - invalid: the gate does not know the token
 * - user: the session is of another user than the token of now
 * - off: the gate does not resume
 * - ended: the gate said that the session ends, by the code of its close frame
 */
export type Refused = "expired" | "invalid" | "user" | "off" | "ended";

/** A session is over, and the next one is a new one: what came by pushes behind lastPush is lost, and so is what the server made for it. */
export interface Lost {
  why: Refused;
  session: Session | undefined;
  lastPush: bigint;
}

/** The gate is about to close the connection, if the client goes on: it sends too much. */
export interface Warning {
  /** Of the close that it would be. */
  code: number;
  text: string;
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
