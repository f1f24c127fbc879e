/** Result codes of the framework; applications number theirs from 1000. The numbers are those of the Go package zmsg. */
export const Code = {
  OK: 0,
  INTERNAL: 1,
  NO_ROUTE: 2,
  BUSY: 3,
  TIMEOUT: 4,
  PANICKED: 5,
  STOPPED: 6,
  BAD_REQUEST: 7,
  UNAUTHORIZED: 8,
  FORBIDDEN: 9,
  RATE_LIMITED: 10,
  UNAVAILABLE: 11,
  DRAINING: 12,
  TOO_LARGE: 13,
  CANCELLED: 14,
  UNKNOWN_ACTOR: 15,
  NODE_LOST: 16,
  CYCLE: 17,
  NOT_FOUND: 18,
  CONFLICT: 19,
  NO_NODE: 20,
  MOVED: 21,
  HANDOFF: 22,
  HOPS: 23,
  REFUSED: 24,
  FENCED: 25,
  UNKNOWN_OUTCOME: 26,
  AGAIN: 27,
  NOT_IN_SERVER: 28,
  SCHEMA: 29,
  UNUSABLE: 30,
  /** The first code that applications may use. */
  APPLICATION: 1000,
} as const;

const names = [
  "ok", "internal", "no_route", "busy", "timeout", "panicked", "stopped", "bad_request", "unauthorized", "forbidden",
  "rate_limited", "unavailable", "draining", "too_large", "cancelled", "unknown_actor", "node_lost", "cycle",
  "not_found", "conflict", "no_node", "moved", "handoff", "hops", "refused", "fenced", "unknown_outcome", "again",
  "not_in_server", "schema", "unusable",
];

/** The code's snake_case name, "application" from 1000 on, "framework" for one that this version does not know. */
export function codeName(code: number): string {
  return names[code] ?? (code >= Code.APPLICATION ? "application" : "framework");
}

const retry = new Set<number>([
  Code.BUSY, Code.TIMEOUT, Code.STOPPED, Code.RATE_LIMITED, Code.UNAVAILABLE, Code.DRAINING, Code.NODE_LOST, Code.CONFLICT,
  Code.NO_NODE, Code.MOVED, Code.HANDOFF, Code.HOPS, Code.REFUSED, Code.FENCED, Code.UNKNOWN_OUTCOME, Code.AGAIN, Code.SCHEMA,
]);

/**
 * Whether the same request may succeed when it is sent again later without change. Whether it is safe to send it again
 * is another question: the error's outcome answers it.
 */
export function retryable(code: number): boolean {
  return retry.has(code);
}

/** Whether a request that failed ran. */
export const Outcome = {
  /** The handler ran, or rejected the request by its own decision. */
  EXECUTED: 0,
  /** It certainly did not run: sending it again is safe. */
  NOT_EXECUTED: 1,
  /** It may have run. */
  UNKNOWN: 2,
} as const;
export type Outcome = (typeof Outcome)[keyof typeof Outcome];

const outcomes = ["executed", "not_executed", "unknown"];

/** Why a request failed: what the server answered, or what became of it on the way. */
export class ZgameError extends Error {
  override readonly name = "ZgameError";

  constructor(
    readonly code: number,
    readonly outcome: Outcome,
    /** What went wrong, for people. */
    readonly text: string,
  ) {
    super(`${codeName(code)}${text ? `: ${text}` : ""} (code ${code}, ${outcomes[outcome]})`);
  }

  /** See retryable. */
  get retryable(): boolean {
    return retryable(this.code);
  }
}
