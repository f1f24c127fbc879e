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

/** Whether a gate that closed with code is one to leave for another: shutdown, overloaded, unavailable. */
function elsewhere(code: number): boolean {
  return code === 3001 || code === 3005 || code === 3007;
}

/** Where a client connects, one at a time, in an order of its own, so that those who share a list spread over it. */
export class Gates {
  private readonly list: string[];
  private at = 0;
  /** How many have not been tried since a connection was there. */
  left: number;

  constructor(urls: string | readonly string[], random: () => number = Math.random) {
    this.list = typeof urls === "string" ? [urls] : [...urls];
    if (this.list.length === 0) throw new TypeError("zgame: there is no URL in the list");
    for (let i = this.list.length - 1; i > 0; i--) {
      const j = Math.min(Math.floor(random() * (i + 1)), i);
      [this.list[i], this.list[j]] = [this.list[j] as string, this.list[i] as string];
    }
    this.left = this.list.length;
  }

  get url(): string {
    return this.list[this.at] as string;
  }

  /**
   * Takes note of how a try ended. The next one is the same gate where the session was lost without a word: it is most likely there; another one where the gate goes or has
   * no room, and where there was no session.
   */
  ended(code: number, online: boolean): void {
    if (online) this.left = this.list.length;
    if (!online || elsewhere(code)) {
      this.at = (this.at + 1) % this.list.length;
      this.left = Math.max(0, this.left - 1);
    }
  }
}
