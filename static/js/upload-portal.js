// What needs the sign-in: the manifest, the end, progress, and the list of what is unfinished.
import { check } from "./upload-answers.js";
import { Backoff, Cut, Refused, pause } from "./upload-http.js";

const LONGEST_MS = 120000;
const ASK_AGAIN_MS = 10000;

export class Portal {
  constructor(box) {
    const at = (name) => `${box.dataset.page}${name}`;
    this.urls = Object.fromEntries(["manifest", "pack", "progress", "remove", "seal", "unfinished"].map((name) => [name, at(name)]));
    this.field = box.querySelector("[name=csrfmiddlewaretoken]").value;
  }

  // Signing in again changes the token, in the cookie but not in this page.
  get token() {
    const cookie = document.cookie.split("; ").find((pair) => pair.startsWith("csrftoken="));
    return cookie ? cookie.slice("csrftoken=".length) : this.field;
  }

  // The answer's JSON. Throws Cut when nobody answered, Refused with its kind otherwise.
  async ask(url, { body, signal } = {}) {
    const limit = AbortSignal.timeout(LONGEST_MS);
    const headers = { Accept: "application/json" };
    if (body !== undefined) headers["X-CSRFToken"] = this.token;
    if (typeof body === "string") headers["Content-Type"] = "application/json";
    const answer = await fetch(url, {
      method: body === undefined ? "GET" : "POST",
      headers,
      body,
      redirect: "manual", // a redirect leads to the sign-in page
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    }).catch((error) => {
      if (error.name === "AbortError") throw error;
      throw new Cut();
    });
    if (answer.type === "opaqueredirect") throw new Refused("sign-in", "Sign in to go on.");
    const found = await answer.json().catch((error) => {
      if (error.name === "AbortError") throw error;
      return null;
    });
    if (answer.ok && !found) throw new Cut("The portal's answer broke off.");
    const message = found?.message ?? `The portal answered ${answer.status}.`;
    return check("session", { status: answer.status, body: found, message }).body;
  }

  // As `ask`, however long the portal is out of reach; `trouble(bool)` hears of it. `signal` ends
  // only the waits between tries: what went out may be done whether or not its answer is awaited,
  // and what is asked next must not overtake it.
  async insist(url, { body, signal, trouble } = {}) {
    const backoff = new Backoff(signal);
    for (;;) {
      try {
        const answer = await this.ask(url, { body });
        trouble?.(false);
        return answer;
      } catch (error) {
        if (error.kind !== "cut") throw error;
        trouble?.(true);
        await backoff.wait();
      }
    }
  }

  async manifest(files, options) {
    return (await this.insist(this.urls.manifest, { body: JSON.stringify({ files }), ...options })).files;
  }

  seal(options) {
    return this.insist(this.urls.seal, { body: "{}", ...options });
  }

  // A file leaves the dataset, and whatever has arrived of it. One that is not there has left.
  async remove(path, options) {
    try {
      await this.insist(this.urls.remove, { body: new URLSearchParams({ path }), ...options });
    } catch (error) {
      if (error.kind !== "gone") throw error;
    }
  }

  // `anew`: rates are measured from here on.
  progress(cursor, { anew, ...options } = {}) {
    return this.ask(`${this.urls.progress}?since=${encodeURIComponent(cursor)}${anew ? "&anew" : ""}`, options);
  }

  // Pages of [{path, size, offset, upload}]; nothing where the portal keeps no such list.
  async *unfinished(options) {
    let after = "";
    do {
      const page = await this.insist(`${this.urls.unfinished}?after=${encodeURIComponent(after)}`, options);
      yield page.files;
      after = page.next;
    } while (after);
  }

  // Resolves when somebody has signed in again, in whatever tab.
  async signedIn(signal) {
    for (;;) {
      await pause(ASK_AGAIN_MS, signal); // or sooner: coming back to this tab ends it
      try {
        await this.progress("", { signal });
        return;
      } catch (error) {
        if (error.name === "AbortError") throw error;
        if (error.kind !== "sign-in" && error.kind !== "cut") return;
      }
    }
  }
}
