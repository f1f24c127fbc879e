// @ts-check
import { get, post } from "./api.js";
import { count, el, labelled, perform, sure, Table } from "./dom.js";

export const title = "Sessions";

/** @type {(main: HTMLElement, me: any) => any} */
export function show(main, me) {
  const match = el("input", { type: "search", "data-testid": "match", maxlength: 200 });
  const more = el("p", { class: "dim", "data-testid": "more" });
  const table = new Table({
    name: "sessions", key: (s) => `${s.node} ${s.id} ${s.generation}`,
    columns: [
      { title: "User", value: (s) => s.user },
      { title: "Session", value: (s) => s.id, class: "nowrap" },
      { title: "Gate", value: (s) => s.node },
      { title: "State", value: (s) => el("span", { class: s.away ? "busy" : "good" }, s.away ? "away" : "connected") },
      { title: "Address", value: (s) => s.remote ?? "" },
      { title: "Client", value: (s) => s.client ?? "" },
      { title: "Objects", value: (s) => count(s.objects), class: "number" },
      { title: "Groups", value: (s) => count(s.groups), class: "number" },
      { title: "Unread bytes", value: (s) => count(s.unread), class: "number" },
    ],
    actions: (s) => [
      el("a", { href: `#/trace?user=${encodeURIComponent(s.user)}` }, "Trace"), " ",
      me.operator ? el("button", { type: "button", class: "danger", "data-act": "kick", click: () => kick(s.user) }, "Kick") : null,
    ].filter(Boolean),
    empty: "No session matches.",
  });
  main.append(el("h1", {}, "Sessions"), el("div", { class: "filters" }, labelled("User, session, client or address", match)), table.element, more);
  return {
    update: async () => {
      const all = await get("each/sessions", { match: match.value, n: 100 });
      table.show(all.flatMap((n) => (n.data?.sessions ?? []).map((s) => ({ ...s, node: n.id }))).sort((a, b) => (a.user < b.user ? -1 : 1)).slice(0, 200));
      more.textContent = `${count(all.reduce((n, x) => n + (x.data?.all ?? 0), 0))} sessions match.`;
    },
  };
}

async function kick(user) {
  const text = el("input", { maxlength: 120, "data-testid": "kick-text" });
  const code = el("input", { type: "number", min: 4000, max: 4999, value: "4000" });
  const yes = await sure(`Kick ${user}?`, ["All sessions of this user are closed, at whatever gates.", labelled("What the user is told", text), labelled("Close code, 4000 to 4999", code)], "Kick");
  if (!yes) return;
  await perform(`${user} is kicked`, async () => {
    const done = await post("kick", { user, text: text.value, code: code.value });
    return `${user}: ${done.sessions} sessions closed`;
  });
}
