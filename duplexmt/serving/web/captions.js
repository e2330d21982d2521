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

  event({ event, sentence, text, token, tokens }) {
    clearTimeout(this.timer);
    if (this.clear) this.timer = setTimeout(() => this.empty(), 1000 * this.clear);
    if (event === "replaced") for (let left = tokens; left > 0; left -= 1) this.lineOf(this.source, sentence)?.lastChild?.remove();
    else if (event === "read") this.add(this.source, sentence, token);
    else if (event === "write" || event === "end") this.add(this.translation, sentence, text);
  }

  // Another session has begun: its sentences are counted anew.
  renewed() {
    for (const pane of [this.source, this.translation]) delete pane.lastChild?.dataset.sentence;
  }

  lineOf(pane, sentence) {
    return pane.lastChild?.dataset.sentence === String(sentence) ? pane.lastChild.lastChild : null;
  }

  // Each sentence begins a line; each source token is a node, so that it can be taken back.
  add(pane, sentence, text) {
    if (!text && !this.lineOf(pane, sentence)) return;
    if (!this.lineOf(pane, sentence)) pane.append(html("p", { "data-sentence": sentence, dir: "auto" }, html("span")));
    pane.lastChild.lastChild.append(text);
    while (pane.childElementCount > this.lines) pane.firstChild.remove();
  }

  empty() {
    for (const pane of [this.source, this.translation]) pane.replaceChildren();
  }
}
