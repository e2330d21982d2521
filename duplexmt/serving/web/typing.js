// Where source text comes from: a person's keyboard or clipboard, and a typist who copies a text at a given speed.

// Tell each text a person writes into `field`, once it is certain: what an input method composes is not, until it ends,
// nor what lies behind `whole(text)` characters. What is told leaves the field, as it is no longer the person's to change.
// Returns what looks at the field again.
export function listen(field, whole, tell) {
  let composing = false;
  const take = () => {
    const text = field.value, length = whole(text);
    if (composing || !length || field.disabled) return;
    field.value = text.slice(length);
    tell(text.slice(0, length));
  };
  field.addEventListener("compositionstart", () => (composing = true));
  field.addEventListener("compositionend", () => {
    composing = false;
    setTimeout(take); // a browser may have the text in place only after this event
  });
  field.addEventListener("input", take);
  return take;
}

// Types a text at `speed` characters a second, by the clock, whatever becomes of it.
export class Typist {
  static TICK = 40; // ms

  constructor(type, changed) {
    Object.assign(this, { type, changed, speed: 5, rest: [], due: 0, timer: null });
  }

  get active() {
    return this.timer !== null;
  }

  start(text) {
    this.stop();
    this.rest = Array.from(text); // code points, not halves of them
    this.due = 1; // the first one at once
    this.last = performance.now();
    this.timer = setInterval(() => this.tick(), Typist.TICK);
    this.changed();
    this.tick();
  }

  tick() {
    const now = performance.now();
    this.due += ((now - this.last) / 1000) * this.speed;
    this.last = now;
    const count = Math.min(Math.floor(this.due), this.rest.length);
    if (count) this.type(this.rest.splice(0, count).join(""));
    this.due -= count;
    if (!this.rest.length) this.stop();
  }

  stop() {
    if (!this.active) return;
    clearInterval(this.timer);
    Object.assign(this, { timer: null, rest: [] });
    this.changed();
  }
}
