// The timeline: a canvas of lanes per rank (compute, then buckets on the wire), moved and zoomed by pointer and keyboard.
// A span is [lane, kind, program, peer, bytes, ready, start, end, generation], times in µs since the first step shown.
"use strict";

hocket.timeline = () => {
  const view = document.getElementById("timeline-view");
  const told = hocket.data("timeline-data");
  if (!view || !told) return;
  const canvas = view.querySelector("canvas"), tip = view.querySelector(".tip");
  const spoken = document.getElementById("timeline-spoken"), picker = document.getElementById("timeline-step");
  const KINDS = ["forward", "backward", "wait", "optimizer", "bucket", "send", "update", "link"], GENERATIONS = 6;
  const AXIS = 28, HEAD = 26, LANE = 18, GAP = 3, BELOW = 12, INSET = 12;
  const [LANE_OF, KIND, PROGRAM, PEER, BYTES, READY, START, END, GENERATION] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
  const whole = { from: told.steps[0][1], to: Math.max(...told.steps.map((s) => s[2])) };
  const GENERATION_COLOURS = Array.from({ length: GENERATIONS }, (_, each) => `s${each}`);
  let from, to, width, picked = null;

  let ranks, height, spans, bars;
  /** Gives the ranks that are drawn their places: all, or those of a folded timeline. */
  function place() {
    ranks = hocket.unfolded ? told.ranks : told.ranks.filter((rank) => told.folded.includes(rank.rank));
    height = AXIS;
    for (const rank of ranks) {
      rank.top = height + HEAD;
      height = rank.top + rank.lanes * (LANE + GAP) + BELOW;
    }
    spans = ranks.flatMap((rank) => rank.spans.map((span) => ({ rank, span })));
    bars = spans.filter((s) => s.span[KIND] !== 5).sort((a, b) => a.rank.rank - b.rank.rank || a.span[START] - b.span[START]);
  }

  const px = (us) => INSET + ((us - from) / (to - from)) * (width - 2 * INSET);
  const us = (x) => from + ((x - INSET) / (width - 2 * INSET)) * (to - from);
  const top = ({ rank, span }) => rank.top + span[LANE_OF] * (LANE + GAP);

  function draw() {
    width = view.clientWidth;
    const scale = devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    const colours = Object.fromEntries([...KINDS, "ink", "soft", "line", "surface", "accent", ...GENERATION_COLOURS].map((n) => [n, hocket.colour(n)]));
    pen.scale(scale, scale);
    pen.clearRect(0, 0, width, height);
    pen.textBaseline = "middle";
    axis(pen, colours);
    for (const rank of ranks) {
      pen.fillStyle = colours.ink;
      pen.font = "600 12px system-ui, sans-serif";
      pen.fillText(`rank ${rank.rank}`, INSET + 6, rank.top - 12);
      const after = INSET + 14 + pen.measureText(`rank ${rank.rank}`).width;
      pen.font = "12px system-ui, sans-serif";
      pen.fillStyle = colours.soft;
      pen.fillText([rank.host, rank.rack].filter(Boolean).join(" · ").slice(0, 60), after, rank.top - 12);
    }
    pen.save();
    pen.beginPath();
    pen.rect(INSET, AXIS, width - 2 * INSET, height - AXIS);
    pen.clip();
    for (const one of spans) bar(pen, one, colours);
    if (picked) outline(pen, picked, colours);
    pen.restore();
    canvas.dataset.drawn = spans.length;
  }

  function axis(pen, colours) {
    pen.font = "12px system-ui, sans-serif";
    pen.lineWidth = 1;
    const origin = stepAt((from + to) / 2)[1];
    for (const t of hocket.ticks(from - origin, to - origin, width / 110)) {
      const x = Math.round(px(t + origin)) + 0.5;
      if (x < INSET || x > width - INSET) continue;
      pen.strokeStyle = colours.line;
      pen.beginPath();
      pen.moveTo(x, AXIS);
      pen.lineTo(x, height);
      pen.stroke();
      pen.fillStyle = colours.soft;
      pen.textAlign = x > width - 50 ? "right" : "left";
      pen.fillText(hocket.time(t), x, AXIS / 2);
    }
    pen.textAlign = "left";
    for (const [, start] of told.steps) {
      const x = Math.round(px(start)) + 0.5;
      pen.strokeStyle = colours.soft;
      pen.beginPath();
      pen.moveTo(x, AXIS);
      pen.lineTo(x, height);
      pen.stroke();
    }
  }

  function box({ rank, span }) {
    const left = px(span[START]), right = px(span[END]);
    if (span[KIND] === 6) return { left: left - 1, wide: 2, y: rank.top - 3, high: rank.lanes * (LANE + GAP) + 3 };
    const thin = span[KIND] === 5;
    const y = top({ rank, span });
    return { left, wide: Math.max(right - left, 0.75), y: thin ? y + LANE - 4 : y, high: thin ? 4 : LANE };
  }

  function bar(pen, one, colours) {
    const { left, wide, y, high } = box(one);
    if (left > width || left + wide < 0) return;
    const kind = KINDS[one.span[KIND]];
    const coloured = told.generations && one.span[GENERATION] >= 0;
    pen.fillStyle = coloured ? colours[`s${one.span[GENERATION] % GENERATIONS}`] : colours[kind];
    pen.fillRect(left, y, wide > 3 && kind !== "send" ? wide - 1 : wide, high);
    if (kind === "update" || kind === "link") return;
    const label = kind === "bucket" ? told.buckets[one.span[PROGRAM]] ?? `program ${one.span[PROGRAM]}` : kind;
    if (kind === "send" || wide < 30) return;
    pen.font = "11px system-ui, sans-serif";
    const shown = Math.max(left, INSET);
    if (pen.measureText(label).width > left + wide - shown - 8) return;
    pen.fillStyle = kind === "backward" ? colours.surface : "#101316";
    if (kind === "bucket") pen.fillStyle = coloured ? colours.surface : colours.ink;
    pen.fillText(label, shown + 5, y + (kind === "bucket" ? LANE / 2 - 1 : LANE / 2));
  }

  function outline(pen, one, colours) {
    const { left, wide, y, high } = box(one);
    pen.strokeStyle = colours.ink;
    pen.lineWidth = 2;
    pen.strokeRect(left - 1, y - 1, wide + 1, high + 2);
  }

  const stepAt = (t) => told.steps.findLast((s) => s[1] <= t) ?? told.steps[0];

  function describe({ rank, span }) {
    const kind = KINDS[span[KIND]], step = stepAt(span[START]);
    const bucket = told.buckets[span[PROGRAM]] ?? `program ${span[PROGRAM]}`;
    const at = (t) => hocket.time(t - step[1]);
    const took = `took ${hocket.time(span[END] - span[START])}: ${at(span[START])} to ${at(span[END])} of step ${step[0]}`;
    const generation = told.generations ? `, generation ${span[GENERATION]}` : "";
    if (kind === "bucket") {
      const rate = span[END] > span[START] ? `, ${hocket.size((span[BYTES] * 1e6) / (span[END] - span[START]))}/s` : "";
      return [`${bucket}${generation}, rank ${rank.rank}`, [`${hocket.size(span[BYTES])}${rate}`, `ready ${at(span[READY])}`, took]];
    }
    if (kind === "update") return [`update, rank ${rank.rank}`, [`${at(span[START])} of step ${step[0]}`]];
    if (kind === "send" || kind === "link") {
      const rate = span[END] > span[START] ? ` at ${((span[BYTES] * 8) / (span[END] - span[START])).toPrecision(3)} Mbit/s` : "";
      const peer = `rank ${span[PEER]} (${told.hosts[span[PEER]] ?? "?"})`;
      return [`${bucket}${generation}: send to ${peer}`, [`${hocket.size(span[BYTES])}${rate}`, `ready ${at(span[READY])}`, took]];
    }
    return [`${kind}, rank ${rank.rank}`, [took]];
  }

  /** The span under a point; sends lie over their bucket, so the last drawn wins. */
  function under(x, y) {
    for (let i = spans.length - 1; i >= 0; i--) {
      const b = box(spans[i]);
      if (x >= b.left - 1 && x <= b.left + b.wide + 1 && y >= b.y && y <= b.y + b.high) return spans[i];
    }
    return null;
  }

  function show(one, x, y) {
    if (one !== picked) {
      picked = one;
      draw();
    }
    if (one) hocket.showTip(tip, x, y, ...describe(one));
    else tip.hidden = true;
  }

  function look(a, b) {
    const most = whole.to - whole.from, least = Math.min(20, most);
    const length = Math.max(least, Math.min(most, b - a));
    from = Math.max(whole.from, Math.min(whole.to - length, a));
    to = from + length;
    tip.hidden = true;
    draw();
  }

  function zoom(factor, centre = (from + to) / 2) {
    look(centre - (centre - from) * factor, centre + (to - centre) * factor);
  }

  function pickStep() {
    const step = told.steps[Number(picker.value)];
    picked = null;
    if (picker.value === "all" || !step) look(whole.from, whole.to);
    else look(step[1], step[2]);
  }

  function next(move) {
    const now = bars.indexOf(picked), first = bars.findIndex((s) => s.span[START] >= from);
    const one = bars[now < 0 ? Math.max(0, first) : Math.max(0, Math.min(bars.length - 1, now + move))];
    if (!one) return;
    const length = to - from, middle = (one.span[START] + one.span[END]) / 2;
    if (one.span[END] < from || one.span[START] > to) look(middle - length / 2, middle + length / 2);
    show(one, Math.max(INSET, px(one.span[START])), top(one) + LANE);
    const [title, lines] = describe(one);
    spoken.textContent = `${title}: ${lines.join(", ")}`;
  }

  const KEYS = {
    ArrowLeft: () => look(from - (to - from) / 8, to - (to - from) / 8),
    ArrowRight: () => look(from + (to - from) / 8, to + (to - from) / 8),
    "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), 0: pickStep, Home: pickStep,
    ".": () => next(1), ",": () => next(-1),
    Escape: () => show(null),
  };
  canvas.addEventListener("keydown", (event) => {
    const act = KEYS[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });

  const held = new Map();
  const point = (event) => {
    const edge = canvas.getBoundingClientRect();
    return [event.clientX - edge.left, event.clientY - edge.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    held.set(event.pointerId, point(event));
    canvas.setPointerCapture(event.pointerId);
    canvas.classList.add("held");
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = point(event), before = held.get(event.pointerId);
    if (!before) return show(under(x, y), x, y);
    const other = [...held].find(([id]) => id !== event.pointerId)?.[1];
    if (other) {
      const factor = Math.max(8, Math.abs(before[0] - other[0])) / Math.max(8, Math.abs(x - other[0]));
      zoom(factor, us(other[0]));
    } else if (x !== before[0]) {
      const moved = us(before[0]) - us(x);
      look(from + moved, to + moved);
    }
    held.set(event.pointerId, [x, y]);
  });
  for (const ending of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(ending, (event) => {
      held.delete(event.pointerId);
      canvas.classList.toggle("held", held.size > 0);
      if (ending === "pointerup") show(under(...point(event)), ...point(event));
    });
  }
  canvas.addEventListener("pointerleave", () => show(null));
  canvas.addEventListener("blur", () => show(null));
  canvas.addEventListener(
    "wheel",
    (event) => {
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
      if (!event.ctrlKey && !event.metaKey && !sideways) return;
      event.preventDefault();
      if (sideways) {
        const moved = ((event.deltaX || event.deltaY) / width) * (to - from);
        look(from + moved, to + moved);
      } else zoom(1.0015 ** event.deltaY, us(point(event)[0]));
    },
    { passive: false },
  );
  picker.addEventListener("change", pickStep);
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => ({ in: () => zoom(0.6), out: () => zoom(1 / 0.6), fit: pickStep })[button.dataset.zoom]());
  }
  const fold = document.getElementById("timeline-fold"), unfold = fold?.textContent;
  function showFold() {
    if (!fold) return;
    fold.setAttribute("aria-expanded", String(Boolean(hocket.unfolded)));
    fold.textContent = hocket.unfolded ? `Show ${told.folded.length} ranks` : unfold;
  }
  fold?.addEventListener("click", () => {
    hocket.unfolded = !hocket.unfolded;
    picked = null;
    tip.hidden = true;
    place();
    showFold();
    draw();
  });
  place();
  showFold();
  picker.value = told.steps.length > 2 ? String(told.steps.length >> 1) : "all";
  [from, to] = [whole.from, whole.to];
  width = view.clientWidth;
  pickStep();
  hocket.keepDrawn(view, draw);
};
hocket.timeline();
