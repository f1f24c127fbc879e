// @ts-check
// The frame: who looks, which page, and when it is looked at again.
import { ApiError, get, token } from "./api.js";
import { el, setText } from "./dom.js";
import * as actors from "./actors.js";
import * as call from "./call.js";
import * as charts from "./charts.js";
import * as drain from "./drain.js";
import * as nodes from "./nodes.js";
import * as object from "./object.js";
import * as objects from "./objects.js";
import * as sessions from "./sessions.js";
import * as trace from "./trace.js";

/** A page: show fills main and returns how it is kept up, and what ends it.
 * @typedef {{update?: () => Promise<void>, every?: number, stop?: () => void}} Shown
 * @typedef {{role: string, node: string, app: string, operator: boolean}} Me
 * @type {Record<string, {title: string, inNav?: boolean, show: (main: HTMLElement, me: Me, args: string[], query: URLSearchParams) => Shown}>} */
const pages = { nodes, actors, sessions, objects, trace, call, charts, object, drain };

const at = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const main = at("main");
/** @type {Me|undefined} */
let me;
/** @type {Shown} */
let shown = {};
/** @type {ReturnType<typeof setTimeout>|undefined} */
let timer;
let turn = 0; // rises with each page: what an older one asked for changes nothing

async function start() {
  if (location.hash.startsWith("#token=")) {
    token.set(decodeURIComponent(location.hash.slice("#token=".length)));
    history.replaceState(null, "", location.pathname); // out of the address, and of what is kept of it
  }
  if (!token.get()) return login("");
  let who;
  try {
    who = await get("me");
  } catch (e) {
    return login(e instanceof ApiError && e.status === 401 ? "This token is not known here." : String(e));
  }
  me = { ...who, operator: who.role === "operator" };
  document.title = `${who.app} console`;
  setText(at("app"), who.app);
  setText(at("who"), `${who.role} at ${who.node}`);
  at("nav").replaceChildren(...Object.entries(pages).filter(([, p]) => p.title).map(([name, p]) => el("a", { href: `#/${name}`, "data-page": name }, p.title)));
  at("head").hidden = false;
  show();
}

function login(text) {
  end();
  me = undefined;
  token.forget();
  at("head").hidden = true;
  const field = el("input", { type: "password", autocomplete: "off", required: true, "data-testid": "token" });
  const fault = el("p", { class: "bad", role: "alert", "data-testid": "fault" }, text);
  main.replaceChildren(el("form", {
    class: "login card", submit: (e) => {
      e.preventDefault();
      token.set(field.value.trim());
      void start();
    },
  }, el("h1", {}, "Console"), el("label", {}, "Token: console.read_token, or console.operator_token", field), fault, el("button", { class: "main" }, "Log in")));
  field.focus();
}

function end() {
  clearTimeout(timer);
  turn++;
  shown.stop?.();
  shown = {};
}

function show() {
  if (!me) return;
  end();
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...args] = path.split("/").map(decodeURIComponent);
  const page = Object.hasOwn(pages, name) ? pages[name] : nodes;
  for (const a of at("nav").children) {
    const is = /** @type {HTMLElement} */ (a).dataset.page === (name === "object" ? "objects" : name === "drain" || !Object.hasOwn(pages, name) ? "nodes" : name);
    if (is) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  main.replaceChildren();
  shown = page.show(main, me, args, new URLSearchParams(query));
  void update(turn);
}

const trouble = el("p", { class: "bad", role: "alert", "data-testid": "trouble" });

/** Brings the page up to date, and again after a while: not while nobody sees it. */
async function update(of) {
  if (of !== turn) return;
  if (!document.hidden) {
    try {
      await shown.update?.();
      trouble.remove();
    } catch (e) {
      if (of !== turn) return;
      setText(trouble, e instanceof ApiError ? e.message : `The console does not answer (${e instanceof Error ? e.message : e}). Where its node has stopped, use that of another.`);
      if (!trouble.isConnected) main.prepend(trouble);
    }
  }
  if (of === turn) timer = setTimeout(() => void update(of), shown.every ?? 1000);
}

addEventListener("hashchange", () => {
  if (location.hash.startsWith("#token=")) void start();
  else if (location.hash !== "#main") {
    show();
    main.focus();
  }
});
addEventListener("unauthorized", () => { if (me) login("The token is not good any more."); });
at("leave").addEventListener("click", () => login(""));
void start();
