// Two pictures of one sentence, drawn anew as it grows: its path of reads and writes, and the p(EMIT) it was decided by.
import { fitted, legible, svg } from "./dom.js";

const HEIGHT = 330; // of both pictures, so that nothing below them moves
const TEXT = 13; // pixels
const LABELS = { top: 6, bottom: 40 }; // room around the staircase
const AXES = { left: 34, right: 64, top: 12, bottom: 26 }; // around the bars
const LEAST = { columns: 8, rows: 8, bars: 24 }; // fewer are drawn as large as so many

const drawing = (width) => svg("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, "aria-hidden": "true" });
const line = (points, name) => svg("polyline", { points: points.map((point) => point.join(",")).join(" "), class: name });
const within = (low, value, high) => Math.min(high, Math.max(low, value));

// Put a drawing in place, with its newest part in sight where it is wider than the page.
function show(holder, picture, newest) {
  holder.replaceChildren(picture);
  holder.scrollLeft = newest - holder.clientWidth + 80;
}

// Source from left to right, target from bottom to top; each state the model was in is a cell, darker for a higher p(EMIT).
export function drawStaircase(holder, sentence) {
  const columns = sentence?.columns ?? [];
  const tokens = columns.flatMap((column) => column.written);
  const X = Math.max(columns.length, LEAST.columns), Y = Math.max(tokens.length + 1, LEAST.rows);
  const beside = Math.min(96, holder.clientWidth / 4); // room for the target's labels
  const wide = within(14, (holder.clientWidth - beside - 12) / X, 64);
  const high = (HEIGHT - LABELS.top - LABELS.bottom) / Y;
  const bottom = HEIGHT - LABELS.bottom, size = Math.min(TEXT, high);
  const picture = drawing(beside + X * wide + 8);
  const place = (x, y) => [beside + x * wide, bottom - y * high];
  const cells = svg("g"), path = [place(0, 0)];
  const cell = (x, y, p, what) => {
    const [left, low] = place(x, y);
    const shape = { x: left, y: low - high, width: wide - 1, height: high - 1 };
    const filled = svg("rect", { ...shape, class: "p", "fill-opacity": p ?? 0 });
    filled.append(svg("title", {}, `${what}${p === null ? "" : `, p(EMIT) ${p.toFixed(3)}`}`));
    cells.append(svg("rect", { ...shape, class: "visited" }), filled);
  };
  let y = 0;
  columns.forEach((column, x) => {
    for (const token of column.written) cell(x, y++, token.p, `wrote “${legible(token.text)}”`);
    path.push(place(x, y));
    if (column.left) {
      cell(x, y, column.left.p, "read on");
      path.push(place(x + 1, y));
    }
  });
  picture.append(svg("path", { d: `M${beside - 1} ${LABELS.top}V${bottom + 1}H${beside + X * wide}`, class: "frame" }), cells);
  columns.forEach((column, x) => {
    const below = { x: place(x + 0.5, 0)[0], y: bottom + 14, "text-anchor": "middle", class: "label" };
    picture.append(svg("text", below, fitted(legible(column.source), TEXT, wide)));
  });
  tokens.forEach((token, row) => {
    const label = { x: beside - 7, y: place(0, row + 0.5)[1], "text-anchor": "end", class: "label", "font-size": size };
    picture.append(svg("text", label, fitted(legible(token.text), size, beside - 12)));
  });
  picture.append(svg("text", { x: beside, y: bottom + 31, class: "axis" }, "source token read →"));
  if (!tokens.length) picture.append(svg("text", { x: beside - 7, y: place(0, 0.5)[1], "text-anchor": "end", class: "axis" }, "written ↑"));
  const [endX, endY] = path.at(-1);
  picture.append(line(path, "halo"), line(path, "taken"), svg("circle", { cx: endX, cy: endY, r: 4, class: "now" }));
  show(holder, picture, endX);
}

// A bar a decision: full where a token was written, hollow where the next one was read. The line is θ, then and now.
export function drawDecisions(holder, sentence, theta) {
  const decisions = sentence?.decisions ?? [];
  const bars = Math.max(decisions.length + 1, LEAST.bars);
  const wide = within(5, (holder.clientWidth - AXES.left - AXES.right) / bars, 24);
  const right = AXES.left + bars * wide, high = HEIGHT - AXES.top - AXES.bottom;
  const picture = drawing(right + AXES.right);
  const height = (p) => AXES.top + high * (1 - p);
  for (const p of [0, 0.5, 1]) {
    picture.append(svg("path", { d: `M${AXES.left} ${height(p)}H${right}`, class: "rule" }));
    picture.append(svg("text", { x: AXES.left - 7, y: height(p), "text-anchor": "end", class: "axis" }, String(p)));
  }
  const forced = decisions.findIndex((decision) => decision.forced);
  if (forced >= 0) {
    const begin = AXES.left + forced * wide;
    const band = { x: begin, y: AXES.top, width: (decisions.length - forced) * wide, height: high, class: "forced" };
    picture.append(svg("rect", band), svg("text", { x: begin + 2, y: AXES.top + high + 14, class: "axis" }, "source ended"));
  }
  const thetas = [];
  decisions.forEach(({ wrote, text, p, theta: then }, number) => {
    const left = AXES.left + number * wide, known = p ?? 0, gap = within(0.5, wide / 6, 3);
    const shape = { x: left + gap, y: Math.min(height(known), height(0) - 2), width: wide - 2 * gap, height: Math.max(high * known, 2) };
    const bar = svg("rect", { ...shape, class: wrote ? "wrote" : "waited" });
    bar.append(svg("title", {}, `p(EMIT) ${known.toFixed(3)}: ${wrote ? "wrote" : "read"} “${legible(text)}”`));
    picture.append(bar);
    if (then !== null) thetas.push([left, height(then)], [left + wide, height(then)]);
  });
  const present = AXES.left + decisions.length * wide;
  picture.append(line(thetas, "theta"), line([[present, height(theta)], [right, height(theta)]], "theta now"));
  picture.append(svg("text", { x: right + 5, y: height(theta), class: "theta-name" }, `θ ${theta.toFixed(3)}`));
  show(holder, picture, present);
}
