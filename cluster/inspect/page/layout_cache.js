// The finished layouts, by group: each is requested once, and stays while the plan does. A layout
// that arrives for a plan that is shown no more, which may have had the same id, is dropped. A
// failed layout is requested again.
import { boxWidth, kBoxHeight } from './layout.js';
import { layoutInput } from './model.js';

export class Layouts {
  // run({key, boxes, edges}) promises {boxes, width, height, at, routes}: in a worker, or here.
  constructor(run) {
    this.run = run;
    this.done = new Map();
    this.underWay = new Map();
    this.plans = 0;  // shown so far
  }

  // The plan is another, or one of another life.
  forget() {
    this.plans += 1;
    this.done.clear();
    this.underWay.clear();
  }

  #key(tree, v) {
    return `${this.plans}\u0001${tree.plan.id}\u0001${tree.grouping}\u0001${tree.key(v)}`; }
  of(tree, v) { return this.done.get(this.#key(tree, v)); }

  // Promises that all these groups have a layout.
  make(tree, groups) {
    return Promise.all([...groups].map((v) => {
      const key = this.#key(tree, v);
      if (this.done.has(key)) return null;
      if (!this.underWay.has(key)) {
        const { children, edges } = layoutInput(tree, v);
        const boxes = children.map((u) => [boxWidth(tree.labels[u], tree.isGroup(u)), kBoxHeight]);
        const { plans } = this;
        this.underWay.set(key, this.run({ key, boxes, edges }).then((result) => {
          if (plans === this.plans) this.done.set(key, result);
        }).finally(() => this.underWay.delete(key)));
      }
      return this.underWay.get(key);
    }));
  }
}

// Runs layouts in a worker, which answers by key.
export function inWorker(url) {
  const worker = new Worker(url, { type: 'module' });
  const waiting = new Map();
  worker.onmessage = ({ data }) => {
    waiting.get(data.key)?.resolve(data);
    waiting.delete(data.key);
  };
  worker.onerror = (event) => {
    for (const { reject } of waiting.values())
      reject(new Error(`the layout's worker failed: ${event.message}`));
    waiting.clear();
  };
  return (job) => new Promise((resolve, reject) => {
    waiting.set(job.key, { resolve, reject });
    worker.postMessage(job);
  });
}
