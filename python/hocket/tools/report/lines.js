// Loss over steps and over seconds: an SVG line per strategy, with the values under the pointer or the arrow keys.
"use strict";

hocket.learning = () => {
  const series = hocket.data("learning-data");
  if (!series) return;
  const RIGHT = 12, TOP = 12, BOTTOM = 36;

  function element(name, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  /** A point is [step, loss, seconds or null]; `axis` picks the horizontal value. */
  function chart(host, axis, unit) {
    const lines = series
      .map((one) => ({ ...one, points: one.points.filter((p) => p[axis] !== null) }))
      .filter((one) => one.points.length);
    if (!lines.length) {
      host.textContent = `No ${unit} were recorded.`;
      host.style.height = "auto";
      return;
    }
    const all = lines.flatMap((one) => one.points);
    const extent = (index) => all.reduce(([a, b], p) => [Math.min(a, p[index]), Math.max(b, p[index])], [Infinity, -Infinity]);
    const [, xMost] = extent(axis);
    const [yLeast, yMost] = extent(1);
    const pad = (yMost - yLeast) * 0.05 || 0.5;
    const x = { low: 0, high: xMost || 1 }, y = { low: yLeast - pad, high: yMost + pad };
    const tip = document.createElement("div");
    tip.className = "tip";
    const yTicks = hocket.ticks(y.low, y.high, 5);
    const LEFT = 16 + 7 * Math.max(...yTicks.map((t) => String(t).length));
    let svg, marks, width, height;
    const px = (value) => LEFT + ((value - x.low) / (x.high - x.low)) * (width - LEFT - RIGHT);
    const py = (value) => TOP + ((y.high - value) / (y.high - y.low)) * (height - TOP - BOTTOM);

    function draw() {
      [width, height] = [host.clientWidth, host.clientHeight];
      svg = element("svg", { role: "img", tabindex: 0, "aria-label": describe() });
      for (const t of yTicks) {
        svg.append(element("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: py(t), y2: py(t) }));
        svg.append(element("text", { x: LEFT - 8, y: py(t) + 4, "text-anchor": "end" }, String(t)));
      }
      for (const t of hocket.ticks(x.low, x.high, width / 90).filter((t) => axis === 2 || Number.isInteger(t))) {
        svg.append(element("text", { x: px(t), y: height - BOTTOM + 18, "text-anchor": "middle" }, String(t)));
      }
      svg.append(element("text", { x: width - RIGHT, y: height - 2, "text-anchor": "end" }, unit));
      for (const one of [...lines].sort((a, b) => b.colour - a.colour)) {
        const path = one.points.map((p, i) => `${i ? "L" : "M"}${px(p[axis]).toFixed(1)} ${py(p[1]).toFixed(1)}`).join("");
        svg.append(element("path", { class: `s${one.colour}`, d: path }));
      }
      marks = element("g", {});
      svg.append(marks);
      tip.hidden = true;
      host.replaceChildren(svg, tip);
      svg.addEventListener("pointermove", (event) => point(event.clientX - svg.getBoundingClientRect().left));
      svg.addEventListener("pointerdown", (event) => point(event.clientX - svg.getBoundingClientRect().left));
      svg.addEventListener("pointerleave", clear);
      svg.addEventListener("blur", clear);
      svg.addEventListener("keydown", key);
    }

    function describe() {
      const ends = lines.map((one) => `${one.label} ends at ${one.points.at(-1)[1].toFixed(3)}`);
      return `${host.dataset.title}. ${ends.join("; ")}. Arrow keys read values.`;
    }

    let at = 0;
    function key(event) {
      const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!move) return;
      event.preventDefault();
      at = Math.max(x.low, Math.min(x.high, at + (move * (x.high - x.low)) / 50));
      point(px(at));
    }

    function nearest(points, value) {
      let low = 0, high = points.length - 1;
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (points[middle][axis] < value) low = middle;
        else high = middle;
      }
      return value - points[low][axis] < points[high][axis] - value ? points[low] : points[high];
    }

    function point(left) {
      at = x.low + ((left - LEFT) / (width - LEFT - RIGHT)) * (x.high - x.low);
      at = Math.max(x.low, Math.min(x.high, at));
      marks.replaceChildren(element("line", { class: "guide", x1: px(at), x2: px(at), y1: TOP, y2: height - BOTTOM }));
      const said = [];
      for (const one of lines) {
        const last = one.points.at(-1);
        const found = at > last[axis] ? last : nearest(one.points, at);
        marks.append(element("circle", { class: `s${one.colour}`, cx: px(found[axis]), cy: py(found[1]), r: 4 }));
        const other = axis === 2 ? `step ${found[0]}` : found[2] === null ? "" : hocket.time(found[2] * 1e6);
        said.push(`${one.label}: ${found[1].toFixed(3)}${other && ` at ${other}`}`);
      }
      hocket.showTip(tip, px(at), TOP, axis === 0 ? `Step ${Math.round(at)}` : hocket.time(at * 1e6), said);
    }

    function clear() {
      marks.replaceChildren();
      tip.hidden = true;
    }

    hocket.keepDrawn(host, draw);
  }

  for (const host of document.querySelectorAll("[data-line]")) {
    chart(host, host.dataset.line === "steps" ? 0 : 2, host.dataset.line);
  }
};
hocket.learning();
