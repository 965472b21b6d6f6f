// What both kinds of chart share: data islands, colours of the style sheet, number formats, ticks, tooltips, redrawing.
"use strict";

const hocket = {
  /** The value of a JSON island, or null where the page has none. */
  data(id) {
    const island = document.getElementById(id);
    return island ? JSON.parse(island.textContent) : null;
  },

  colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  },

  /** Calls `draw` now, when the element's width changes, and when the colour scheme does, until the element leaves the page. */
  keepDrawn(element, draw) {
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    let width = -1;
    const observer = new ResizeObserver(() => {
      if (!element.isConnected) {
        observer.disconnect();
        scheme.removeEventListener("change", draw);
      } else if (element.clientWidth !== width) {
        width = element.clientWidth;
        draw();
      }
    });
    observer.observe(element);
    scheme.addEventListener("change", draw);
  },

  /** Round numbers that divide [low, high] into about `count` parts. */
  ticks(low, high, count) {
    const raw = (high - low) / Math.max(1, count);
    if (!(raw > 0)) return [low];
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(+(i * step).toPrecision(12));
    return found;
  },

  time(us) {
    const [unit, scale] = Math.abs(us) >= 1e6 ? ["s", 1e6] : Math.abs(us) >= 1e3 ? ["ms", 1e3] : ["µs", 1];
    return `${+(us / scale).toPrecision(3)} ${unit}`;
  },

  size(bytes) {
    const [unit, scale] = bytes >= 1e9 ? ["GB", 1e9] : bytes >= 1e6 ? ["MB", 1e6] : bytes >= 1e3 ? ["kB", 1e3] : ["B", 1];
    return `${+(bytes / scale).toPrecision(3)} ${unit}`;
  },

  /** Shows `title` and `lines` in `tip` near (x, y) within its positioned parent; text only, never markup. */
  showTip(tip, x, y, title, lines) {
    const heading = document.createElement("strong");
    heading.textContent = title;
    tip.replaceChildren(heading, document.createTextNode(lines.join("\n")));
    tip.hidden = false;
    const room = tip.parentElement.clientWidth;
    const left = x + 14 + tip.offsetWidth > room ? x - 14 - tip.offsetWidth : x + 14;
    tip.style.transform = `translate(${Math.round(Math.max(0, Math.min(left, room - tip.offsetWidth)))}px, ${Math.round(y + 12)}px)`;
  },
};
