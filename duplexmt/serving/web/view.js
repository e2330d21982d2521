// What the page shows of a session: text that only ever grows, figures of the newest sentence, its latency.
import { at, html, legible, onFrame } from "./dom.js";
import { nameOf } from "./languages.js";
import { mean } from "./latency.js";
import { drawDecisions, drawStaircase } from "./staircase.js";

const ENDS = {
  max_target_tokens: "cut off at the length limit", repetition: "cut off where it repeated itself",
  failed: "cut off because the server could not go on with it", no_source: "cut off, as its text was taken back",
};
const LONG = { node: 500, paragraph: 1000 }; // characters: a browser lays out many nodes, or a long paragraph, slowly
// Line ends, and what is between them; a long line is cut behind the end of a sentence, where a paragraph may begin.
const PARTS = new RegExp(`[\\r\\n]|[^\\r\\n]{${LONG.paragraph},}?[.!?。！？]|[^\\r\\n]+`, "g");
const BREATH = 600; // ms without a further word
const number = (value) => (value === null ? "—" : value.toFixed(2));

// Put text at the end of an element that has text alone.
function extend(element, text) {
  if (element.lastChild?.length < LONG.node) element.lastChild.appendData(text);
  else element.append(text);
}

// A pane that scrolls: it stays where the model is at work, at `place()` or else at its end, unless somebody has scrolled.
class Pane {
  constructor(element, place = () => null) {
    Object.assign(this, { element, place, follows: true, top: 0 });
    element.addEventListener("scroll", () => {
      if (Math.abs(element.scrollTop - this.top) > 2) this.follows = Math.abs(element.scrollTop - this.goal()) < 24;
      this.top = element.scrollTop; // of our own doing, or where somebody has gone
    });
  }

  goal() {
    const { scrollTop, clientHeight, scrollHeight } = this.element, end = scrollHeight - clientHeight, place = this.place();
    if (!place) return end;
    const below = place.getBoundingClientRect().top - this.element.getBoundingClientRect().top; // what is in sight
    return Math.max(0, Math.min(end, scrollTop + below - 0.6 * clientHeight));
  }

  append(...content) {
    this.element.append(...content);
  }

  settle() {
    if (!this.follows) return;
    this.element.scrollTop = this.goal();
    this.top = this.element.scrollTop;
  }
}

export class View {
  constructor() {
    this.languages = { source: "", target: "" };
    this.theta = 0.5;
    this.sentence = null; // the newest
    this.whole = []; // AL of each sentence that is over
    this.panes = { source: new Pane(at("source"), () => this.next()), translation: new Pane(at("translation")), words: new Pane(at("words")) };
    this.lines = { source: null, translation: null }; // the last ones, while they go on
    this.unread = []; // texts of the source, all of it that the model has not read
    this.waiting = 0; // code points of them
    this.read = 0; // code points of this session's source that it has read
    this.redraw = onFrame(() => this.draw());
    this.redraw();
  }

  speak(source, target) {
    this.languages = { source, target };
    at("source-title").textContent = `Source: ${nameOf(source)}`;
    at("translation-title").textContent = `Translation: ${nameOf(target)}`;
    for (const [id, language] of [["source", source], ["type", source], ["translation", target]]) at(id).lang = language;
  }

  line(pane) {
    if (!this.lines[pane]) this.panes[pane].append(html("p", { dir: "auto" }, (this.lines[pane] = html("span"))));
    return this.lines[pane];
  }

  // Source text on its way to the model; it is pale until it has been read.
  source(text) {
    for (const [part] of text.matchAll(PARTS)) {
      const shown = new Text(part);
      if (/[\r\n]/.test(part)) this.lines.source = null;
      else {
        const line = this.line("source");
        if (!line.lastChild) line.append(html("span"), html("span", { class: "unread" }));
        line.lastChild.append(shown);
        if (/[.!?。！？]$/.test(part) && line.textContent.length > LONG.paragraph) this.lines.source = null;
      }
      this.unread.push(shown);
      this.waiting += Array.from(part).length;
    }
    this.redraw();
  }

  // Other text in place of the last so many code points of the line.
  revise(count, text) {
    let left = count;
    for (; left && this.unread.length; left -= 1, this.waiting -= 1) {
      const last = this.unread.at(-1);
      last.data = Array.from(last.data).slice(0, -1).join("");
      if (last.data) continue;
      last.remove();
      this.unread.pop();
    }
    const read = this.lines.source?.firstChild;
    if (left && read) read.textContent = Array.from(read.textContent).slice(0, -left).join("");
    this.read -= left;
    this.source(text);
  }

  // The model has read the source of the line no farther than this.
  unreadFrom(offset) {
    const read = this.lines.source?.firstChild, back = Array.from(read?.textContent ?? "").slice(-Math.max(0, this.read - offset));
    if (this.read <= offset || !back.length) return;
    read.textContent = read.textContent.slice(0, -back.join("").length);
    const shown = new Text(back.join(""));
    read.nextSibling.prepend(shown);
    this.unread.unshift(shown);
    this.read -= back.length;
    this.waiting += back.length;
  }

  // Where the model reads next, if anything waits for it.
  next() {
    if (!this.unread[0]?.isConnected) return null; // nothing waits, or a line end
    const range = document.createRange();
    range.setStart(this.unread[0], 0);
    return range;
  }

  // The model has read the source as far as this.
  readUntil(offset) {
    for (; this.unread.length && this.read < offset; this.read += 1, this.waiting -= 1) {
      const [first] = this.unread, length = first.data.codePointAt(0) > 0xffff ? 2 : 1;
      const read = first.parentElement?.previousSibling; // none for a line end
      if (read) extend(read, first.data.slice(0, length));
      first.deleteData(0, length);
      if (first.data) continue;
      first.remove();
      this.unread.shift();
    }
  }

  // An event of a sentence that has just taken it.
  event(sentence, { event, text, source, tokens }) {
    if (this.sentence !== sentence) this.begin(sentence);
    if (event === "replaced") return this.takeBack(sentence, source, tokens);
    this.readUntil(source);
    if (text) this.line("translation").append(text);
    this.speakLater(event === "write");
    this.under(sentence, event, text);
    if (event === "end") {
      this.whole.push(sentence.lagging);
      if (this.lines.translation?.textContent.length > LONG.paragraph) this.lines.translation = null;
      if (ENDS[sentence.over]) this.gap(`This translation was ${ENDS[sentence.over]}.`);
    }
    this.redraw();
  }

  // The last so many source tokens were replaced; what was written stands under the one before.
  takeBack(sentence, source, tokens) {
    this.unreadFrom(source);
    const back = tokens ? this.columns.splice(-tokens) : [], text = back.map((column) => column.textContent).join("");
    for (const column of back) column.parentElement.remove();
    if (text && !this.columns.length) this.column(sentence.columns[0]);
    if (text) this.columns.at(-1).append(text);
    this.columns.at(-1)?.parentElement.classList.add("newest");
    this.redraw();
  }

  // A screen reader waits while the line is busy: so it is told whole words, once the model reads on or pauses.
  speakLater(busy) {
    const line = this.lines.translation?.parentElement;
    clearTimeout(this.speaking);
    line?.setAttribute("aria-busy", String(busy));
    if (busy) this.speaking = setTimeout(() => line?.setAttribute("aria-busy", "false"), BREATH);
  }

  newLine(source) {
    this.readUntil(source);
    this.lines.translation = null;
  }

  begin(sentence) {
    this.sentence = sentence;
    this.strip = html("div", { class: "sentence" });
    this.columns = [];
    this.panes.words.append(this.strip);
  }

  // Each word stands under the source token that was the last one read when it was written.
  under(sentence, event, text) {
    if (event === "read") return this.column(sentence.columns.at(-1));
    if (!this.columns.length) this.column(sentence.columns[0]); // its beginning was not seen
    const newest = this.columns.at(-1);
    if (text) {
      newest.append(text);
      newest.parentElement.classList.add("some");
    }
    if (event === "end") newest.parentElement.classList.remove("newest");
  }

  column({ source, last }) {
    const mark = last ? "end of the sentence" : source ? null : "piece of a character";
    const spoken = mark && { role: "img", "aria-label": mark };
    const read = html("bdi", { class: "read", lang: this.languages.source, ...spoken }, legible(source));
    const written = html("bdi", { class: "written", lang: this.languages.target });
    this.columns.at(-1)?.parentElement.classList.remove("newest");
    this.strip.append(html("div", { class: "column newest" }, read, written));
    this.columns.push(written);
  }

  // What was written while nobody looked, and the server has kept as text only.
  missed(text) {
    this.gap("What follows was written meanwhile; how, the server no longer knows.");
    this.sentence = null;
    for (const [index, part] of text.split("\n").entries()) {
      if (index) this.lines.translation = null;
      if (part) this.line("translation").append(part);
    }
    this.redraw();
  }

  // Something to know, between two lines of the translation.
  gap(message) {
    this.panes.translation.append(html("p", { class: "gap" }, message));
    this.lines.translation = null;
  }

  // Another session has begun, with the last so many code points of the source; a sentence in it may have been begun.
  renewed(characters, begun, why) {
    this.lines.translation = this.sentence = null;
    const next = begun ? "Another one translates the unfinished sentence anew." : "Another one goes on.";
    if (begun || why) this.gap(`${why ?? "The server has lost this session."} ${next}`);
    this.read = characters - this.waiting;
    this.redraw();
  }

  moved(theta) {
    this.theta = theta;
    this.redraw();
  }

  draw() {
    const { sentence } = this;
    for (const pane of Object.values(this.panes)) pane.settle();
    at("waits").textContent = this.waiting ? `${this.waiting} ${this.waiting === 1 ? "character waits" : "characters wait"}` : "";
    if (!at("how").open) return;
    drawStaircase(at("staircase"), sentence);
    drawDecisions(at("decisions"), sentence, this.theta);
    at("al").textContent = number(sentence?.lagging ?? null);
    at("al-mean").textContent = number(mean(this.whole));
    at("behind").textContent = sentence ? String(sentence.behind) : "—";
    at("counts").textContent = sentence ? `${sentence.read} / ${sentence.written}` : "—";
    if (at("steps-part").open) this.table();
  }

  table() {
    const probability = (p) => (p === null ? "—" : p.toFixed(3));
    const rows = (this.sentence?.columns ?? []).map(({ source, last, written, left }, index) => {
      const read = html("th", { scope: "row" }, html("bdi", { lang: this.languages.source }, legible(source)));
      const cell = html("td");
      for (const { text, p } of written) {
        cell.append(html("bdi", { lang: this.languages.target }, legible(text)), html("span", { class: "p" }, ` (${probability(p)}) `));
      }
      const leaving = html("td", { class: "number" }, left ? probability(left.p) : "—");
      return html("tr", {}, html("td", { class: "number" }, String(index + 1)), read, cell, leaving);
    });
    at("steps").tBodies[0].replaceChildren(...rows);
  }
}
