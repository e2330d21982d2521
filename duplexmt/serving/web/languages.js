// What a browser knows of languages by their codes.

const SCRIPTS = { Hans: ["Han"], Hant: ["Han"], Jpan: ["Han", "Hiragana", "Katakana"], Kore: ["Hangul", "Han"] };
const LEAST = 8; // letters by which a script is judged

// What `find` finds; `otherwise` for a code, or a script, that the browser does not know.
function known(find, otherwise) {
  try {
    return find();
  } catch (error) {
    if (!(error instanceof RangeError || error instanceof SyntaxError)) throw error;
    return otherwise;
  }
}

export const nameOf = (code) => known(() => new Intl.DisplayNames(["en"], { type: "language" }).of(code), code);

// With its usual country, as recognisers want it: zh-CN.
export const placed = (code) => known(() => `${new Intl.Locale(code).language}-${new Intl.Locale(code).maximize().region}`, code);

// Whether hardly a letter of a text is of the language's script.
export function isForeign(text, code) {
  const letters = text.match(/\p{L}/gu) ?? [];
  const script = known(() => new Intl.Locale(code).maximize().script, undefined);
  if (letters.length < LEAST || !script) return false;
  const parts = (SCRIPTS[script] ?? [script]).map((one) => `\\p{Script_Extensions=${one}}`).join("");
  const own = known(() => new RegExp(`[${parts}]`, "u"), /./u);
  return letters.filter((letter) => own.test(letter)).length < letters.length / 10;
}

// How much of a text is whole words: all but the last one, which may go on.
export function wholeWords(text, code) {
  const words = [...known(() => new Intl.Segmenter(code, { granularity: "word" }), new Intl.Segmenter()).segment(text)];
  return words.at(-1)?.isWordLike ? words.at(-1).index : text.length;
}
