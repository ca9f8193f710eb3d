// One row a plan: how many of its runs have ended, the median and the slowest of late, and a
// sparkline of them.
import {el, keyed, setAttribute, setText, svg} from './dom.js';
import {clean, duration, short, shorten} from './format.js';

const kSparkWidth = 84, kSparkHeight = 20, kSparkMost = 42;

// Bars from the oldest to the latest; the slowest is as high as the row.
export function sparkBars(times, most = kSparkMost) {
  const shown = times.slice(-most), high = Math.max(...shown, 1), width = kSparkWidth / most;
  return shown
      .map(
          (t, i) => `M${((most - shown.length + i) * width + 0.75).toFixed(1)},${kSparkHeight}V${
              (kSparkHeight - Math.max(1.5, (kSparkHeight - 2) * t / high)).toFixed(1)}`)
      .join('');
}

function sparkline() {
  const path = svg('path');
  const root =
      svg('svg', {
        class: 'spark',
        viewBox: `0 0 ${kSparkWidth} ${kSparkHeight}`,
        width: kSparkWidth,
        height: kSparkHeight,
        'aria-hidden': 'true'
      },
          [path]);
  return {root, path};
}

// The name of a plan in a row: its number, after its owner if several nodes own plans.
export function planLabel(row, hasOwners, most = 14) {
  const number = row.id.split('/').pop();
  return hasOwners ? `${shorten(clean(row.owner ?? ''), most)}/${number}` : `plan ${number}`;
}

// Rows of `RunTimes`, in a table of fixed columns. callbacks: plan(id).
export class RunTable {
  constructor(callbacks, {isShort = false} = {}) {
    this.callbacks = callbacks;
    this.isShort = isShort;
    this.body = el('tbody');
    this.none = el('p', {class: 'quiet', text: 'No plan is on any node.'});
    const head = ['Plan', 'Runs', 'Median', 'Slowest', ''].map(
        (text, i) => el('th', {class: i && i < 4 ? 'number' : '', scope: 'col', text}));
    this.table = el('table', {class: isShort ? 'fixed runs short' : 'fixed runs'}, [
      el('colgroup', {},
         ['plan', 'many', 'time', 'time', 'bars'].map((name) => el('col', {class: name}))),
      el('thead', {}, [el('tr', {}, head)]), this.body
    ]);
    this.root = el('div', {}, [this.none, this.table]);
  }

  update(rows, accused = new Set()) {
    const hasOwners = new Set(rows.map((r) => r.owner)).size > 1;
    this.none.hidden = rows.length > 0;
    this.table.hidden = !rows.length;
    keyed(this.body, rows, (r) => r.id, () => this.#make(), (row, r) => {
      const [name, count, middle, slowest] = row.children;
      row.onclick = () => this.callbacks.plan(r.id);
      row.classList.toggle('amiss', accused.has(r.id));
      setAttribute(
          row.dot, 'class',
          `pulse ${
              accused.has(r.id) ? 'amiss' :
                  r.running     ? '' :
                                  'still'}`);
      setText(row.link, planLabel(r, hasOwners, this.isShort ? 6 : 14));
      setText(count, short(r.count));
      setText(middle, duration(r.median));
      setText(slowest, duration(r.slowest));
      setAttribute(row.path, 'd', sparkBars(r.times));
      setAttribute(name, 'title', clean(r.id));
      setAttribute(
          row, 'title',
          `plan ${clean(r.id)} of ${short(r.actors)} actors: ${short(r.count)} runs have ended, ${
              short(r.failed)} of them failed; ${
              r.running ? `${short(r.running)} under way, for ${duration(r.for_ns)}` :
                          'none is under way'}; median and slowest are of the last ${
              short(r.times.length)} that this page has seen`);
      count.classList.toggle('bad', r.failed > 0);
    });
  }

  #make() {
    const dot = el('span', {class: 'pulse'}), link = el('button', {class: 'link'}),
          spark = sparkline();
    const row = el('tr', {class: 'run'}, [
      el('td', {class: 'name'}, [dot, link]), el('td', {class: 'number'}),
      el('td', {class: 'number'}), el('td', {class: 'number'}),
      el('td', {class: 'number'}, [spark.root])
    ]);
    Object.assign(row, {dot, link, path: spark.path});
    return row;
  }
}
