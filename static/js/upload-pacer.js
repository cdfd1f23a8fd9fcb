// How much to send at once: about two seconds' worth, so that the portal confirms often and a cut
// costs little, and large enough that requests are few.
const QUICK_MS = 1000;
const SLOW_MS = 4000;

export class Pacer {
  constructor(least, most, size) {
    Object.assign(this, { least, most, size });
  }

  took(milliseconds, whole) {
    if (milliseconds > SLOW_MS) this.size = Math.max(this.least, this.size / 2);
    else if (milliseconds < QUICK_MS && whole) this.size = Math.min(this.most, this.size * 2);
  }
}
