// Small helpers for the page.
import { type Reason, ZgameError } from "@zgame/client";
import { Code as ChatCode } from "./gen/chat/chat_pb.js";

export function $<E extends HTMLElement>(id: string): E {
  return document.getElementById(id) as E;
}

export function text(id: string, what: string): void {
  const e = $(id);
  if (e.textContent !== what) e.textContent = what; // a live region is read aloud again otherwise
}

export function now(): number {
  return performance.now();
}

export function element<K extends keyof HTMLElementTagNameMap>(tag: K, className: string, what = ""): HTMLElementTagNameMap[K] {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (what) e.textContent = what;
  return e;
}

export function button(label: string, testid: string, f: () => unknown): HTMLButtonElement {
  const b = element("button", "", label);
  b.type = "button";
  b.dataset["testid"] = testid;
  b.addEventListener("click", () => void f());
  return b;
}

export function explain(e: unknown): string {
  if (!(e instanceof ZgameError)) return String(e);
  if (e.code === (ChatCode.BAD_ROOM as number)) return "a room is named by 1 to 32 letters, digits, - or _";
  return e.text || e.message;
}

/** Why there is no connection, in the server's words where it gave any. */
export function because(r: Reason): string {
  if (r.text) return r.text;
  switch (r.kind) {
    case "dial": return "no answer";
    case "lost": return "the connection was lost";
    default: return r.code ? `${r.kind} (${r.code})` : r.kind;
  }
}
