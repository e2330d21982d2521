// The report's viewer: draws what was computed beforehand (report/viewer.py) for one sentence and one threshold.
// Elements are made by dom.js.
{
  const CELL_WIDTH = 40, CELL_HEIGHT = 22, LABEL = 12, INSIDE = 10, MOST_LABEL = 92;
  const data = JSON.parse(document.getElementById("viewer-data").textContent);
  at("controls").reset(); // a browser may remember what was chosen before
  const state = { sentence: 0, theta: Number(at("theta").value), grid: "written", cursor: [0, 0] };

  const colour = (map, share) => map[Math.round(Math.min(1, Math.max(0, share)) * (map.length - 1))];
  const shownTheta = (theta) => String(theta).padEnd(4, theta % 1 ? "0" : "");
  const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

  // --- what is shown now -----------------------------------------------------------------------------------------

  const sentence = () => data.sentences[state.sentence];
  const way = () => sentence().ways.find((one) => one.first <= state.theta && state.theta <= one.last);
  const ofReference = () => state.grid === "reference";
  const grid = () => sentence().grids[ofReference() ? 0 : way().grid];
  const takenPath = () => (!ofReference() || way().grid === 0 ? way().heights : null); // reads and writes, in this grid

  // --- grids -----------------------------------------------------------------------------------------------------

  // Corners of a path from (0, 0): EMIT goes up along the left side of a row's cells, WAIT to the right.
  function corners(heights, X, Y) {
    const points = [[0, 0]];
    heights.slice(0, X).forEach((height, x) => points.push([x, Math.min(height, Y)], [x + 1, Math.min(height, Y)]));
    return points;
  }

  function drawGrid(holder, values, coloursOf, inside) {
    const shown = grid(), names = sentence().names;
    const X = values.length, Y = values[0].length;
    const targets = shown.target.map((name) => fitted(names[name], LABEL, MOST_LABEL));
    const left = Math.ceil(Math.max(...targets.map((text) => width(text, LABEL)))) + 26;
    const [W, H] = [left + X * CELL_WIDTH + 6, Y * CELL_HEIGHT + 44];
    const drawing = svg("svg", { width: W, height: H, viewBox: `0 0 ${W} ${H}`, "aria-hidden": "true" });
    const place = ([x, y]) => [left + x * CELL_WIDTH, 4 + (Y - y) * CELL_HEIGHT];
    for (let x = 0; x < X; x++) {
      for (let y = 0; y < Y; y++) {
        const [fill, ink] = coloursOf(values[x][y]);
        const [cx, cy] = place([x, y + 1]);
        drawing.append(svg("rect", { x: cx, y: cy, width: CELL_WIDTH - 1, height: CELL_HEIGHT - 1, fill, "data-x": x, "data-y": y }));
        const text = fitted(inside(x, y), INSIDE, CELL_WIDTH - 4);
        const middle = { x: cx + CELL_WIDTH / 2, y: cy + CELL_HEIGHT / 2, fill: ink, class: "inside", "pointer-events": "none" };
        drawing.append(svg("text", middle, text));
      }
    }
    targets.forEach((text, y) => {
      const label = svg("text", { x: left - 6, y: place([0, y + 0.5])[1], "text-anchor": "end", class: "label" }, text);
      label.append(svg("title", {}, names[shown.target[y]]));
      drawing.append(label);
    });
    for (let x = 0; x < X; x++) {
      const text = fitted(sentence().tokens[x], LABEL, CELL_WIDTH - 2);
      const label = svg("text", { x: place([x + 0.5, 0])[0], y: Y * CELL_HEIGHT + 16, "text-anchor": "middle", class: "label" }, text);
      label.append(svg("title", {}, sentence().tokens[x]));
      drawing.append(label);
    }
    drawing.append(svg("text", { x: left, y: Y * CELL_HEIGHT + 34, class: "axis" }, "source token read →"));
    const turned = `rotate(-90 9 ${Y * CELL_HEIGHT})`;
    drawing.append(svg("text", { x: 9, y: Y * CELL_HEIGHT, transform: turned, class: "axis" }, fitted("target →", 11, Y * CELL_HEIGHT)));
    const line = (points, name) => drawing.append(svg("polyline", { points: points.map((p) => place(p).join(",")).join(" "), class: name, "pointer-events": "none" }));
    if (holder.id === "emit") drawing.append(svg("path", { d: boundary(values, place), class: "boundary", "pointer-events": "none" }));
    const taken = takenPath();
    const paths = holder.id === "loss" || !taken ? [[shown.best, "best"]] : [];
    if (taken) paths.push([taken, "taken"]);
    for (const [heights, name] of paths) {
      line(corners(heights, X, Y), "halo");
      line(corners(heights, X, Y), name);
    }
    const [cx, cy] = state.cursor;
    const [px, py] = place([cx, cy + 1]);
    drawing.append(svg("rect", { x: px, y: py, width: CELL_WIDTH - 1, height: CELL_HEIGHT - 1, class: "cursor", visibility: "hidden", "pointer-events": "none" }));
    holder.replaceChildren(drawing);
    if (document.activeElement === holder) drawing.lastChild.setAttribute("visibility", "visible");
  }

  // Where cells with p(EMIT) above θ meet the others.
  function boundary(values, place) {
    const theta = data.thetas[state.theta], X = values.length, Y = values[0].length, parts = [];
    const above = (x, y) => values[x][y] > theta;
    const segment = (from, to) => parts.push(`M${place(from).join(" ")}L${place(to).join(" ")}`);
    for (let x = 0; x < X; x++) {
      for (let y = 0; y < Y; y++) {
        if (x + 1 < X && above(x, y) !== above(x + 1, y)) segment([x + 1, y], [x + 1, y + 1]);
        if (y + 1 < Y && above(x, y) !== above(x, y + 1)) segment([x, y + 1], [x + 1, y + 1]);
      }
    }
    return parts.join("");
  }

  function legend(holder, map, low, high, keys) {
    const bar = svg("svg", { width: 96, height: 12, "aria-hidden": "true" });
    map.forEach(([fill], i) => bar.append(svg("rect", { x: (i * 96) / map.length, y: 0, width: 96 / map.length + 0.5, height: 12, fill })));
    const scale = html("span");
    scale.append(html("span", {}, low), bar, html("span", {}, high));
    holder.replaceChildren(scale);
    for (const [name, text] of keys) {
      const key = html("span");
      const sample = svg("svg", { width: 28, height: 12, class: "key", "aria-hidden": "true" });
      sample.append(svg("path", { d: "M2 6H26", class: name }));
      key.append(sample, html("span", {}, text));
      holder.append(key);
    }
  }

  function drawGrids() {
    const shown = grid(), names = sentence().names, highest = sentence().highest || 1;
    const [X, Y] = [shown.loss.length, shown.loss[0].length];
    state.cursor = [Math.min(state.cursor[0], X - 1), Math.min(state.cursor[1], Y - 1)];
    drawGrid(at("loss"), shown.loss, (value) => colour(data.lossColours, value / highest), (x, y) => shown.loss[x][y].toFixed(1));
    drawGrid(at("emit"), shown.emit, (value) => colour(data.emitColours, value), (x, y) => names[shown.top[x][y]]);
    const best = ["best", `best path at λ = ${shown.lam}, ${Math.round(shown.area * 100)} % of the cells below it`];
    const taken = takenPath() ? [["taken", "reads and writes at this θ"]] : [];
    legend(at("loss-legend"), data.lossColours, "0", `${highest.toFixed(1)} nats`, [best, ...taken]);
    legend(at("emit-legend"), data.emitColours, "0", "1", [...(taken.length ? taken : [best]), ["boundary", "p(EMIT) = θ"]]);
    const whose = ofReference() ? "the reference" : `what is written at θ = ${shownTheta(data.thetas[state.theta])}`;
    for (const id of ["loss", "emit"]) {
      at(`${id}-caption`).textContent = whose;
      at(id).setAttribute("aria-label", `${id === "loss" ? "Loss" : "p(EMIT)"} of ${whose}: ${plural(X, "source token")} by ${plural(Y, "target token")}`);
    }
  }

  // --- texts -----------------------------------------------------------------------------------------------------

  const ENDS = { end_token: "ended by itself", max_target_tokens: "cut off at the length limit", repetition: "stopped as it repeated itself" };

  function showTexts() {
    const one = sentence(), now = way(), theta = shownTheta(data.thetas[state.theta]);
    const text = now.visits.flatMap(([written]) => written.map(([piece]) => piece)).join("");
    at("source").textContent = one.source;
    at("reference").textContent = one.reference;
    at("written").textContent = text || "(nothing)";
    at("written-theta").textContent = `θ = ${theta}`;
    at("theta-value").textContent = theta;
    at("theta").value = state.theta;
    at("theta").setAttribute("aria-valuetext", `θ = ${theta}`);
    const tokens = now.visits.reduce((sum, [written]) => sum + written.length, 0);
    const [low, high] = [now.first, now.last].map((i) => shownTheta(data.thetas[i]));
    at("about").textContent =
      `${low === high ? `Only at θ = ${low}` : `The same from θ = ${low} to ${high}`}; ${plural(one.ways.length, "translation")} in all. ` +
      `${plural(tokens, "token")}, AL ${now.al === null ? "—" : now.al.toFixed(2)}, ${ENDS[now.stopped] || now.stopped}.`;
    const shown = grid(), [X, Y] = shown.size, cut = X > shown.loss.length || Y > shown.loss[0].length;
    at("which").textContent = [
      ofReference()
        ? now.grid === 0
          ? "The reference is what is written at this θ."
          : "The reference's grid is what training looks at. The model writes another text here, so its reads and writes have no path in it."
        : "The grid of the very text that is written: its p(EMIT) are those the decisions were made by.",
      !ofReference() && now.stopped !== "end_token" ? "Its last column stands for an end token that was not written." : "",
      cut ? `Drawn: the first ${shown.loss.length} of ${X} source and ${shown.loss[0].length} of ${Y} target tokens, end tokens included.` : "",
    ].filter(Boolean).join(" ");
    at("earlier").disabled = now.first === 0;
    at("later").disabled = now.last === data.thetas.length - 1;
    at("changes").replaceChildren(...one.ways.slice(1).map((other) => html("option", { value: other.first })));
    showSteps(now);
  }

  function showSteps(now) {
    const theta = data.thetas[state.theta];
    const rows = now.visits.map(([written, leftAt], x) => {
      const row = html("tr"), read = html("th", { scope: "row" }), cell = html("td");
      read.append(html("bdi", { lang: data.languages[0] }, sentence().tokens[x] ?? "…"));
      for (const [piece, p] of written) {
        cell.append(html("bdi", { lang: data.languages[1] }, piece), html("span", { class: "p" }, ` (${p.toFixed(3)}) `));
      }
      const early = leftAt !== null && leftAt > theta ? " (the end was predicted, too early)" : "";
      row.append(html("td", { class: "number" }, x + 1), read, cell, html("td", { class: "number" }, leftAt === null ? "—" : leftAt.toFixed(3) + early));
      return row;
    });
    at("steps").tBodies[0].replaceChildren(...rows);
  }

  function tellCell(x, y) {
    const shown = grid(), names = sentence().names;
    state.cursor = [x, y];
    at("cell").textContent =
      `${plural(x + 1, "source token")} read, the last “${sentence().tokens[x]}”; target token ${y + 1}, “${names[shown.target[y]]}”: ` +
      `loss ${shown.loss[x][y].toFixed(2)}, p(EMIT) ${shown.emit[x][y].toFixed(3)}, most probable “${names[shown.top[x][y]]}”.`;
  }

  // --- what readers do -------------------------------------------------------------------------------------------

  function show() {
    showTexts();
    drawGrids();
    at("cell").textContent = "";
  }

  function setTheta(index) {
    state.theta = Math.min(data.thetas.length - 1, Math.max(0, index));
    show();
  }

  at("controls").addEventListener("submit", (event) => event.preventDefault());
  for (const choice of document.querySelectorAll("input[name=sentence]")) {
    choice.addEventListener("change", () => {
      state.sentence = Number(choice.value);
      state.cursor = [0, 0];
      show();
    });
  }
  at("theta").addEventListener("input", (event) => setTheta(Number(event.target.value)));
  at("earlier").addEventListener("click", () => setTheta(way().first - 1));
  at("later").addEventListener("click", () => setTheta(way().last + 1));
  for (const choice of document.querySelectorAll("input[name=grid]")) {
    choice.addEventListener("change", () => {
      state.grid = choice.value;
      show();
    });
  }

  const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  for (const holder of [at("loss"), at("emit")]) {
    const move = (x, y, visible) => {
      const { loss } = grid();
      tellCell(Math.min(loss.length - 1, Math.max(0, x)), Math.min(loss[0].length - 1, Math.max(0, y)));
      const cursor = holder.querySelector(".cursor");
      const cell = holder.querySelector(`rect[data-x="${state.cursor[0]}"][data-y="${state.cursor[1]}"]`);
      for (const name of ["x", "y"]) cursor.setAttribute(name, cell.getAttribute(name));
      cursor.setAttribute("visibility", visible ? "visible" : "hidden");
      if (visible) cell.scrollIntoView({ block: "nearest", inline: "nearest" });
    };
    holder.addEventListener("keydown", (event) => {
      const step = MOVES[event.key];
      if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      move(state.cursor[0] + step[0], state.cursor[1] + step[1], true);
    });
    holder.addEventListener("focus", () => move(...state.cursor, true));
    holder.addEventListener("blur", () => move(...state.cursor, false));
    for (const kind of ["pointermove", "pointerdown"]) {
      holder.addEventListener(kind, ({ target }) => {
        if (target.dataset.x !== undefined) move(Number(target.dataset.x), Number(target.dataset.y), document.activeElement === holder);
      });
    }
  }

  // On paper everything is open.
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => part.setAttribute("open", "")));

  show();
  document.fonts.ready.then(show); // labels are measured in the fonts they are drawn with
}
