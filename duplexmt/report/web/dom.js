// Elements, made without markup: whatever a speaker or a model has written enters a page as text. For the live page, a
// module; the report's script begins with it, without its exports.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, content) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...content);
  return element;
}

export const at = (id) => document.getElementById(id);
export const html = (name, attributes = {}, ...content) => filled(document.createElement(name), attributes, content);
export const svg = (name, attributes = {}, ...content) => filled(document.createElementNS(SVG, name), attributes, content);

// A token as a label: line ends and lone spaces can be seen, whatever controls or turns text is spelt out. One without
// text is a piece of a character that a later one completes.
export function legible(text) {
  if (!text) return "·";
  const shown = text.length > 1 ? text.replace(/^ /, "") : text;
  return shown
    .replace(/[\r\n]/g, "⏎")
    .replace(/^\s+$/, (spaces) => "␣".repeat(spaces.length))
    .replace(/(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}]/gu, (one) => `⟨${one.codePointAt(0).toString(16).toUpperCase()}⟩`);
}

const pen = document.createElement("canvas").getContext("2d");

// Pixels that a text takes, drawn at `size` pixels.
export function width(text, size) {
  pen.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}

// A text cut to `room` pixels.
export function fitted(text, size, room) {
  if (width(text, size) <= room) return text;
  const characters = Array.from(text);
  while (characters.length && width(characters.join("") + "…", size) > room) characters.pop();
  return `${characters.join("")}…`;
}

// Run `draw` once before the next frame, however often it is asked for.
export function onFrame(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}
