// The topology as SVG: open groups, edges, boxes. Geometry changes when the user opens or closes a
// group (`draw`); a tick changes colours and numbers only (`update`).
import { el, svg, setAttribute, setText } from './dom.js';
import { drawEdge } from './edges.js';
import { bytes, clean, percent, range, rate, short, shorten } from './format.js';
import { compose } from './layout.js';
import { kStates } from './model.js';

const kMostLabels = 90;  // labelled edges: more are noise

// Fonts of the scene, in its own units, and what is readable on the screen: from `kDetail` on all
// words are; from `kNamed` on names are, which are drawn the larger for it; below, boxes are
// colours.
// kBelow leaves room for the legend.
const kNameSize = 14, kReadable = 11, kDetail = 0.9, kNamed = 0.5, kAround = 28, kBelow = 46;

export const kStateWords = { idle: 'idle', ready: 'ready', running: 'busy', waiting: 'waiting',
  dead: 'dead', failed: 'failed' };

export class Graph {
  // callbacks: select(target), toggle(box), covered(): how much of its height is hidden from below.
  // A target is {box} or {link}, or null.
  constructor(element, layouts, callbacks) {
    this.element = element;
    this.layouts = layouts;
    this.callbacks = callbacks;
    this.boxes = new Map();   // box: its elements
    this.lines = new Map();   // "from to": the elements of a link
    this.rects = new Map();
    this.links = [];
    this.selected = null;
    this.scene = svg('g', { class: 'scene' });
    this.groupLayer = svg('g');
    this.edgeLayer = svg('g', { class: 'edges' });
    this.boxLayer = svg('g');
    this.scene.append(this.groupLayer, this.edgeLayer, this.boxLayer);
    const heads = ['plain', 'near', 'full'].map((kind) => svg('marker', {
      id: `head-${kind}`, class: `head ${kind}`, viewBox: '0 0 8 8', refX: 7, refY: 4,
      markerWidth: 7, markerHeight: 7, orient: 'auto-start-reverse', markerUnits: 'userSpaceOnUse',
    }, [svg('path', { d: 'M0.5,0.8L7.5,4L0.5,7.2z' })]));
    element.append(svg('defs', {}, heads), this.scene);
    this.zoom = d3.zoom().scaleExtent([0.04, 2.5]).clickDistance(4)
      .filter(() => !d3.event.button && d3.event.type !== 'dblclick').on('zoom', () => {
      const { x, y, k } = d3.event.transform;
      this.scene.setAttribute('transform', `translate(${x},${y}) scale(${k})`);
      if (d3.event.sourceEvent) this.isByHand = true;
      this.#sizeNames(k);
    });
    d3.select(element).call(this.zoom);
    element.addEventListener('click',
      (event) => { if (event.target === element) this.callbacks.select(null); });
    element.addEventListener('dblclick', (event) => { if (event.target === element) this.fit(); });
  }

  setModel(tree, view, totals, counters) {
    for (const { root } of this.boxes.values()) root.remove();
    for (const { root } of this.lines.values()) root.remove();
    this.boxes.clear();
    this.lines.clear();
    this.rects = new Map();
    this.links = [];
    this.selected = null;
    this.active = undefined;
    Object.assign(this, { tree, view, totals, counters });
  }

  // No plan is there: nothing is drawn.
  clear() { this.setModel(null, null, null, null); }

  // Words keep their size where the graph is small, and go before they are too small to read.
  #sizeNames(k) {
    const { element } = this;
    const size = k >= kDetail ? kNameSize
      : Math.min(kReadable / kNamed, Math.max(kNameSize, Math.ceil((2 * kReadable) / k) / 2));
    element.classList.toggle('far', k < kDetail);
    element.classList.toggle('farther', k < kNamed - 1e-6);
    if (size === this.nameSize) return;
    this.nameSize = size;
    element.style.setProperty('--name-size', `${size}px`);
    for (const box of this.boxes.values()) this.#fitName(box);
  }
  #fitName(box) {
    const size = this.nameSize ?? kNameSize;
    setText(box.name, shorten(box.label,
      Math.max(4, Math.floor((box.room ?? 400) / (0.64 * size)))));
  }

  // Promises that all that is open is on the page. `anchor` is a box that stays where it is on the
  // screen.
  async draw(anchor) {
    const { tree, view } = this;
    if (!tree) return;
    await this.layouts.make(tree, [...view.open.keys()]);
    if (tree !== this.tree) return;
    const before = anchor === undefined ? undefined : this.rects.get(anchor);
    const { rects, routes } = compose(tree, view.open, (v) => this.layouts.of(tree, v));
    this.rects = rects;
    this.#drawBoxes();
    this.#drawLinks(routes);
    const after = anchor === undefined ? undefined : rects.get(anchor);
    if (before && after) {
      const t = d3.zoomTransform(this.element);
      this.#moveTo(t.translate(before.x - after.x, before.y - after.y));
    }
    this.update();
  }

  #drawBoxes() {
    for (const [v, { root, isOpen }] of this.boxes) {
      const rect = this.rects.get(v);
      if (rect && rect.isOpen === isOpen) continue;
      root.remove();
      this.boxes.delete(v);
    }
    for (const [v, rect] of this.rects) {
      let box = this.boxes.get(v);
      if (!box) {
        box = rect.isOpen ? this.#makeOpen(v) : this.#makeBox(v, rect);
        this.boxes.set(v, box);
        (rect.isOpen ? this.groupLayer : this.boxLayer).append(box.root);
      }
      box.root.style.transform = `translate(${rect.x.toFixed(2)}px,${rect.y.toFixed(2)}px)`;
      setAttribute(box.card, 'width', rect.width);
      setAttribute(box.card, 'height', rect.height);
      if (!rect.isOpen) continue;
      this.groupLayer.append(box.root);  // outer ones below inner ones
      box.room = rect.width - 28 - 36 - (box.loop ? 90 : 0);
      this.#fitName(box);
      setAttribute(box.chevron, 'transform', `translate(${rect.width - 30},10)`);
      if (box.loop) setAttribute(box.loop, 'transform', `translate(${rect.width - 40},0)`);
    }
    if (!this.rects.has(this.active)) this.active = this.rects.keys().next().value;
    this.#markActive();
  }

  #listen(root, v) {
    root.addEventListener('click', (event) => {
      event.stopPropagation();
      this.active = v;
      this.#markActive();
      this.callbacks.select({ box: v });
    });
    root.addEventListener('dblclick', (event) => {
      event.stopPropagation();
      this.callbacks.toggle(v);
    });
  }

  #chevron(v, x, sign) {
    const root = svg('g', { class: 'chevron', transform: `translate(${x},10)` },
      [svg('rect', { width: 20, height: 20, rx: 6 }),
        svg('path', { d: sign === '+' ? 'M6,10H14M10,6V14' : 'M6,10H14' })]);
    root.addEventListener('click', (event) => {
      event.stopPropagation();
      this.callbacks.toggle(v);
    });
    return root;
  }

  #makeBox(v, { width, height }) {
    const { tree } = this;
    const isGroup = tree.isGroup(v), actor = tree.actors[v];
    const label = clean(tree.labels[v]);
    const card = svg('rect', { class: 'card', rx: 9 });
    const dot = svg('circle', { class: 'dot', cx: 14, cy: 18, r: 4.5 });
    const name = svg('text', { class: 'name', x: 25, y: 18 });
    const kind = svg('text', { class: 'kind', x: 14, y: 40 });
    const speed = svg('text', { class: 'speed', x: width - 10, y: 40, 'text-anchor': 'end' });
    const bar = svg('g', { class: 'bar', transform: `translate(10,${height - 4})` },
      isGroup ? kStates.map((s) => svg('rect', { class: s, height: 3, y: -1 })) : []);
    const root = svg('g', { class: isGroup ? 'box group' : 'box actor', role: 'treeitem',
      tabindex: -1, 'data-box': v }, [card, dot, name, kind, speed, bar]);
    if (isGroup) root.append(this.#chevron(v, width - 26, '+'));
    const loop = this.#makeLoop(v, width);
    if (loop) root.append(loop);
    const tooltip = svg('title', { text: label });
    root.append(tooltip);
    this.#listen(root, v);
    setText(kind,
      isGroup
      ? `${short(tree.sizes[v])} ${tree.isRange[v] ? 'ops' : tree.sizes[v] === 1 ? 'actor'
        : 'actors'}` : shorten(clean(tree.plan.actors.get(actor, 'op')), 13));
    const box = { root, card, dot, name, kind, speed, bar, loop, label, width,
      room: width - 32 - (isGroup ? 24 : 0), isOpen: false };
    this.#fitName(box);
    return box;
  }

  #makeOpen(v) {
    const card = svg('rect', { class: 'card', rx: 12 });
    const label = clean(this.tree.labels[v]);
    const dot = svg('circle', { class: 'dot', cx: 17, cy: 20, r: 4 });
    const name = svg('text', { class: 'name', x: 28, y: 24, text: '' });
    const root = svg('g', { class: 'box open', role: 'treeitem', tabindex: -1, 'data-box': v,
      'aria-expanded': 'true' }, [card, dot, name]);
    const loop = this.#makeLoop(v, 0), chevron = this.#chevron(v, 0, '−');
    if (loop) root.append(loop);
    root.append(chevron);
    this.#listen(root, v);
    return { root, card, dot, name, loop, chevron, label, isOpen: true };
  }

  // A pill on what is a loop, and in none around it.
  #makeLoop(v, width) {
    const frame = this.tree.frames[v], parent = this.tree.parents[v];
    if (!frame || (parent > 0 && this.tree.frames[parent] === frame)) return null;
    return svg('g', { class: 'loop', transform: `translate(${width - 12},0)` },
      [svg('rect', { rx: 9, height: 18, y: -9 }),
        svg('text', { y: 4.5, 'text-anchor': 'end', x: -7 })]);
  }

  #drawLinks(routes) {
    this.links = this.view.links();
    const alive = new Set();
    for (const link of this.links) {
      const key = `${link.from} ${link.to}`;
      const a = this.rects.get(link.from), b = this.rects.get(link.to);
      if (!a || !b) continue;
      alive.add(key);
      let line = this.lines.get(key);
      if (!line) {
        const path = svg('path', { class: 'line', 'marker-end': 'url(#head-plain)' }),
          hit = svg('path', { class: 'hit' });
        const text = svg('text', { class: 'flow' });
        const root = svg('g', { class: link.isBack ? 'link back' : 'link' }, [path, hit, text]);
        root.classList.toggle('across',
          this.tree.parents[link.from] !== this.tree.parents[link.to]);
        hit.addEventListener('click', (event) => {
          event.stopPropagation();
          this.callbacks.select({ link: key });
        });
        line = { root, path, hit, text };
        this.lines.set(key, line);
        this.edgeLayer.append(root);
      }
      line.link = link;
      const { path, middle } = drawEdge(a, b, link.isBack ? undefined : routes.get(key));
      setAttribute(line.path, 'd', path);
      setAttribute(line.hit, 'd', path);
      setAttribute(line.text, 'x', Math.round(middle[0]) + 6);
      setAttribute(line.text, 'y', Math.round(middle[1]) + 3);
    }
    for (const [key, { root }] of this.lines)
      if (!alive.has(key)) { root.remove(); this.lines.delete(key); }
  }

  // Returns the flow over a link: tokens a second, queue and credit of cut edges. For an edge that
  // is not cut the rate is its producer's firings, except for a ResidentLoop, which fires once an
  // iteration and has its outputs at its end.
  flow(link) {
    const { counters, totals, tree } = this;
    const flow = { rate: 0, bytes: 0, tokens: 0, queue: 0, window: 0, cut: 0, isFull: false };
    for (const e of link.edges) {
      if (tree.plan.isCut[e]) {
        flow.cut += 1;
        flow.rate += counters.tokenRate[e];
        flow.bytes += counters.byteRate[e];
        flow.tokens += counters.tokens[e];
        flow.queue += counters.inFlight[e];
        flow.window += counters.window[e];
        flow.isFull ||= counters.window[e] > 0 && counters.inFlight[e] >= counters.window[e];
      } else if (!tree.plan.residents.has(tree.plan.from[e])) {
        flow.rate += totals.rates[0][tree.leafOf[tree.plan.from[e]]];
      }
    }
    return flow;
  }

  update() {
    if (!this.tree) return;
    for (const [v, box] of this.boxes) this.#updateBox(v, box);
    const showsText = this.lines.size <= kMostLabels;
    for (const line of this.lines.values()) this.#updateLink(line, showsText);
  }

  #updateBox(v, box) {
    const { totals, tree } = this;
    const state = totals.state(v);
    if (box.state !== state) {
      box.root.classList.remove(box.state);
      box.root.classList.add(state);
      box.state = state;
    }
    const fires = totals.rates[0][v];
    if (!box.isOpen) {
      setText(box.speed, fires > 0 ? rate(fires) : state === 'idle' || state === 'running' ? ''
        : kStateWords[state]);
      if (tree.isGroup(v)) this.#updateBar(v, box);
    }
    if (box.loop) this.#updateLoop(v, box);
    const size = tree.isGroup(v) ? `, ${tree.sizes[v]} actors` : '';
    setAttribute(box.root, 'aria-label',
      `${box.label}${size}, ${kStateWords[state]}, ${short(fires)} firings a second`);
    if (tree.isGroup(v) && !box.isOpen) setAttribute(box.root, 'aria-expanded', 'false');
  }

  #updateBar(v, box) {
    const { totals, tree } = this;
    let x = 0;
    Array.from(box.bar.children).forEach((part, s) => {
      const length = (box.width - 20) * totals.count(v, kStates[s]) / tree.sizes[v];
      setAttribute(part, 'x', x.toFixed(1));
      setAttribute(part, 'width', length.toFixed(1));
      x += length;
    });
  }

  // loops: {name of the frame: {first, last, window}} of the runs that are under way.
  setLoops(loops) { this.loops = loops; }
  #updateLoop(v, box) {
    const open = this.loops?.get(this.tree.frames[v]);
    const text = open ? `↻ ${range(open.first, open.last)}` : '↻';
    const [pill, words] = box.loop.children;
    setText(words, text);
    const width = 14 + 7.4 * text.length;
    setAttribute(pill, 'width', width);
    setAttribute(pill, 'x', -width);
  }

  #updateLink(line, showsText) {
    const flow = this.flow(line.link);
    // These edges are many, and long.
    const isAside = line.root.classList.contains('across') && !this.#isNear(line.link);
    setAttribute(line.path, 'stroke-width',
      ((isAside ? 0.55 : 1) * (1.1 + Math.min(2.4, 0.5 * Math.log10(1 + flow.rate)))).toFixed(2));
    line.root.classList.toggle('moves', flow.rate > 0);
    line.root.classList.toggle('full', flow.isFull);
    const near = this.#isNear(line.link);
    line.root.classList.toggle('near', near);
    setAttribute(line.path, 'marker-end',
      `url(#head-${near ? 'near' : flow.isFull ? 'full' : 'plain'})`);
    const says = near || (showsText && flow.cut > 0 && !line.root.classList.contains('across'));
    const parts = [];
    if (says && flow.rate > 0) parts.push(rate(flow.rate));
    if (says && flow.window > 0) parts.push(`${short(flow.queue)} of ${short(flow.window)}`);
    setText(line.text, parts.join(' · '));
  }

  #isNear(link) {
    if (!this.selected) return false;
    if (this.selected.link) return this.selected.link === `${link.from} ${link.to}`;
    return link.from === this.selected.box || link.to === this.selected.box;
  }

  linkOf(key) { return this.lines.get(key)?.link; }

  select(target) {
    this.boxes.get(this.selected?.box)?.root.classList.remove('selected');
    this.selected = target;
    this.boxes.get(target?.box)?.root.classList.add('selected');
    this.element.classList.toggle('selecting', Boolean(target));
    this.update();
  }

  // ---- keyboard: one box is active, and can be tabbed to

  #markActive() {
    for (const [v, { root }] of this.boxes)
      setAttribute(root, 'tabindex', v === this.active ? 0 : -1);
  }

  focus(v) {
    if (!this.boxes.has(v)) return;
    this.active = v;
    this.#markActive();
    this.reveal(v);
    this.boxes.get(v).root.focus({ preventScroll: true });
  }

  // The nearest box in a direction: what lies more to the side counts as farther.
  move(dx, dy) {
    const from = this.rects.get(this.active);
    if (!from) return;
    const centre = (r) => [r.x + r.width / 2, r.y + (r.isOpen ? 10 : r.height / 2)];
    const [fx, fy] = centre(from);
    let best, least = Infinity;
    for (const [v, r] of this.rects) {
      if (v === this.active) continue;
      const [x, y] = centre(r);
      const along = (x - fx) * dx + (y - fy) * dy,
        aside = Math.abs((x - fx) * dy) + Math.abs((y - fy) * dx);
      if (along <= 4) continue;
      const distance = along + 2.2 * aside;
      if (distance < least) { least = distance; best = v; }
    }
    if (best !== undefined) this.focus(best);
  }

  // ---- what is in the window

  #moveTo(transform, isSlow = false) {
    const target = d3.select(this.element);
    const still = !isSlow || matchMedia('(prefers-reduced-motion: reduce)').matches;
    if (still) this.zoom.transform(target, transform);
    else this.zoom.transform(target.transition().duration(260), transform);
  }

  #bounds(v) {
    if (v !== undefined && v !== 0) return this.rects.get(v);
    let left = Infinity, top = Infinity, right = -Infinity, bottom = -Infinity;
    for (const r of this.rects.values()) {
      left = Math.min(left, r.x);
      top = Math.min(top, r.y);
      right = Math.max(right, r.x + r.width);
      bottom = Math.max(bottom, r.y + r.height);
    }
    return { x: left, y: top, width: right - left, height: bottom - top };
  }

  // The pane has another size: all of the graph is in it again. A view that a hand has zoomed
  // stays, while the window does.
  resized() {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !height || (this.width === width && this.height === height)) return;
    const isWindow = this.window !== `${innerWidth} ${innerHeight}`;
    Object.assign(this, { width, height, window: `${innerWidth} ${innerHeight}` });
    if (!this.rects.size) return;
    const near = this.selected?.box ?? this.active;
    if (!this.isByHand || isWindow || near === undefined) this.show();
    else this.reveal(near);
  }

  // All of it, at once.
  show() { this.fit(undefined, false); }

  // Opens and draws what fits the pane so that names can be read, the largest groups first.
  async drawFirst() {
    const { tree, view } = this;
    const opened = view.openFirst();
    await this.draw();
    while (tree === this.tree && opened.length && this.#scaleOfAll() < kNamed) {
      view.collapse(opened.pop());
      await this.draw();
    }
    if (tree === this.tree) this.show();
  }

  // How large it is if all of it is in the pane; undefined: there is no pane.
  #scaleOfAll() {
    const bounds = this.#bounds(), { clientWidth: width, clientHeight: height } = this.element;
    return width && height && Number.isFinite(bounds.x)
      ? Math.min(1, (width - 2 * kAround) / bounds.width,
        (height - kAround - kBelow) / bounds.height) : undefined;
  }

  // A box in the middle, readable.
  centre(v) {
    const r = this.rects.get(v);
    if (!r) return;
    const width = this.element.clientWidth,
      height = this.element.clientHeight - (this.callbacks.covered?.() ?? 0);
    if (!width || height <= 0) return;
    this.isByHand = true;
    const k = Math.min(1, Math.max(kDetail, d3.zoomTransform(this.element).k));
    this.#moveTo(d3.zoomIdentity.translate(width / 2 - k * (r.x + r.width / 2),
      height / 2 - k * (r.y + r.height / 2)).scale(k), true);
  }

  fit(v, isSlow = true) {
    const bounds = this.#bounds(v);
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!bounds || !Number.isFinite(bounds.x) || !width) return;
    this.isByHand = v !== undefined && v !== 0;
    const below = v === undefined || v === 0 ? kBelow : kAround;
    const k = Math.min(1, (width - 2 * kAround) / bounds.width,
      (height - kAround - below) / bounds.height);
    const x = (width - k * bounds.width) / 2 - k * bounds.x,
      y = kAround + (height - kAround - below - k * bounds.height) / 2 - k * bounds.y;
    this.#moveTo(d3.zoomIdentity.translate(x, y).scale(Math.max(k, 0.04)), isSlow);
  }

  scale(by) {
    this.isByHand = true;
    this.zoom.scaleBy(d3.select(this.element), by);
  }

  // Moves as little as needed for a box to be in the window.
  reveal(v) {
    const r = this.rects.get(v);
    if (!r) return;
    const t = d3.zoomTransform(this.element), margin = 30;
    const { clientWidth: width, clientHeight: height } = this.element;
    if (t.k * r.width > width - 2 * margin || t.k * r.height > height - 2 * margin) {
        if (r.isOpen) this.fit(v); return; }
    const left = t.applyX(r.x), top = t.applyY(r.y), right = t.applyX(r.x + r.width),
      bottom = t.applyY(r.y + r.height);
    const dx = left < margin ? margin - left : Math.min(0, width - margin - right);
    const dy = top < margin ? margin - top : Math.min(0, height - margin - bottom);
    if (dx || dy) this.#moveTo(t.translate(dx / t.k, dy / t.k), true);
  }
}

// The words of a link, for the panel beside the graph.
export function describeFlow(flow) {
  const rows = [['Rate', rate(flow.rate)]];
  if (flow.bytes > 0) rows.push(['Payload', `${bytes(flow.bytes)}/s`]);
  if (flow.cut) rows.push(['Tokens so far', short(flow.tokens)]);
  if (flow.cut)
    rows.push(['In flight', flow.window > 0
      ? `${short(flow.queue)} of ${short(flow.window)}` : short(flow.queue)]);
  if (flow.window > 0)
    rows.push(['Credit left',
      `${short(Math.max(0, flow.window - flow.queue))} (${
        percent(Math.max(0, 1 - flow.queue / flow.window))})`]);
  return rows;
}

// Rows of two columns: a name, and text or an element.
export const facts = (rows) => el('dl', { class: 'facts' },
  rows.filter((r) => r && r[1] !== undefined && r[1] !== null && r[1] !== '')
  .flatMap(([name, value]) => [el('dt', { text: name }), el('dd', {}, [value])]));
