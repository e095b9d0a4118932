// Brings news into a page that is open. Pages work without it.
"use strict";

const page = document.body.dataset.page;
/** A run that has ended changes no more. */
const follows = page !== "run" || document.body.dataset.follow !== undefined;

/** Returns what says that two elements are the same thing. */
function key(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.dataset.key || node.id || "" : "";
}

function isSame(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && key(a) === key(b);
}

/** Whether somebody has filled in a form: news do not replace it. */
function isInUse(node) {
  return node.nodeName === "FORM" && node.dataset.question !== undefined;
}

/** Makes an element what another one is, and keeps what has not changed: focus, selection, open details, places of scrolling. */
function morph(from, to) {
  if (from.isEqualNode(to) || isInUse(from)) return;
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name) && name !== "open") from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  if (from.nodeName === "PRE") {
    const isAtEnd = from.scrollTop + from.clientHeight >= from.scrollHeight - 8;
    if (from.textContent !== to.textContent) from.textContent = to.textContent;
    if (isAtEnd) from.scrollTop = from.scrollHeight;
    return;
  }
  const old = [...from.childNodes];
  let place = from.firstChild;
  for (const child of [...to.childNodes]) {
    const at = old.findIndex((other) => isSame(other, child));
    if (at < 0) {
      from.insertBefore(child, place);
      continue;
    }
    const [kept] = old.splice(at, 1);
    if (kept === place) place = place.nextSibling;
    else from.insertBefore(kept, place);
    if (kept.nodeType === Node.ELEMENT_NODE) morph(kept, child);
    else if (kept.nodeValue !== child.nodeValue) kept.nodeValue = child.nodeValue;
  }
  old.forEach((node) => node.remove());
}

function replacePart(id, html) {
  const part = document.getElementById(id);
  if (!part) return;
  // A document of its own: nothing in it is loaded or run before it is in the page.
  const parsed = new DOMParser().parseFromString(html, "text/html");
  const to = part.cloneNode(false);
  to.append(...parsed.body.childNodes);
  morph(part, to);
  part.querySelectorAll("pre[data-stream]").forEach((pre) => {
    if (!pre.dataset.seen) pre.scrollTop = pre.scrollHeight;
    pre.dataset.seen = "true";
  });
}

/** More output than this is left to the page that shows all of it. */
const MOST_SHOWN = 1 << 20;

function addOutput(id, text) {
  let pre = [...document.querySelectorAll(`#texts [id="${id}"], #texts [id="${id}"] ~ pre`)].pop();
  if (!pre) return;
  const isAtEnd = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 8;
  pre.append(text);
  while (pre.firstChild !== pre.lastChild && pre.textContent.length > MOST_SHOWN) pre.firstChild.remove();
  if (isAtEnd) pre.scrollTop = pre.scrollHeight;
}

function say(state, text) {
  const live = document.getElementById("live");
  if (live.dataset.state === state) return;
  live.dataset.state = state;
  live.textContent = text;
}

/** The stream of news; null while the page is hidden for long. */
let events = null;

function follow() {
  const query = new URLSearchParams({ page });
  const texts = document.getElementById("texts");
  if (page === "run") {
    query.set("run", document.body.dataset.run);
    query.set("stdout", texts.dataset.stdout);
    query.set("stderr", texts.dataset.stderr);
  }
  events = new EventSource(`/console/live?${query}`);
  events.onopen = () => say("open", "live");
  events.onmessage = ({ data }) => {
    const news = JSON.parse(data);
    if (news.gone) {
      events.close();
      location.reload();
    } else if (news.output) {
      addOutput(news.output, news.text);
      texts.dataset[news.output] = news.next;
    } else {
      replacePart(news.id, news.html);
      if (news.id === "questions") document.title = document.title.replace(/^(\(\d+\) )?/, news.html && `(${news.html}) `);
    }
  };
  events.onerror = () => {
    say("lost", "no connection");
    stop();
    setTimeout(() => events || follow(), 3000);
  };
}

function stop() {
  events?.close();
  events = null;
}

/** Browsers have few connections for one site. A page that nobody sees gives its own back, unless it waits for questions. */
let hidden = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hidden);
  if (!follows || page === "approvals") return;
  if (document.hidden) hidden = setTimeout(stop, 5 * 60 * 1000);
  else if (!events) follow();
});
addEventListener("pagehide", stop);

/** Says a duration as the server does. */
function duration(milliseconds) {
  const seconds = Math.floor(milliseconds / 1000);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

/** Lets the clocks of runs go on between news. */
function tick() {
  const now = performance.now();
  for (const clock of document.querySelectorAll("[data-elapsed]")) {
    if (clock.seen !== clock.dataset.elapsed) [clock.seen, clock.since] = [clock.dataset.elapsed, now];
    clock.textContent = duration(Number(clock.dataset.elapsed) + now - clock.since);
  }
}

document.querySelector("[aria-current=page]")?.scrollIntoView({ block: "nearest", inline: "center" });

/** Adds the time of this place to moments. */
for (const moment of document.querySelectorAll("time")) {
  moment.title = `${new Date(moment.dateTime).toLocaleString()} (${moment.title})`;
}

if (follows) follow();
if (page === "now" || page === "run") setInterval(tick, 1000);
