// One large curve: the loss of a training with its mean and its validation; where none is recorded,
// what the page has seen of firings.
import {el, setAttribute, setText, svg} from './dom.js';

import {clean, short} from './format.js';
import {smoothed} from './curves.js';

const kEdge = {
  left: 52,
  right: 18,
  top: 12,
  bottom: 24
};

// The lowest and highest value to draw: what the first steps shoot over would flatten all the rest.
export function rangeOf(values, more = []) {
  const sorted = [...values].filter(Number.isFinite).sort((a, b) => a - b);
  if (!sorted.length) return null;
  const at = (fraction) =>
      sorted[Math.min(sorted.length - 1, Math.floor(fraction * sorted.length))];
  let low = sorted[0],
      high = sorted.length > 40 ? Math.max(at(0.985), values.at(-1)) : sorted.at(-1);
  for (const value of more)
    if (Number.isFinite(value) && value <= high + 3 * (high - low)) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  if (low === high) {
    low -= Math.abs(low) / 10 || 1;
    high += Math.abs(high) / 10 || 1;
  }
  return [low, high];
}

// A mean that does not lag: what one way delays, the other advances.
export function smoothedBothWays(points) {
  const weight = points.length < 30 ? 0 : 1 - 1 / Math.max(2, points.length / 60);
  return smoothed(smoothed(points, weight).reverse(), weight).reverse();
}

export class LossCurve {
  constructor(root) {
    this.title = el('h2');
    this.read = el('span', {class: 'read'});
    this.keys =
        el('span', {class: 'keys'},
           ['raw', 'mean', 'check'].map((kind) => el('span', {class: `key ${kind}`})));
    this.drawing = svg('svg', {role: 'img', tabindex: 0});
    this.empty = el('p', {class: 'quiet none'});
    root.append(
        el('div', {class: 'title'}, [this.title, this.keys, this.read]),
        el('div', {class: 'plot'}, [this.drawing, this.empty]));
    this.at = null;
    this.drawing.addEventListener(
        'mousemove',
        (event) => this.point?.(event.clientX - this.drawing.getBoundingClientRect().left));
    for (const end of ['mouseleave', 'blur'])
      this.drawing.addEventListener(end, () => this.show?.(null));
    this.drawing.addEventListener('keydown', (event) => {
      const step = {ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity}[event.key];
      if ((!step && event.key !== 'Escape') || !this.walk || event.ctrlKey || event.metaKey ||
          event.altKey)
        return;
      event.preventDefault();
      event.stopPropagation();
      if (step) this.walk(step);
      else this.drawing.blur();
    });
  }

  // {name, points: [[x, time, y]], check: {name, points} or nothing, format of x}; `empty`: what is
  // said where there are no points.
  set(curve, empty = '') {
    this.curve = curve;
    setText(this.empty, empty);
    this.draw();
  }

  draw() {
    const {curve, drawing} = this,
                  {clientWidth: width, clientHeight: height} = drawing.parentElement;
    if (!width || !height) return;
    setAttribute(drawing, 'width', width);
    setAttribute(drawing, 'height', height);
    const points = (curve?.points ?? []).filter((p) => Number.isFinite(p[2])),
          checks = (curve?.check?.points ?? []).filter((p) => Number.isFinite(p[2]));
    const [rawKey, meanKey, checkKey] = this.keys.children, format = curve?.format ?? short;
    const range = rangeOf(points.map((p) => p[2]), checks.map((p) => p[2]));
    this.empty.hidden = points.length > 1;
    Object.assign(this, {point: undefined, show: undefined, walk: undefined});
    setText(this.title, curve ? clean(curve.title) : 'Loss');
    for (const key of this.keys.children) key.hidden = true;
    if (points.length < 2) {
      drawing.replaceChildren();
      setText(this.read, '');
      return;
    }
    const x = d3.scaleLinear().domain(d3.extent(points, (p) => p[0])).range([
      kEdge.left, width - kEdge.right
    ]);
    const y = d3.scaleLinear().domain(range).range([height - kEdge.bottom, kEdge.top]).clamp(true);
    const mean = smoothedBothWays(points),
          line = d3.line().x((p) => x(p[0])).y((p) => y(p[2]));
    const parts = [];
    for (const tick of y.ticks(Math.max(2, Math.floor(height / 60)))) {
      parts.push(svg('line', {
        class: 'grid',
        x1: kEdge.left,
        x2: width - kEdge.right,
        y1: Math.round(y(tick)) + 0.5,
        y2: Math.round(y(tick)) + 0.5
      }));
      parts.push(svg('text', {
        class: 'tick',
        x: kEdge.left - 8,
        y: y(tick) + 4,
        'text-anchor': 'end',
        text: short(tick)
      }));
    }
    parts.push(svg('line', {
      class: 'axis',
      x1: kEdge.left,
      x2: width - kEdge.right,
      y1: height - kEdge.bottom + 0.5,
      y2: height - kEdge.bottom + 0.5
    }));
    for (const tick of x.ticks(Math.max(2, Math.floor(width / 110))))
      parts.push(svg('text', {
        class: 'tick',
        x: Math.max(kEdge.left, Math.min(width - kEdge.right - 8, x(tick))),
        y: height - 7,
        'text-anchor': 'middle',
        text: format(tick)
      }));
    if (points.length >= 30) parts.push(svg('path', {class: 'raw', d: line(points)}));
    parts.push(svg('path', {class: 'mean', d: line(mean)}));
    const seen = checks.filter((p) => p[2] >= range[0] && p[2] <= range[1] && p[0] >= points[0][0]);
    if (seen.length)
      parts.push(
          svg('path', {class: 'check', d: line(seen)}),
          ...seen.slice(-60).map(
              (p) => svg('circle', {class: 'check', cx: x(p[0]), cy: y(p[2]), r: 2.6})));
    const cross = svg(
        'line', {class: 'cross', y1: kEdge.top, y2: height - kEdge.bottom, visibility: 'hidden'});
    drawing.replaceChildren(...parts, cross);
    rawKey.hidden = points.length < 30;
    meanKey.hidden = false;
    checkKey.hidden = !seen.length;
    setText(rawKey, 'each');
    setText(meanKey, points.length < 30 ? clean(curve.name) : 'mean');
    setText(checkKey, clean(curve.check?.name ?? ''));
    setAttribute(
        drawing, 'aria-label',
        `${clean(curve.title)}: ${points.length} points, the last ${short(points.at(-1)[2])}`);

    const within = (i) => Math.max(0, Math.min(points.length - 1, i));
    this.show = (i) => {
      this.at = i;
      const place = x(points[i ?? points.length - 1][0]);
      for (const end of ['x1', 'x2']) cross.setAttribute(end, place);
      cross.setAttribute('visibility', i === null ? 'hidden' : 'visible');
      setText(
          this.read,
          i === null ?
              '' :
              `${short(mean[i][2])}${points.length < 30 ? '' : ` (${short(points[i][2])})`} at ${
                  format(points[i][0])}`);
    };
    this.point = (where) =>
        this.show(within(d3.bisector((p) => p[0]).left(points, x.invert(where))));
    this.walk = (by) => this.show(within((this.at ?? points.length) + by));
    this.show(this.at === null ? null : within(this.at));
  }
}
