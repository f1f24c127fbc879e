// @ts-check
// The way to the console's API. The token lives in this tab: no cookie, so no other page's request carries it.

const tokenKey = "zgame-console-token";

export const token = {
  get: () => sessionStorage.getItem(tokenKey) ?? "",
  set: (t) => sessionStorage.setItem(tokenKey, t),
  forget: () => sessionStorage.removeItem(tokenKey),
};

/** An answer that is no success. */
export class ApiError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function ask(method, path, params, body, signal) {
  const query = new URLSearchParams(params).toString();
  const response = await fetch(`api/${path}${query ? `?${query}` : ""}`, {
    method, body, signal, headers: { Authorization: `Bearer ${token.get()}` }, cache: "no-store", credentials: "omit", redirect: "error",
  });
  if (response.ok) return response;
  const text = await response.text();
  let error = text;
  try {
    error = JSON.parse(text).error ?? text;
  } catch {
    // it is text
  }
  if (response.status === 401) dispatchEvent(new Event("unauthorized"));
  throw new ApiError(response.status, error);
}

/** Asks for JSON. @param {string} path @param {Record<string, any>} [params] @param {AbortSignal} [signal] */
export async function get(path, params = {}, signal) {
  return await (await ask("GET", path, params, undefined, signal)).json();
}

/** Has something done. @param {string} path @param {Record<string, any>} [params] @param {string} [body] */
export async function post(path, params = {}, body) {
  return await (await ask("POST", path, params, body)).json();
}

/** Calls f for each line of JSON, until signal, or the end. @param {string} path @param {Record<string, any>} params @param {(line: any) => void} f @param {AbortSignal} signal */
export async function follow(path, params, f, signal) {
  const reader = (await ask("GET", path, params, undefined, signal)).body?.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; reader;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line) f(JSON.parse(line));
  }
}
