// One tab of a browser sends to a dataset at a time; the others wait for their turn, so nothing
// is sent twice. Without locks (no secure context) the portal's offsets alone keep order.
const SOON_MS = 300;

export class Turn {
  constructor(dataset, taken, changed) {
    this.name = `e31-send-${dataset}`;
    this.taken = taken;
    this.changed = changed;
    this.mine = !navigator.locks;
    this.elsewhere = false; // another tab is sending
    this.asked = null;
  }

  // True when this tab may send; else it is told by `taken` when its turn has come.
  take() {
    if (!this.mine && !this.asked) this.ask();
    return this.mine;
  }

  async ask() {
    const asked = new AbortController();
    this.asked = asked;
    let waited = false;
    const late = setTimeout(() => {
      waited = this.elsewhere = true;
      this.changed();
    }, SOON_MS);
    const held = () => {
      clearTimeout(late);
      this.mine = true;
      this.elsewhere = false;
      this.taken(waited);
      return new Promise((resolve) => {
        this.end = resolve;
        if (!this.mine) resolve();
      });
    };
    await navigator.locks.request(this.name, { signal: asked.signal }, held).catch(() => null);
    clearTimeout(late);
    if (this.asked === asked) this.asked = null;
  }

  // Let the next tab send.
  pass() {
    if (!navigator.locks) return;
    this.mine = this.elsewhere = false;
    this.end?.();
    this.end = null;
    this.asked?.abort();
    this.asked = null;
  }

  // Whether another tab waits to send more.
  async wanted() {
    const all = await navigator.locks?.query();
    return Boolean(all?.pending?.some((lock) => lock.name === this.name));
  }
}
