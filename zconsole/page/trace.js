// @ts-check
// What one user asks for, or one object handles, as it happens: each request with all that it leads to, at all nodes.
import { follow } from "./api.js";
import { clock, el, keyText, labelled, setText, span, svg } from "./dom.js";

export const title = "Trace";

const kept = 100; // traces that are shown, the newest first

/** @type {(main: HTMLElement, me: any, args: string[], query: URLSearchParams) => any} */
export function show(main, me, args, query) {
  /** @type {AbortController|undefined} */
  let running;
  const object = query.get("id") ? { type: query.get("type"), zone: query.get("zone") ?? "0", id: query.get("id") } : undefined;
  const user = el("input", { "data-testid": "user", value: query.get("user") ?? "", required: !object, maxlength: 200 });
  const state = el("p", { class: "dim", role: "status", "data-testid": "state" }, "Nobody is followed.");
  const button = el("button", { class: "main", "data-testid": "follow" }, "Follow");
  const list = el("div", { "data-testid": "traces" });
  const stop = () => {
    running?.abort();
    running = undefined;
    setText(button, "Follow");
  };
  const begin = async () => {
    const mine = running = new AbortController();
    setText(button, "Stop");
    const params = object ?? { user: user.value };
    setText(state, "…");
    try {
      await follow("trace", params, (line) => {
        if (line.ports) setText(state, `Followed at ${line.ports} nodes: ${object ? `the object ${object.type}/${object.zone}/${object.id}` : `the user ${user.value}`}.`);
        if (line.spans) list.prepend(drawn(line.spans));
        if (line.skipped) list.prepend(el("p", { class: "busy" }, `${line.skipped} traces were left out: more than 20 in a second.`));
        if (line.fault) list.prepend(el("p", { class: "bad" }, line.fault));
        if (line.over) setText(state, `It is over: ${line.over}`);
        while (list.children.length > kept) list.lastChild?.remove();
      }, mine.signal);
    } catch (e) {
      if (!mine.signal.aborted) setText(state, e instanceof Error ? e.message : String(e));
    }
    if (running === mine) stop();
  };
  main.append(el("h1", {}, "Trace"), el("form", {
    class: "filters", submit: (e) => {
      e.preventDefault();
      if (running) {
        stop();
        setText(state, "Nobody is followed.");
      } else void begin();
    },
  }, object ? el("p", {}, `Object ${object.type}/${object.zone}/${object.id}`) : labelled("User", user), button), state,
  el("p", { class: "dim" }, "Blue: the work; amber: the wait in the mailbox before it. Bodies of messages are not shown. Times are those of the nodes' clocks."), list);
  if (object || query.get("user")) void begin();
  return { stop };
}

/** Draws a trace: each span a row, what it led to below it. */
function drawn(spans) {
  const start = (s) => Date.parse(s.start) * 1e6 + nanos(s.start);
  const known = new Set(spans.map((s) => s.id));
  const below = new Map();
  for (const s of spans) {
    const parent = known.has(s.parent) && s.parent !== s.id ? s.parent : "0";
    below.set(parent, [...below.get(parent) ?? [], s]);
  }
  const begin = Math.min(...spans.map((s) => start(s) - s.wait));
  const whole = Math.max(1, ...spans.map((s) => start(s) + s.duration - begin));
  const rows = [];
  const seen = new Set();
  const add = (parent, depth) => {
    for (const s of (below.get(parent) ?? []).sort((a, b) => start(a) - start(b))) {
      if (seen.has(s.id)) continue;
      seen.add(s.id);
      rows.push(row(s, depth, start(s) - begin, whole));
      add(s.id, depth + 1);
    }
  };
  add("0", 0);
  for (const s of spans) if (!seen.has(s.id)) rows.push(row(s, 0, start(s) - begin, whole)); // garbage may go round
  const first = spans.find((s) => s.kind === "request") ?? spans[0];
  return el("div", { class: "card trace", "data-testid": "trace", "data-name": first.name },
    el("div", { class: "dim" }, `${clock(first.start)}  trace ${first.trace}`), el("div", { class: "scroll" }, el("table", { "aria-label": `trace of ${first.name}` }, el("tbody", {}, ...rows))));
}

/** What a time in JSON has below the millisecond, in nanoseconds. */
function nanos(time) {
  return Number((/\.(\d+)/.exec(time)?.[1] ?? "").padEnd(9, "0").slice(3));
}

function row(s, depth, from, whole) {
  const of = s.key.ID ? `${keyText(s.key)}, version ${s.version}` : s.actor_name ?? (s.kind === "request" ? s.user : "");
  const x = (t) => (100 * t) / whole;
  return el("tr", { "data-kind": s.kind },
    el("td", {}, `${"\u2003".repeat(Math.min(depth, 12))}${s.kind} ${s.name}`), el("td", {}, of), el("td", {}, s.node.ID),
    el("td", { class: "number" }, s.wait ? `${span(s.wait)} in the mailbox` : s.kind === "push" ? `${s.sessions ?? 0} sessions` : ""),
    el("td", { class: "number" }, span(s.duration)),
    el("td", { class: ["ok", "deferred"].includes(s.result) ? "good" : "bad" }, s.result),
    el("td", { class: "fall" }, svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { class: "wait", x: x(from - s.wait), y: 3, width: x(s.wait), height: 4 }),
      svg("rect", { x: x(from), y: 2, width: Math.max(0.6, x(s.duration)), height: 6 }))));
}
