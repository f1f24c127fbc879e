// @ts-check
import { get } from "./api.js";
import { clock, count, el, labelled, span, Table } from "./dom.js";

export const title = "Actors";

/** @type {(main: HTMLElement) => any} */
export function show(main) {
  const match = el("input", { type: "search", "data-testid": "match", maxlength: 200 });
  const more = el("p", { class: "dim", "data-testid": "more" });
  const busiest = new Table({
    name: "actors", key: (a) => `${a.node} ${a.id}`,
    columns: [
      { title: "Node", value: (a) => a.node },
      { title: "Actor", value: (a) => a.id, class: "number" },
      { title: "Name", value: (a) => a.name ?? "" },
      { title: "Type", value: (a) => a.type },
      { title: "Queued", value: (a) => count(a.queued), class: "number" },
      { title: "", value: (a) => el("meter", { min: 0, max: Math.max(1, a.limit), value: a.queued, high: a.limit * 0.8, "aria-label": "mailbox" }) },
      { title: "Limit", value: (a) => count(a.limit), class: "number" },
      { title: "State", value: (a) => a.state },
    ],
    empty: "No actor matches.",
  });
  const seconds = (v) => (v ? `≤ ${span(v * 1e9)}` : "");
  const handlers = new Table({
    name: "handlers", key: (h) => `${h.node} ${h.message}`,
    columns: [
      { title: "Node", value: (h) => h.node },
      { title: "Message", value: (h) => h.message },
      { title: "Handled", value: (h) => count(h.handled), class: "number" },
      { title: "Failed", value: (h) => count(h.failed), class: "number" },
      { title: "Mean", value: (h) => (h.timed ? span((h.seconds / h.timed) * 1e9) : ""), class: "number" },
      { title: "Half", value: (h) => seconds(h.p50), class: "number" },
      { title: "99 of 100", value: (h) => seconds(h.p99), class: "number" },
    ],
    empty: "No handler is timed: set actors.measure.",
  });
  const failures = new Table({
    name: "failures", key: (f) => `${f.node} ${f.at} ${f.actor} ${f.text}`,
    columns: [
      { title: "At", value: (f) => clock(f.at), class: "nowrap" },
      { title: "Node", value: (f) => f.node },
      { title: "Actor", value: (f) => f.name || f.actor },
      { title: "Message", value: (f) => f.message || "", class: "number" },
      { title: "Error", value: (f) => f.text },
      { title: "Trace", value: (f) => f.trace, class: "dim" },
    ],
    empty: "No handler has failed lately.",
  });
  main.append(el("h1", {}, "Actors"), el("div", { class: "filters" }, labelled("Name or type", match)), busiest.element, more,
    el("h2", {}, "Handlers, by the time they took"), handlers.element, el("h2", {}, "Last errors"), failures.element);
  const flat = (answers, list) => answers.flatMap((n) => (list(n.data) ?? []).map((x) => ({ ...x, node: n.id })));
  let round = 0;
  return {
    update: async () => {
      const all = await get("each/actors", { match: match.value, n: 50 });
      busiest.show(flat(all, (d) => d?.actors).sort((a, b) => b.queued - a.queued || (a.node < b.node ? -1 : 1)).slice(0, 100));
      more.textContent = `${count(all.reduce((n, x) => n + (x.data?.all ?? 0), 0))} actors match; the fullest mailboxes are shown.`;
      failures.show(flat(all, (d) => d?.failures).sort((a, b) => (a.at < b.at ? 1 : -1)).slice(0, 64));
      if (round++ % 3 === 0) handlers.show(flat(await get("each/handlers"), (d) => d).sort((a, b) => b.seconds - a.seconds).slice(0, 100));
    },
  };
}
