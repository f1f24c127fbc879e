// Pure decisions: the same as those of the Go client.
import type { Reason } from "./state.js";

/**
 * Whether a client whose connection was closed with a websocket close code connects again: it does for 3000 to 3499 and
 * for the codes of the websocket protocol itself, it does not for 3500 to 3999 and for those of applications, from 4000.
 */
export function reconnects(code: number): boolean {
  return code < 3500;
}

/** Whether a connection that ended for reason is followed by another. */
export function reconnectable(reason: Reason): boolean {
  return reason.kind !== "client" && reconnects(reason.code);
}

/** Whether a session is there still when its connection ended for reason. */
export function outlives(reason: Reason): boolean {
  const { kind, code } = reason;
  if (kind === "client" || kind === "goaway") return false;
  if (kind !== "closed") return reconnectable(reason);
  // silent, internal, slow; the gate goes, or went, and the session may go on at another one; or the websocket's own, of whoever is between
  return [3003, 3004, 3008, 3001, 3006].includes(code) || (code > 1001 && code < 3000 && code !== 1002 && code !== 1007 && code !== 1009);
}

/**
 * How long to wait before the try that follows n tries in a row that failed: full jitter, a random part (0 to 1) of an
 * exponentially growing bound, so that clients that lost their gate together do not come back together. hint is what the
 * server asked for; it has spread its clients already.
 */
export function backoff(min: number, max: number, n: number, random: number, hint: number): number {
  if (hint > 0 && n === 0) return hint;
  return hint + random * Math.min(max, min * 2 ** Math.min(n, 32));
}
