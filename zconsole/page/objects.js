// @ts-check
import { get } from "./api.js";
import { ago, count, el, keyText, labelled, objectHash, Table } from "./dom.js";

export const title = "Objects";

/** @type {(main: HTMLElement) => any} */
export function show(main) {
  const match = el("input", { type: "search", "data-testid": "match", maxlength: 200 });
  const kind = el("select", { "data-testid": "kind" }, el("option", { value: "" }, "all"));
  const owner = el("select", { "data-testid": "owner" }, el("option", { value: "" }, "all"));
  const more = el("p", { class: "dim", "data-testid": "more" });
  const table = new Table({
    name: "objects", key: (o) => `${o.node} ${keyText(o.key)}`,
    columns: [
      { title: "Kind", value: (o) => o.kind },
      { title: "Key", value: (o) => el("a", { href: objectHash(o.key) }, keyText(o.key)), once: true },
      { title: "Owner", value: (o) => o.node },
      { title: "Version", value: (o) => o.version, class: "number" },
      { title: "State", value: (o) => o.phase },
      { title: "Waiting", value: (o) => count(o.waiting), class: "number" },
      { title: "Used", value: (o) => ago(o.used), class: "number" },
      { title: "Unsaved for", value: (o) => ago(o.unsaved), class: "number" },
    ],
    empty: "No object in memory matches. One that nobody uses has no owner: look it up by its key.",
  });
  const typ = el("input", { inputmode: "numeric", pattern: "[0-9]+", required: true, size: 8, "aria-label": "Type, the number of the kind" });
  const zone = el("input", { inputmode: "numeric", pattern: "[0-9]*", size: 5, value: "0", "aria-label": "Zone" });
  const id = el("input", { required: true, "aria-label": "Id" });
  main.append(el("h1", {}, "Objects in memory"),
    el("div", { class: "filters" }, labelled("Id has", match), labelled("Kind", kind), labelled("Owner", owner)), table.element, more,
    el("h2", {}, "By key"), el("form", {
      class: "filters", submit: (e) => {
        e.preventDefault();
        location.hash = objectHash({ Type: typ.value, Zone: zone.value || 0, ID: id.value });
      },
    }, labelled("Type", typ), labelled("Zone", zone), labelled("Id", id), el("button", {}, "Look")));
  const options = (select, names) => {
    for (const name of names) if (![...select.options].some((o) => o.value === name)) select.append(el("option", { value: name }, name));
  };
  void get("each/node").then((all) => options(kind, all.flatMap((n) => (n.data?.kinds ?? []).map((k) => k.name)))).catch(() => {});
  return {
    update: async () => {
      const all = (await get("each/objects", { match: match.value, kind: kind.value, n: 100 }));
      options(owner, all.map((n) => n.id));
      const of = all.filter((n) => !owner.value || n.id === owner.value);
      table.show(of.flatMap((n) => (n.data?.objects ?? []).map((o) => ({ ...o, node: n.id }))).sort((a, b) => (a.used < b.used ? 1 : -1)).slice(0, 200));
      more.textContent = `${count(of.reduce((n, x) => n + (x.data?.all ?? 0), 0))} objects match; those used last are shown.`;
    },
  };
}
