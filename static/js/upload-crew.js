// The workers, and the jobs given to them.
const MOST = 4;

export class Crew {
  constructor(url) {
    const count = Math.max(2, Math.min(MOST, navigator.hardwareConcurrency ?? 2));
    this.jobs = new Map();
    this.last = 0;
    this.workers = Array.from({ length: count }, () => this.hire(url));
  }

  hire(url) {
    const worker = new Worker(url, { type: "module" });
    worker.busy = 0;
    worker.addEventListener("message", ({ data }) => this.hear(worker, data));
    return worker;
  }

  hear(worker, { id, news, result, error }) {
    const job = this.jobs.get(id);
    if (!job) return;
    if (news) {
      job.news?.(news);
      return;
    }
    worker.busy -= 1;
    this.jobs.delete(id);
    if (error) job.reject(Object.assign(new Error(error.message), error));
    else job.resolve(result);
  }

  // The least busy worker does it. Rejects with an Error that has `kind`.
  run(job, order, { signal, news } = {}) {
    const worker = this.workers.reduce((one, other) => (other.busy < one.busy ? other : one));
    this.last += 1;
    const id = this.last;
    return new Promise((resolve, reject) => {
      this.jobs.set(id, { resolve, reject, news });
      worker.busy += 1;
      worker.postMessage({ id, job, order });
      const abort = () => worker.postMessage({ abort: id });
      if (signal?.aborted) abort();
      signal?.addEventListener("abort", abort, { once: true });
    });
  }

  wake() {
    for (const worker of this.workers) worker.postMessage({ wake: true });
  }
}
