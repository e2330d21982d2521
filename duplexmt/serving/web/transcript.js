// The translation with its times, for files; a test compares the subtitles with those of duplexmt/drawing/captions.py.

const LINE = 42, LINES = 2, LEAST = 1, AFTER = 1, PACE = 17, SILENCE = 3; // as there
const HAN = "\\p{scx=Han}\\p{scx=Hira}\\p{scx=Kana}\\p{scx=Bopo}\\uff01-\\uff0f\\uff1a-\\uff20\\uff3b-\\uff40\\uff5b-\\uff65";
const WIDE = new RegExp(`^[${HAN}]`, "u"), PIECES = new RegExp(`\\s*(?:[${HAN}]|[^\\s${HAN}]{1,${LINE}})|\\s+`, "gu");
const TWO = /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u;
const NONE = /[\p{Mn}\p{Me}\p{Cf}]/u;

const columns = (text) => Array.from(text).reduce((sum, one) => sum + (NONE.test(one) ? 0 : TWO.test(one) ? 2 : 1), 0);

// Whether no line may end between a word and the text behind it.
function joins(word, piece) {
  const last = Array.from(word).at(-1);
  if (/^\s/.test(piece) || columns(word + piece) > LINE) return false;
  if (/^[\p{Pe}\p{Pf}\p{Po}]/u.test(piece) || /[\p{Ps}\p{Pi}]$/u.test(word)) return true;
  return !(WIDE.test(piece) || WIDE.test(last));
}

function broken(words, width) {
  const lines = [""];
  for (const word of words) {
    if (lines.at(-1).trim() && columns((lines.at(-1) + word).trim()) > width) lines.push("");
    lines[lines.length - 1] += word;
  }
  return lines.map((line) => line.trim());
}

function balanced(words) {
  const most = broken(words, LINE).length;
  let width = most === 1 ? LINE : 1;
  while (broken(words, width).length > most) width += 1;
  return broken(words, width);
}

function clock(seconds) {
  const ms = Math.round(1000 * seconds);
  return `${String(Math.floor(ms / 3_600_000)).padStart(2, "0")}${new Date(ms).toISOString().slice(13, 23)}`;
}

export class Transcript {
  constructor() {
    Object.assign(this, { text: "", pieces: [], began: null, last: null });
  }

  // Text of a sentence that was written at a time in ms; if nobody saw when, at that of the one before.
  add(text, sentence, now = this.last) {
    this.began ??= now;
    this.last = now;
    this.text += text;
    if (text) this.pieces.push([text, sentence, (now - this.began) / 1000]);
  }

  // Another session has begun: its sentences are counted anew, and it begins a line.
  renewed() {
    if (this.text && !this.text.endsWith("\n")) this.add("\n", "renewed");
  }

  // As cues: {begin, end, lines}.
  cues() {
    const found = [];
    let words = [];
    const end = () => {
      const some = words.filter(([word]) => word.trim());
      words = [];
      if (!some.length) return;
      const lines = balanced(some.map(([word]) => word)), last = found.at(-1);
      const begin = Math.max(some[0][1], last ? last.begin + LEAST : 0);
      if (last) last.end = Math.min(last.end, begin);
      const read = Math.max(LEAST, columns(lines.join("\n")) / PACE);
      found.push({ begin, end: Math.max(some.at(-1)[2] + AFTER, begin + read), lines });
    };
    let before = null;
    for (const [text, sentence, now] of this.pieces) {
      if (sentence !== before) end();
      before = sentence;
      for (const [piece] of text.matchAll(PIECES)) {
        if (words.length && now - words.at(-1)[2] > SILENCE) end();
        const word = words.at(-1);
        if (word && joins(word[0], piece)) Object.assign(word, { 0: word[0] + piece, 2: now });
        else words.push([piece, now, now]);
        if (words.length > 1 && broken(words.map(([one]) => one), LINE).length > LINES) {
          const newest = words.pop();
          end();
          words = [newest];
        }
      }
    }
    end();
    return found;
  }

  get vtt() {
    const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
    const cues = this.cues().map(({ begin, end, lines }, i) => `${i + 1}\n${clock(begin)} --> ${clock(end)}\n${escaped(lines.join("\n"))}\n\n`);
    return `WEBVTT\n\n${cues.join("")}`;
  }
}
