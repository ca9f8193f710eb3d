// Training records: a small chart for each scalar, in groups by what stands before the '/'; texts
// and histograms below.
import { el, keyed, setAttribute, setText, svg } from './dom.js';
import { clean, short, shorten } from './format.js';

const kLeast = 270, kHeight = 150, kMargin = { left: 46, right: 14, top: 10, bottom: 22 };

// An exponential mean, as it forgets: what a noisy loss tends to.
export function smoothed(points, weight) {
  let mean = 0, norm = 0;
  return points.filter((p) => Number.isFinite(p[2])).map(([step, time, value]) => {
    mean = weight * mean + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    return [step, time, mean / norm];
  });
}

const keyOf = (s) => `${s.node ?? ''}\n${s.name}\n${s.kind === 'progress'}`;

// Points that are new go behind those that are there.
export function mergeSeries(known, fresh) {
  const byName = new Map(known.map((s) => [keyOf(s), s]));
  for (const s of fresh) {
    const old = byName.get(keyOf(s));
    if (!old || old.kind !== s.kind) { byName.set(keyOf(s), s); continue; }
    const last = old.points.length ? old.points.at(-1)[0] : -Infinity;
    const points = s.points.filter((p) => p[0] > last);
    if (points.length) byName.set(keyOf(s), { ...old, points: [...old.points, ...points] });
  }
  return [...byName.values()];
}

// If several nodes record, each name is prefixed by its node.
export function namedByNode(series) {
  if (new Set(series.map((s) => s.node)).size < 2) return series;
  return series.map((s) => ({ ...s, name: `${s.node}: ${s.name}` }));
}

export class Curves {
  constructor(root) {
    this.series = [];
    this.weight = 0.8;
    this.isLog = false;
    this.charts = el('div', { class: 'charts' });
    this.texts = el('div', { class: 'texts' });
    this.empty = el('p', { class: 'quiet',
      text: 'Nothing is recorded on any node. A program records with troupe::Records: ' +
        'records.scalar("loss", step, loss).' });
    const smooth = el('input', { type: 'range', min: 0, max: 0.98, step: 0.02, value: this.weight,
      'aria-label': 'Smoothing' });
    smooth.oninput = () => { this.weight = Number(smooth.value); this.draw(); };
    const log = el('input', { type: 'checkbox' });
    log.onchange = () => { this.isLog = log.checked; this.draw(); };
    this.controls = el('div', { class: 'controls' },
      [el('label', {}, ['Smoothing', smooth]), el('label', {}, [log, 'Logarithmic'])]);
    root.append(this.empty, this.controls, this.charts, this.texts);
  }

  set(series) {
    this.series = namedByNode(series);
    this.draw();
  }

  draw() {
    const scalars = this.series.filter((s) => s.kind === 'scalar' && s.points.length)
      .sort((a, b) => (a.name < b.name ? -1 : 1));
    const spreads = this.series.filter((s) => s.kind === 'histogram' && s.points.length);
    const texts = this.series.filter((s) => s.kind === 'text' && s.points.length);
    this.empty.hidden = this.series.some((s) => s.kind !== 'progress');
    this.controls.hidden = scalars.length === 0;
    keyed(this.charts, [...scalars, ...spreads].slice(0, 60), (s) => s.name,
      () => this.#makeChart(), (chart, s) =>
      (s.kind === 'scalar' ? this.#drawScalar(chart, s) : this.#drawSpread(chart, s)));
    keyed(this.texts, texts.slice(0, 8), (s) => s.name,
      () => el('figure', {}, [el('figcaption'), el('pre')]), (figure, s) => {
      const [step, , text] = s.points.at(-1);
      setText(figure.children[0], `${clean(s.name)} at step ${short(step)}`);
      setText(figure.children[1], String(text).slice(0, 2000));
    });
  }

  #makeChart() {
    const drawing = svg('svg', { height: kHeight, role: 'img' });
    const chart = el('figure', { class: 'chart' },
      [el('figcaption', {}, [el('span', { class: 'tag' }), el('b')]), drawing]);
    chart.drawing = drawing;
    drawing.addEventListener('mousemove',
      (event) => chart.point?.(event.clientX - drawing.getBoundingClientRect().left));
    for (const end of ['mouseleave', 'blur'])
      drawing.addEventListener(end, () => chart.read?.(null));
    drawing.addEventListener('keydown', (event) => this.#key(chart, event));
    return chart;
  }

  // Handles the chart's keys; the page's handler does not get these.
  #key(chart, event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if ((!step && event.key !== 'Escape') || !chart.walk || event.ctrlKey || event.metaKey ||
        event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    if (step) chart.walk(step);
    else chart.drawing.blur();
  }

  // In pixels of the screen, so that words keep their size.
  #widthOf(chart) { return Math.max(kLeast, chart.drawing.clientWidth); }

  #axes(x, y, format, width) {
    const parts = [];
    for (const tick of y.ticks(3).slice(0, 6))
      parts.push(svg('line', { class: 'grid', x1: kMargin.left, x2: width - kMargin.right,
        y1: y(tick), y2: y(tick) }),
        svg('text', { class: 'tick', x: kMargin.left - 6, y: y(tick) + 4, 'text-anchor': 'end',
          text: format(tick) }));
    for (const tick of x.ticks(3))
      parts.push(svg('text', { class: 'tick', x: x(tick), y: kHeight - 5, 'text-anchor': 'middle',
        text: short(tick) }));
    return parts;
  }

  #drawScalar(chart, series) {
    const width = this.#widthOf(chart);
    const points = series.points.filter((p) => Number.isFinite(p[2]) && (!this.isLog || p[2] > 0));
    const [tag, last] = chart.querySelector('figcaption').children;
    setText(tag, shorten(clean(series.name), 34));
    tag.title = clean(series.name);
    const weight = points.length < 30 ? 0 : this.weight;  // a mean of few points only lags
    const mean = smoothed(points, weight);
    setAttribute(chart.drawing, 'aria-label',
      `${clean(series.name)}: ${points.length} points, the last ${short(points.at(-1)?.[2])}`);
    setAttribute(chart.drawing, 'tabindex', 0);
    Object.assign(chart, { point: undefined, read: undefined, walk: undefined });
    if (!points.length) { setText(last, '–'); chart.drawing.replaceChildren(); return; }
    const x = d3.scaleLinear().domain(d3.extent(points, (p) => p[0]))
      .range([kMargin.left, width - kMargin.right]);
    // The overshoot of the first steps would flatten all the rest.
    const values = points.map((p) => p[2]).sort(d3.ascending);
    let low = values[0], high = values.length > 20
      ? Math.max(d3.quantile(values, 0.98), mean.at(-1)[2]) : values.at(-1);
    if (low === high) { low -= Math.abs(low) / 10 || 1; high += Math.abs(high) / 10 || 1; }
    const y = (this.isLog ? d3.scaleLog() : d3.scaleLinear()).domain([low, high])
      .range([kHeight - kMargin.bottom, kMargin.top]).clamp(true);
    const line = d3.line().x((p) => x(p[0])).y((p) => y(p[2]));
    const cross = svg('line',
      { class: 'cross', y1: kMargin.top, y2: kHeight - kMargin.bottom, visibility: 'hidden' });
    chart.drawing.replaceChildren(...this.#axes(x, y, short, width),
      svg('path', { class: 'raw', d: line(points) }),
      svg('path', { class: 'mean', d: line(mean) }), cross);
    // The point that is read, by its index in the row, stays while others come; null: none is, and
    // the last is said.
    chart.read = (i) => {
      chart.at = i;
      const [step, , value] = points[i ?? points.length - 1], place = x(step);
      cross.setAttribute('x1', place);
      cross.setAttribute('x2', place);
      cross.setAttribute('visibility', i === null ? 'hidden' : 'visible');
      setAttribute(last, 'aria-live', i !== null && document.activeElement === chart.drawing
        ? 'polite' : 'off');
      setText(last,
        `${short(mean[i ?? points.length - 1][2])}${weight > 0
          ? ` (${short(value)})` : ''} at ${short(step)}`);
    };
    const within = (i) => Math.max(0, Math.min(points.length - 1, i));
    chart.point = (at) => chart.read(within(d3.bisector((p) => p[0]).left(points, x.invert(at))));
    chart.walk = (by) => chart.read(within((chart.at ?? points.length) + by));
    chart.read(typeof chart.at === 'number' ? within(chart.at) : null);
  }

  // The last histogram, with those before it behind as outlines.
  #drawSpread(chart, series) {
    const width = this.#widthOf(chart);
    const shown = series.points.slice(-6).filter((p) => p[2] && p[2].counts.length);
    const [tag, last] = chart.querySelector('figcaption').children;
    setText(tag, shorten(clean(series.name), 34));
    if (!shown.length) return;
    setText(last,
      `${short(shown.at(-1)[2].min)} to ${short(shown.at(-1)[2].max)} at ${
        short(shown.at(-1)[0])}`);
    const x = d3.scaleLinear().domain([d3.min(shown, (p) => p[2].min),
      d3.max(shown, (p) => p[2].max)]).range([kMargin.left, width - kMargin.right]);
    const y = d3.scaleLinear().domain([0, d3.max(shown, (p) => d3.max(p[2].counts)) || 1])
      .range([kHeight - kMargin.bottom, kMargin.top]);
    const paths = shown.map(([, , h], i) => {
      const corners = h.counts.map((c, b) =>
        [(x(b ? h.limits[b - 1] : h.min) + x(h.limits[b])) / 2, y(c)]);
      return svg('path', { class: i + 1 === shown.length ? 'mean' : 'raw',
        d: d3.line().curve(d3.curveMonotoneX)(corners) });
    });
    chart.drawing.replaceChildren(...this.#axes(x, y, short, width), ...paths);
    Object.assign(chart, { point: undefined, read: undefined, walk: undefined, at: null });
  }
}
