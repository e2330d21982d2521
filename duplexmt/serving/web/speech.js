// The browser's own recogniser, where it has one: it changes its mind until it is certain.

export const Recogniser = window.SpeechRecognition ?? window.webkitSpeechRecognition;
const REASONS = {
  "not-allowed": "the microphone is not allowed here", "service-not-allowed": "this browser allows no recogniser here",
  "audio-capture": "there is no microphone", network: "the browser's recogniser cannot be reached",
  "language-not-supported": "the browser's recogniser does not know this language",
};

export class Microphone {
  // said(text, isFinal): of an utterance, all there is now; over(): it was left; heard(text): what is not certain;
  // changed(why): whether it listens, and why it ended, if not by itself.
  constructor({ said, over, heard, changed }) {
    Object.assign(this, { said, over, heard, changed, recogniser: null });
  }

  get listens() {
    return this.recogniser !== null;
  }

  start(language) {
    if (this.listens) return;
    const recogniser = Object.assign(new Recogniser(), { lang: language, continuous: true, interimResults: true });
    const ours = (act) => (event) => this.recogniser === recogniser && act(event);
    recogniser.onresult = ours(({ resultIndex, results }) => {
      for (const one of [...results].slice(resultIndex)) {
        if (one.isFinal && one[0].transcript.trim()) this.said(one[0].transcript.trim(), true);
      }
      const open = [...results].filter((one) => !one.isFinal).map((one) => one[0].transcript).join("");
      this.heard(open);
      this.said(open.trim(), false);
    });
    recogniser.onerror = ours(({ error }) => REASONS[error] && this.stop(REASONS[error])); // silence, say, is none
    recogniser.onend = ours(() => {
      this.over();
      recogniser.start(); // after a silence it ends by itself
    });
    this.recogniser = recogniser;
    recogniser.start();
    this.changed();
  }

  stop(why) {
    if (!this.listens) return;
    const { recogniser } = this;
    this.recogniser = null;
    recogniser.stop();
    this.over();
    this.heard("");
    this.changed(why);
  }
}
