// Large lines for an audience: the newest ones of a translation and, if asked for, of its source.
import { html } from "./dom.js";

export class Captions {
  // element: where to; lines: of the translation; source: whether to show it; clear: seconds until old ones go, 0 for never.
  constructor(element, { lines = 3, source = false, clear = 0 } = {}) {
    Object.assign(this, { lines, clear, timer: null });
    element.style.setProperty("--lines", lines);
    this.source = html("div", { class: "caption source" });
    this.translation = html("div", { class: "caption translation", role: "log", "aria-label": "Translation" });
    element.append(...(source ? [this.source] : []), this.translation);
  }

  speak({ source_language: source, target_language: target }) {
    this.source.lang = source;
    this.translation.lang = target;
  }

  event({ event, sentence, text, token }) {
    clearTimeout(this.timer);
    if (this.clear) this.timer = setTimeout(() => this.empty(), 1000 * this.clear);
    if (event === "read") this.add(this.source, sentence, token);
    else if (event !== "line") this.add(this.translation, sentence, text);
  }

  // Each sentence begins a line.
  add(pane, sentence, text) {
    if (!text) return;
    if (pane.lastChild?.dataset.sentence !== String(sentence)) pane.append(html("p", { "data-sentence": sentence }, html("bdi")));
    pane.lastChild.lastChild.append(text);
    while (pane.childElementCount > this.lines) pane.firstChild.remove();
  }

  remove() {
    for (const pane of [this.source, this.translation]) pane.remove();
  }

  empty() {
    for (const pane of [this.source, this.translation]) pane.replaceChildren();
  }
}
