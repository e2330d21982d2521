// What has been read and written of one sentence, gathered from its events. Nothing in it is changed later, only added, but source that was replaced.
import { averageLagging } from "./latency.js";

export class Sentence {
  constructor() {
    Object.assign(this, { read: 0, over: null, part: false });
    this.columns = []; // of each source token read: itself, what was written then, and how it was left for the next
    this.decisions = []; // wrote or read on, with p(EMIT) and θ
    this.delays = []; // source tokens read when each target token was written
  }

  add({ event, token, end, p_emit: p, theta, delay, reason, tokens }) {
    if (event === "replaced") return this.takeBack(tokens);
    if (!this.columns.length && event !== "read") {
      this.part = true; // its beginning was not seen
      this.columns.push({ source: "…", last: false, written: [], left: null });
    }
    const column = this.columns.at(-1);
    if (event === "read") {
      const source = end ? "■" : token;
      if (column) {
        column.left = { p, theta };
        this.decisions.push({ wrote: false, text: source, p, theta, forced: false });
      } else this.part = p !== null;
      if (!end) this.read += 1;
      this.columns.push({ source, last: end, written: [], left: null });
    } else if (event === "write") {
      column.written.push({ text: token, p, theta });
      this.decisions.push({ wrote: true, text: token, p, theta, forced: column.last });
      this.delays.push(delay);
    } else this.over = reason;
  }

  // The last so many source tokens were replaced; what was written stands under the one before.
  takeBack(tokens) {
    const back = tokens ? this.columns.splice(-tokens) : [], written = back.flatMap((column) => column.written);
    this.read -= back.filter((column) => !column.last).length;
    if (written.length && !this.columns.length) this.columns.push({ source: "…", last: false, written: [], left: null });
    this.columns.at(-1)?.written.push(...written);
  }

  get written() {
    return this.delays.length;
  }

  // Source tokens read that no target token stands against; none once the sentence is over.
  get behind() {
    return this.over === null ? Math.max(0, this.read - this.written) : 0;
  }

  // AL as if the source ended here, with what was written for a reference; null where nothing was, or not all was seen.
  get lagging() {
    return this.part ? null : averageLagging(this.delays, this.read, this.written);
  }
}
