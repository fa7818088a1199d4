// Elements, numbers and requests. Every text goes through textContent: nothing that a run says is ever markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child)))));
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export function replace(parent, ...children) {
  parent.replaceChildren(...children.flat(Infinity).filter(Boolean));
}

export const query = () => new URLSearchParams(location.search);

export function address(path, values) {
  const kept = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") kept.append(name, one);
    }
  }
  const text = kept.toString();
  return text ? `${path}?${text}` : path;
}

// Put the moment, the player and so on into the address, which can then be shared.
export function remember(values) {
  const now = Object.fromEntries(query());
  history.replaceState(null, "", address(location.pathname, { ...now, ...values }));
}

export async function get(path, values = {}) {
  return answered(await fetch(address(path, values), { credentials: "same-origin" }));
}

export async function post(path, given) {
  const headers = { "content-type": "application/json" };
  return answered(await fetch(path, { method: "POST", headers, body: JSON.stringify(given), credentials: "same-origin" }));
}

async function answered(response) {
  const text = await response.text();
  let found = null;
  try { found = JSON.parse(text); } catch { /* said below */ }
  if (!response.ok || found === null) throw new Error(found?.error ?? (text.trim() || `status ${response.status}`));
  return found;
}

export function number(value, digits = 0) {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  return Number(value).toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });
}

// Three or four digits that count, for axes and read-outs.
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  const size = Math.abs(value);
  if (size >= 1e4) return Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value);
  if (size !== 0 && size < 1e-3) return value.toExponential(1);
  return String(Number(value.toPrecision(4)));
}

export const percent = (value) => (value === null || value === undefined ? "" : `${number(100 * value, 1)} %`);

export function clock(seconds) {
  return seconds ? new Date(1000 * seconds).toISOString().replace("T", " ").slice(0, 19) + " UTC" : "";
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const whole = Math.max(0, Math.floor(seconds));
  const days = Math.floor(whole / 86400), hours = Math.floor(whole / 3600) % 24, minutes = Math.floor(whole / 60) % 60;
  const two = (value) => String(value).padStart(2, "0");
  return `${days ? `${days} d ` : ""}${hours || days ? `${hours}:${two(minutes)}` : minutes}:${two(whole % 60)}`;
}

export function save(name, text, type) {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export function failed(error) {
  return h("p", { class: "problem", role: "alert" }, error.message ?? error);
}
