// The page of a running job: asks its server for the next one, and puts in what has changed. What the reader uses stands still.
"use strict";

(() => {
  const RETRY_MS = 2000, ANSWER_MS = 60000;
  const line = document.getElementById("live"), words = document.getElementById("live-words");
  const pause = document.getElementById("live-pause");
  if (!line.dataset.runs) return;
  const PARTS = "header, nav, main > section";
  const nameOf = (part) => part.id || part.localName;
  const served = new Map([...document.querySelectorAll(PARTS)].map((part) => [nameOf(part), part.outerHTML]));
  const drawing = { learning: hocket.learning, timeline: hocket.timeline };
  let mark = null, timer = 0, paused = false, said = words.textContent;

  const inUse = (part) => part.contains(document.activeElement) || part.contains(getSelection().anchorNode) && !getSelection().isCollapsed;

  function say(text) {
    if (words.textContent !== text) words.textContent = text;
  }

  /** Puts `fresh` in the place of `part`, with the same details open. */
  function replace(part, fresh) {
    const open = new Set([...part.querySelectorAll("details[open] > summary")].map((each) => each.textContent));
    for (const each of fresh.querySelectorAll("details > summary")) {
      if (open.has(each.textContent)) each.parentElement.open = true;
    }
    part.replaceWith(fresh);
  }

  function put(page) {
    const main = document.querySelector("main"), redraw = [];
    let before = null;
    const wanted = [...page.querySelectorAll(PARTS)];
    for (const part of [...main.children]) {
      if (!wanted.some((each) => each.id === part.id) && !inUse(part)) part.remove();
    }
    for (const each of wanted) {
      const name = nameOf(each), isSection = each.localName === "section";
      let part = isSection ? document.getElementById(name) : document.querySelector(`body > ${name}`);
      if (part && isSection && part.parentElement !== main) part = null;
      if (!part || (served.get(name) !== each.outerHTML && !inUse(part))) {
        const fresh = document.importNode(each, true);
        if (part) replace(part, fresh);
        else main.insertBefore(fresh, before ? before.nextSibling : main.firstChild);
        part = fresh;
        served.set(name, each.outerHTML);
        if (name in drawing) redraw.push(drawing[name]);
      }
      if (isSection) before = part;
    }
    for (const draw of redraw) draw();
    const live = page.getElementById("live");
    said = page.getElementById("live-words").textContent;
    say(said);
    return Boolean(live.dataset.runs);
  }

  async function next() {
    let wait = RETRY_MS, runs = true;
    try {
      const headers = mark ? { "If-None-Match": mark } : {};
      const answer = await fetch(location.href, { headers, cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
      if (!answer.ok && answer.status !== 304) throw new Error(answer.statusText);
      wait = Number(answer.headers.get("Refresh-After-Ms")) || RETRY_MS;
      if (answer.status === 304) say(said);
      else {
        const text = await answer.text();
        if (paused) return;
        mark = answer.headers.get("ETag");
        runs = put(new DOMParser().parseFromString(text, "text/html"));
      }
    } catch {
      if (!paused) say("No longer live: `hocket report --live` does not answer. The page is as it was last.");
    }
    if (!runs) {
      delete line.dataset.runs;
      pause.remove();
    } else if (!paused) later(wait);
  }

  function later(wait) {
    clearTimeout(timer);
    timer = setTimeout(() => (document.hidden ? later(wait) : next()), wait);
  }

  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause";
    clearTimeout(timer);
    if (paused) say("Paused: the page stands still.");
    else next();
  });
  later(1000);
})();
