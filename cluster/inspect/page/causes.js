// Causes: per node, the dependences that its event times show beside the true ones of the plan.
import { el, keyed, setAttribute, setText, svg } from './dom.js';
import { clean, duration, percent, short, shorten } from './format.js';

const kSize = 380, kHeight = 300, kRadius = 118, kLocked = 0.5;

const key = (e) => `${e.from}\n${e.to}`;

// Found edges against true ones: {found[{..., isRight}], truth[{..., isFound}], precision, recall}.
export function compared(node) {
  const truth = new Set(node.true_edges.map(key)), found = new Set(node.edges.map(key));
  const right = node.edges.filter((e) => truth.has(key(e))).length;
  return {
    found: node.edges.map((e) => ({ ...e, isRight: truth.has(key(e)) })),
    truth: node.true_edges.map((e) => ({ ...e, isFound: found.has(key(e)) })),
    precision: found.size ? right / found.size : NaN,
    recall: truth.size ? right / truth.size : NaN,
  };
}

// Why edges of this node are no causes; empty: nothing speaks against them. `training`: of
// trainingOf, or undefined.
export function whyNoCauses(node, training) {
  const isLocked = node.locked >= kLocked;
  if (!isLocked) return '';
  const what = training ? 'A training runs here, and its steps lock the channels together'
    : 'A fixed cycle locks the channels together';
  return `${what}: ${percent(node.locked)} of the pairs fire equally often. Each channel then ` +
    'follows every other one after a delay that hardly varies, so times alone cannot tell a ' +
    'cause from a companion. Edges on the left are no causes; the plan on the right has them.';
}

// Places of channels on a circle, the same in both drawings.
export function ring(count, size = kSize, radius = kRadius) {
  return Array.from({ length: count }, (_, i) => {
    const angle = (2 * Math.PI * i) / Math.max(1, count) - Math.PI / 2;
    return [size / 2 + radius * Math.cos(angle), size / 2 + radius * Math.sin(angle)];
  });
}

// A path from one place to another that bends off the straight line, so that both ways are seen.
export function bow([x1, y1], [x2, y2], gap = 15) {
  const length = Math.hypot(x2 - x1, y2 - y1) || 1, dx = (x2 - x1) / length,
    dy = (y2 - y1) / length, bend = length / 7;
  const mx = (x1 + x2) / 2 - dy * bend, my = (y1 + y2) / 2 + dx * bend;
  const cut = (x, y) => {
    const l = Math.hypot(mx - x, my - y) || 1;
    return [x + ((mx - x) / l) * gap, y + ((my - y) / l) * gap];
  };
  const a = cut(x1, y1), b = cut(x2, y2), n = (v) => v.toFixed(1);
  return `M${n(a[0])},${n(a[1])}Q${n(mx)},${n(my)} ${n(b[0])},${n(b[1])}`;
}

// `[begins, text]` of alarms, the last first; one that is taken back says when.
export function alarmsOf(node, now) {
  const open = new Map();
  for (const a of node.alarms) open.set(a.key, a);
  return [...open.values()].sort((a, b) => b.begin_ns - a.begin_ns).slice(0, 6).map((a) => {
    const isOpen = a.change === 'insert';
    return { isOpen, text: `${clean(a.output)}: ${clean(a.text)}`,
      when: isOpen ? `for ${duration(now - a.begin_ns)}`
        : `ended after ${duration(a.end_ns - a.begin_ns)}` };
  });
}

function drawing(title, id) {
  const ends = ['right', 'wrong', 'missed'].map((kind) =>
    svg('marker', { id: `${id}-${kind}`, class: kind, viewBox: '0 0 8 8', refX: 7, refY: 4,
      markerWidth: 7, markerHeight: 7, orient: 'auto-start-reverse',
      markerUnits: 'userSpaceOnUse' }, [svg('path', { d: 'M0,0L8,4L0,8z' })]));
  return el('figure', {}, [el('figcaption', { text: title }),
    svg('svg', { viewBox: `0 ${(kSize - kHeight) / 2} ${kSize} ${kHeight}`, role: 'img',
      'aria-label': title },
      [svg('defs', {}, ends), svg('g', { class: 'edges' }), svg('g', { class: 'channels' })])]);
}

export class Causes {
  constructor(root) {
    this.empty = el('p', { class: 'quiet', text: 'The nodes watch their own events from now on; ' +
      'the first test needs 20 events of a channel.' });
    this.list = el('div', { class: 'nodes' });
    const intro = 'Which events cause which, from their times alone (CT-NOR): each node fits its ' +
      'own, and sends parameters. Left: found, dashed where the plan has no such edge. Right: ' +
      'the plan, dotted where nothing was found.';
    root.append(el('p', { class: 'quiet', text: intro }), this.empty, this.list);
    this.made = 0;
  }

  // `answer`: of /api/dependence, or null; `trainings`: nodes with a training, by name.
  set(answer, trainings = new Map()) {
    const nodes = (answer?.nodes ?? []).filter((n) => n.channels.length > 1);
    this.empty.hidden = nodes.length > 0;
    keyed(this.list, nodes, (n) => n.node, () => this.#make(), (row, n) =>
      this.#update(row, n, trainings.get(n.node), answer.time_ns));
  }

  #make() {
    this.made += 1;
    return el('section', {}, [el('h2'), el('p', { class: 'verdict hang' }),
      el('div', { class: 'pair' }, [drawing('Found from times', `found-${this.made}`),
        drawing('True, by the plan', `true-${this.made}`)]), el('ul', { class: 'alarms' })]);
  }

  #update(row, node, training, now) {
    const [title, why, pair, alarms] = row.children;
    const { found, truth, precision, recall } = compared(node);
    const score = (v) => (Number.isNaN(v) ? '–' : percent(v));
    setText(title, `${shorten(clean(node.node), 40)}: precision ${score(precision)}, recall ${
      score(recall)}, ${short(node.channels.length)} channels in ${
      duration(node.seconds * 1e9)}`);
    const words = found.length ? whyNoCauses(node, training) : '';
    why.hidden = !words;
    setText(why, words);
    const names = node.channels.map((c) => c.name), events = node.channels.map((c) => c.events);
    this.#draw(pair.children[0], names, events, found.map((e) => ({ ...e,
      kind: e.isRight ? 'right' : 'wrong',
      title: `${clean(e.from)} → ${clean(e.to)}: ${short(e.strength)} outputs an input, after ${
        duration(e.delay * 1e9)}, q = ${short(e.q)}; ${e.isRight ? 'true' : 'no edge of the plan'}`,
    })));
    this.#draw(pair.children[1], names, events, truth.map((e) => ({ ...e,
      kind: e.isFound ? 'right' : 'missed',
      title: `${clean(e.from)} → ${clean(e.to)}: ${e.isFound ? 'found' : 'not found'}` })));
    keyed(alarms, alarmsOf(node, now), (a) => `${a.text}${a.when.startsWith('for')}`,
      () => el('li', {}, [el('b'), el('span', { class: 'right' })]), (item, a) => {
        item.className = a.isOpen ? 'open' : '';
        setText(item.children[0], shorten(a.text, 160));
        setText(item.children[1], a.when);
      });
  }

  #draw(figure, names, events, edges) {
    const drawn = figure.children[1], places = ring(names.length);
    const id = drawn.querySelector('marker').id.replace(/-right$/, '');
    const [, lines, boxes] = drawn.children;
    keyed(lines, edges, (e) => `${key(e)}\n${e.kind}`, (e) =>
      svg('path', { class: e.kind, 'marker-end': `url(#${id}-${e.kind})` }, [svg('title')]),
    (path, e) => {
      const from = places[names.indexOf(e.from)], to = places[names.indexOf(e.to)];
      if (!from || !to) return;
      setAttribute(path, 'd', bow(from, to));
      setText(path.firstChild, e.title);
    });
    keyed(boxes, names.map((name, i) => ({ name, i })), (c) => c.name, () =>
      svg('g', {}, [svg('circle', { r: 7 }), svg('text'), svg('title')]), (g, { name, i }) => {
      const [x, y] = places[i], isRight = x > kSize / 2 + 1, isMiddle = Math.abs(x - kSize / 2) < 1;
      const [dot, label, tip] = g.children;
      setAttribute(dot, 'cx', x.toFixed(1));
      setAttribute(dot, 'cy', y.toFixed(1));
      setAttribute(label, 'text-anchor', isMiddle ? 'middle' : isRight ? 'start' : 'end');
      setAttribute(label, 'x', (isMiddle ? x : x + (isRight ? 12 : -12)).toFixed(1));
      setAttribute(label, 'y', (isMiddle ? y + (y < kSize / 2 ? -14 : 22) : y + 4).toFixed(1));
      setText(label, shorten(clean(name).replace(/ \([^)]*\)$/, ''), 17));
      setText(tip, `${clean(name)}: ${short(events[i])} events`);
    });
  }
}
