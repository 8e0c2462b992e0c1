"use strict";
// What a page can do with JavaScript: times as the reader likes them, changes without a reload, and marks.

// Times. The server writes them in UTC.

const relative = document.getElementById("relative"), zone = document.getElementById("zone");

function preference(name, otherwise) {
  try { return localStorage.getItem("redisdelay " + name) ?? otherwise; } catch { return otherwise; }
}

function prefer(name, value) {
  try { localStorage.setItem("redisdelay " + name, value); } catch { /* it holds until the page is left */ }
}

let ago = preference("relative", "yes") === "yes", utc = preference("zone", "local") === "utc";

const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

function distance(milliseconds) {
  let seconds = Math.round(Math.abs(milliseconds) / 1000);
  if (seconds === 0) return "now";
  const first = units.findIndex(([, size]) => seconds >= size);
  let text = "";
  for (const [name, size] of units.slice(first, first + 2)) {
    const n = Math.floor(seconds / size);
    if (n > 0) text += n + name;
    seconds -= n * size;
  }
  return milliseconds > 0 ? "in " + text : text + " ago";
}

const two = n => String(n).padStart(2, "0");

function absolute(at) {
  if (utc) return at.toISOString().replace("T", " ").slice(0, 19) + " UTC";
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

function showTimes(root) {
  for (const element of root.querySelectorAll("time")) {
    const at = new Date(element.dateTime);
    const text = ago ? distance(at - Date.now()) : absolute(at);
    if (element.textContent !== text) element.textContent = text;
    element.title = absolute(at) + "\n" + at.toISOString();
  }
}

function showPreferences() {
  relative.setAttribute("aria-pressed", ago);
  zone.setAttribute("aria-pressed", utc);
  showTimes(document);
}

relative.addEventListener("click", () => { ago = !ago; prefer("relative", ago ? "yes" : "no"); showPreferences(); });
zone.addEventListener("click", () => { utc = !utc; prefer("zone", utc ? "utc" : "local"); showPreferences(); });
document.querySelector(".tools").hidden = false;
setInterval(() => { if (!selecting()) showTimes(document); }, 1000);

// Live pages. The server sends the page again when it has changed; what is marked as live takes its place.

const status = document.getElementById("status");

function selecting() {
  const selection = document.getSelection();
  return selection !== null && !selection.isCollapsed;
}

// busy says if somebody works with a part of the page, which must not be taken from under their hands.
function busy(element) {
  const focused = document.activeElement;
  return element.contains(focused) && focused.matches("input, select, textarea, button, summary") ||
    element.querySelector("input:checked, details[open]") !== null;
}

function show(text) {
  if (selecting()) return;
  const page = new DOMParser().parseFromString(text, "text/html");
  for (const old of document.querySelectorAll("[data-live]")) {
    const fresh = page.getElementById(old.id);
    if (!fresh || busy(old)) continue;
    showTimes(fresh);
    if (old.isEqualNode(fresh)) continue;
    const path = pathToFocus(old);
    old.replaceWith(fresh);
    restoreFocus(fresh, path);
    if (fresh.dataset.url) history.replaceState(null, "", fresh.dataset.url);
  }
}

// pathToFocus is where the focus is in a part of the page: a link keeps it when the part is replaced.
function pathToFocus(root) {
  const path = [];
  for (let element = document.activeElement; root.contains(element) && element !== root; element = element.parentElement) {
    path.unshift([...element.parentElement.children].indexOf(element));
  }
  return path;
}

function restoreFocus(root, path) {
  if (path.length === 0) return;
  let element = root;
  for (const i of path) element = element?.children[i];
  element?.focus({ preventScroll: true });
}

let stream = null;

function watch() {
  const url = document.body.dataset.stream;
  if (!url || stream || document.hidden) return;
  stream = new EventSource(url);
  stream.addEventListener("page", event => { tell("live", "live"); show(event.data); });
  stream.addEventListener("trouble", event => tell("lost", event.data));
  stream.onopen = () => tell("live", "live");
  stream.onerror = () => tell("lost", "no connection");
}

function tell(state, text) {
  status.className = state;
  if (status.textContent !== text) status.textContent = text;
}

function rest() {
  stream?.close();
  stream = null;
}

document.addEventListener("visibilitychange", () => document.hidden ? rest() : watch());
addEventListener("pagehide", rest);
addEventListener("pageshow", watch);

// Marks.

const marked = document.getElementById("marked"), all = document.getElementById("mark-all");

function marks() { return [...marked.querySelectorAll("input[name=mark]")]; }

function countMarks() {
  const n = marks().filter(box => box.checked).length;
  document.getElementById("marks").textContent = n === 0 ? "none marked" : n + " marked";
  all.checked = n > 0 && n === marks().length;
  for (const button of marked.querySelectorAll(".bar button")) button.disabled = n === 0;
}

if (marked && all) {
  all.closest("label").hidden = false;
  all.addEventListener("change", () => { for (const box of marks()) box.checked = all.checked; countMarks(); });
  marked.addEventListener("change", countMarks);
  addEventListener("pageshow", countMarks);
}

addEventListener("keydown", event => {
  if (event.key === "/" && !event.target.matches("input, select, textarea")) {
    event.preventDefault();
    document.querySelector(".find input")?.focus();
  }
});

showPreferences();
watch();
