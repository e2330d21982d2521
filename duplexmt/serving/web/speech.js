// The browser's own recogniser, where it has one: what it has made up its mind about is text.

export const Recogniser = window.SpeechRecognition ?? window.webkitSpeechRecognition;
const REASONS = {
  "not-allowed": "the microphone is not allowed here", "service-not-allowed": "this browser allows no recogniser here",
  "audio-capture": "there is no microphone", network: "the browser's recogniser cannot be reached",
  "language-not-supported": "the browser's recogniser does not know this language",
};

export class Microphone {
  // said(text): certain; heard(text): not yet; changed(why): whether it listens, and why it ended, if not by itself.
  constructor({ said, heard, changed }) {
    Object.assign(this, { said, heard, changed, recogniser: null });
  }

  get listens() {
    return this.recogniser !== null;
  }

  start(language) {
    if (this.listens) return;
    const recogniser = Object.assign(new Recogniser(), { lang: language, continuous: true, interimResults: true });
    const ours = (act) => (event) => this.recogniser === recogniser && act(event);
    recogniser.onresult = ours(({ resultIndex, results }) => {
      const news = [...results].slice(resultIndex);
      for (const one of news) if (one.isFinal && one[0].transcript.trim()) this.said(one[0].transcript.trim());
      this.heard(news.filter((one) => !one.isFinal).map((one) => one[0].transcript).join(""));
    });
    recogniser.onerror = ours(({ error }) => REASONS[error] && this.stop(REASONS[error])); // silence, say, is none
    recogniser.onend = ours(() => recogniser.start()); // after a silence it ends by itself
    this.recogniser = recogniser;
    recogniser.start();
    this.changed();
  }

  stop(why) {
    if (!this.listens) return;
    const { recogniser } = this;
    this.recogniser = null;
    recogniser.stop();
    this.heard("");
    this.changed(why);
  }
}
