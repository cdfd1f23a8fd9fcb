// One small poll: what the portal says of the dataset while something moves.
import { S, arrived } from "./upload-list.js";

const EVERY_MS = 2000;
const MARKS = { uploaded: S.UPLOADED, verified: S.VERIFIED, staged: S.STAGED };

export class Watch extends EventTarget {
  constructor({ portal, list, wanted, moving }) {
    super();
    Object.assign(this, { portal, list, wanted, moving });
    this.still = true; // nothing was to move since the last look: no time to measure a rate by
    this.cursor = "";
    this.asking = false;
    setInterval(() => this.look(), EVERY_MS);
  }

  async look() {
    if (this.asking || document.hidden || !this.wanted()) return;
    this.asking = true;
    this.still ||= !this.moving();
    const found = await this.portal.progress(this.cursor, { anew: this.still }).catch(() => null); // the next may be heard
    this.asking = false;
    if (!found) return;
    this.still = !this.moving();
    this.hear(found);
  }

  hear(found) {
    this.cursor = found.cursor ?? "";
    for (const { path, state } of found.changed ?? []) this.mark(this.list.find(path), MARKS[state]);
    if (found.state === "staged") this.markAll(S.STAGED);
    else if (found.files && found.verified === found.files) this.markAll(S.VERIFIED);
    this.dispatchEvent(new CustomEvent("progress", { detail: found }));
  }

  // Marks only rise: uploaded, verified, staged.
  mark(index, state) {
    if (index >= 0 && state > S.UPLOADED && arrived(this.list.state[index]) && this.list.state[index] < state) this.list.set(index, state);
  }

  markAll(state) {
    for (const index of [...this.list.in(S.UPLOADED, S.VERIFIED)]) this.mark(index, state);
  }
}
