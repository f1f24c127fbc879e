// @ts-check
// One object: where it lives, where it has been, and a move.
import { get, post } from "./api.js";
import { clock, el, labelled, perform, setText, span, sure, Table } from "./dom.js";

export const title = "";

/** @type {(main: HTMLElement, me: any, args: string[]) => any} */
export function show(main, me, [type, zone, id]) {
  const key = { type, zone, id };
  const name = `${type}/${zone}/${id}`;
  const where = el("p", { class: "facts", "data-testid": "where" });
  const history = new Table({
    name: "history", key: (p) => `${p.node} ${p.number}`,
    columns: [
      { title: "At", value: (p) => clock(p.at), class: "nowrap" },
      { title: "Node", value: (p) => p.node },
      { title: "What", value: (p) => (p.to ? `${p.what} to ${p.to}` : p.what) },
      { title: "Version", value: (p) => p.version, class: "number" },
      { title: "Pause", value: (p) => (p.pause ? span(p.pause) : ""), class: "number" },
    ],
    empty: "The nodes remember nothing of it.",
  });
  const to = el("select", { "data-testid": "to", "aria-label": "Node that is to have it" });
  const move = el("form", {
    class: "filters", hidden: !me.operator, submit: async (e) => {
      e.preventDefault();
      const node = to.value;
      if (!await sure(`Move ${name} to ${node}?`, ["Requests to it wait for a moment, and none is lost."], "Move")) return;
      await perform(`${name} goes to ${node}`, async () => {
        const m = await post("move", { ...key, to: node });
        return m.from.version === m.to.version ? `${node} has it already` : `${name} went from ${m.from.owner} to ${m.to.owner}, version ${m.to.version}, in ${span(m.took)}`;
      });
    },
  }, labelled("Move to", to), el("button", { class: "main", "data-testid": "move" }, "Move"));
  main.append(el("h1", {}, name), where, move, el("p", {}, el("a", { href: `#/trace?${new URLSearchParams(key)}` }, "Trace what it handles")), el("h2", {}, "History"), history.element);
  return {
    update: async () => {
      const [route, all, nodes] = await Promise.all([get("object", key).catch((e) => e), get("each/history", { ...key, n: 200 }), get("each/node")]);
      if (route instanceof Error) setText(where, route.message);
      else where.replaceChildren(...[["owner", route.owner || "nobody"], ["route version", route.version]].map(([k, v]) => el("span", {}, `${k} `, el("b", { "data-fact": k }, v))));
      history.show(all.flatMap((n) => (n.data ?? []).map((p) => ({ ...p, node: n.id }))).sort((a, b) => (a.at < b.at ? 1 : -1)));
      const ready = nodes.filter((n) => n.state === "ready").map((n) => n.id);
      for (const o of [...to.options]) if (!ready.includes(o.value)) o.remove();
      for (const n of ready) if (![...to.options].some((o) => o.value === n)) to.append(el("option", { value: n }, n));
    },
  };
}
