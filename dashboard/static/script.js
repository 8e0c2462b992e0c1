"use strict";
// What a page can do with JavaScript: times as the reader likes them, changes without a reload, and marks.

// Times. The server writes them in UTC.

const times = document.getElementById("times");

try { times.value = localStorage.getItem("redisdelay times") ?? "ago"; } catch { /* a browser that keeps nothing */ }

const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

function relative(at) {
  let seconds = Math.round(Math.abs(at - Date.now()) / 1000), text = "";
  const first = units.findIndex(([, size]) => seconds >= size);
  for (const [name, size] of units.slice(first, first + 2)) {
    const n = Math.floor(seconds / size);
    if (n > 0) text += n + name;
    seconds -= n * size;
  }
  return !text ? "just now" : at > Date.now() ? "in " + text : text + " ago";
}

// zone is the time zone of all times on the page, which its last line names.
function zone() { return times.value === "utc" ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone; }
function part(at, options) { return at.toLocaleString("en-GB", { timeZone: zone(), ...options }); }
function absolute(at) { return at.toLocaleString("sv", { timeZone: zone() }); } // which is written as 2006-01-02 15:04:05

// forms are how a time stands in a sentence, or at the axis of a chart.
const forms = {
  "": at => times.value === "ago" ? relative(at) : absolute(at),
  clock: at => part(at, { timeStyle: "short" }),
  seconds: at => part(at, { timeStyle: "medium" }),
  axis: at => forms.clock(at) + (forms.day(at) === forms.day(new Date(at - 4 * 3600e3)) ? "" : "\n" + forms.day(at)), // its steps are 4 hours
  life: at => (forms.day(at) === forms.day(new Date()) ? "" : forms.day(at) + ", ") + forms.seconds(at) + ` (${relative(at).replaceAll(" ", "\u00a0")})`,
  day: at => part(at, { day: "numeric", month: "short" }),
  around: at => forms.day(at) === forms.day(new Date()) ? forms.clock(at) : `${forms.clock(at)} on ${forms.day(at)}`,
};

// nameCells lets a narrow screen, which shows each row as a card, show the names of the columns.
function nameCells(root) {
  for (const cell of root.querySelectorAll(".wide td")) cell.dataset.column = cell.closest("table").tHead.rows[0].cells[cell.cellIndex].textContent.trim();
}

function showTimes(root) {
  for (const element of root.querySelectorAll("time")) {
    const at = new Date(element.dateTime);
    const text = forms[element.dataset.form ?? ""](at);
    if (element.textContent !== text) element.textContent = text;
    element.title = absolute(at);
  }
  for (const hint of root.querySelectorAll("title[data-until]")) {
    hint.textContent = `${hint.dataset.count} before ${absolute(new Date(hint.dataset.until))}`;
  }
  document.getElementById("zone").textContent = zone();
}

// prepare adds to a part of a page what it has with JavaScript.
function prepare(root) { showTimes(root); nameCells(root); offerCopies(root); }

times.addEventListener("change", () => {
  showTimes(document);
  try { localStorage.setItem("redisdelay times", times.value); } catch { /* it holds until the page is left */ }
});
document.querySelector(".tools").hidden = false;
setInterval(() => {
  if (selecting()) return;
  showTimes(document);
  if (late !== null) show(late);
}, 1000);

// Live pages. The server sends the page again when it has changed; what is marked as live takes its place.

const status = document.getElementById("status"), trouble = document.getElementById("trouble");

function selecting() { return document.getSelection()?.isCollapsed === false; }

// busy says if somebody works with a part of the page, which must not be taken from under their hands.
function busy(element) {
  const focused = document.activeElement;
  return element.contains(focused) && focused.matches("input, select, textarea, button, summary") ||
    element.querySelector("details[open]") !== null ||
    [...element.querySelectorAll("input")].some(box => box.checked !== box.defaultChecked);
}

// late is a page that came while somebody was at work with this one.
let late = null;

function show(text) {
  late = text;
  if (selecting()) return;
  const page = new DOMParser().parseFromString(text, "text/html");
  late = null;
  document.title = page.title;
  if (document.querySelector("[data-url]") && !page.querySelector("[data-url]")) {
    location.reload(); // another process, which does not know the operation: the URL has how far it was
    return;
  }
  for (const old of document.querySelectorAll("[data-live]")) {
    const fresh = page.getElementById(old.id);
    if (!fresh) continue;
    prepare(fresh);
    if (old.isEqualNode(fresh)) continue;
    if (busy(old)) { late = text; continue; }
    patch(old, fresh.cloneNode(true)); // patch takes it apart, and another live part may be in it
  }
  keepPlace();
}

// keepPlace puts into the URL how far an operation is, so that it can be gone on with from there.
function keepPlace() {
  const url = document.querySelector("[data-url]")?.dataset.url;
  if (url) history.replaceState(null, "", url);
}

// patch makes a part of the page like a fresh one, and leaves what is the same: with the focus, and where it was scrolled to.
function patch(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeName !== fresh.nodeName) { old.replaceWith(fresh); return; }
  if (old.nodeType !== Node.ELEMENT_NODE) { old.data = fresh.data; return; }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const focused = document.activeElement;
  patchChildren(old, fresh);
  if (focused !== document.activeElement && old.contains(focused)) focused.focus({ preventScroll: true });
}

function patchChildren(old, fresh) {
  const rows = new Map([...old.children].map(child => [keyOf(child), child]));
  let at = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const key = keyOf(child), same = key ? rows.get(key) : at && !keyOf(at) ? at : null;
    if (!same || same.nodeName !== child.nodeName) { old.insertBefore(child, at); continue; }
    rows.delete(key);
    if (same !== at) old.insertBefore(same, at);
    at = same.nextSibling;
    patch(same, child);
  }
  while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
}

// keyOf is what a row is about, wherever it stands: a row must not become another one under somebody's finger.
function keyOf(node) {
  const head = node.nodeName === "TR" ? node.querySelector("th") : null;
  return head ? head.querySelector("a")?.getAttribute("href") ?? head.textContent : node.id || "";
}

let stream = null, again = 0;

function watch() {
  const url = document.body.dataset.stream;
  if (!url || stream || document.hidden) return;
  stream = new EventSource(url);
  stream.addEventListener("page", event => { tell("live", "live"); show(event.data); });
  stream.addEventListener("trouble", event => tell("lost", ...event.data.split("\n")));
  stream.onopen = () => tell("live", "live");
  stream.onerror = lost;
}

// lost opens another stream if the browser does not: it gives one up after any answer but 200, such as that of a proxy during
// a deployment.
function lost(event) {
  if (!status.matches(".lost")) tell("lost", "No connection to the dashboard", Date.now());
  if (event.target !== stream || stream.readyState !== EventSource.CLOSED) return;
  rest();
  again = setTimeout(watch, 5000);
}

// tell says how the page is. If it is not live, a banner says since when.
function tell(state, text, since) {
  status.className = state;
  status.textContent = state;
  trouble.hidden = !since;
  if (since) trouble.textContent = `${text}; data as of ${absolute(new Date(since))}.`;
}

function rest() {
  clearTimeout(again);
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
  document.getElementById("marks").textContent = n ? n + " selected" : "";
  all.checked = n > 0 && n === marks().length;
  for (const act of marked.querySelectorAll(".bar :is(span:has(button), .all)")) act.hidden = act.matches(".all") === n > 0;
}

if (marked && all) {
  all.closest("label").hidden = false;
  all.addEventListener("change", () => { for (const box of marks()) box.checked = all.checked; countMarks(); });
  marked.addEventListener("change", countMarks);
  addEventListener("pageshow", countMarks);
}

// Copies of ids, of which a double click would select a part.

function offerCopies(root) {
  for (const id of navigator.clipboard ? root.querySelectorAll("[data-copy]") : []) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Copy", ariaLabel: "Copy " + (id.dataset.copy || id.ariaLabel) });
    id.after(" ", button);
  }
}

document.addEventListener("click", async event => {
  const id = event.target.previousElementSibling;
  if (event.target.matches("[data-copy] + button")) { await navigator.clipboard.writeText(id.dataset.copy || id.textContent); event.target.textContent = "Copied"; }
});

// A form with a wrong field comes back with what was typed. The message moves beside the field.

const wrong = document.getElementById("wrong");

if (wrong) {
  const typed = new URLSearchParams(wrong.dataset.typed), at = location.origin + location.pathname;
  const form = [...document.forms].find(f => f.method === "get" ? f.action === at : f.action === location.href);
  for (const field of form?.elements ?? []) {
    if (field.type === "checkbox") field.checked = typed.getAll(field.name).includes(field.value);
    else if (field.type !== "hidden" && typed.has(field.name)) field.value = typed.get(field.name);
  }
  const field = form?.elements[wrong.dataset.field];
  if (field) {
    field.closest("details")?.setAttribute("open", "");
    field.setAttribute("aria-invalid", "true");
    field.setAttribute("aria-describedby", "wrong");
    field.closest("label").after(wrong);
    field.focus();
  }
  history.replaceState(null, "", wrong.dataset.page);
}

prepare(document);
keepPlace();
watch();
