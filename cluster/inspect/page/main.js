// The page: asks the node, keeps what it said, and tells the parts.
import { Client, restAfter } from './client.js';
import { Curves, mergeSeries } from './curves.js';
import { el, keyed, setText } from './dom.js';
import { clean, duration, shorten } from './format.js';
import { Graph, kStateWords } from './graph.js';
import { inWorker, Layouts } from './layouts.js';
import { Counters, kGroupings, kStates, nextLink, Plan, search, Totals, Tree, View } from './model.js';
import { Panel } from './panel.js';
import { Side } from './side.js';
import { Timeline } from './timeline.js';
import { listen } from './keys.js';

const at = (id) => document.getElementById(id);
const client = new Client();
const layouts = new Layouts(inWorker(new URL('./layout_worker.js', import.meta.url)));

const page = {
  state: null, plan: null, counters: null, tree: null, view: null, totals: null,
  grouping: 'scope', wanted: null, selected: null, details: null, failure: null, series: [], heard: 0, verdicts: [],
};

const graph = new Graph(at('graph'), layouts, { select, toggle, covered: () => (innerWidth <= 820 && !at('panel').hidden ? at('panel').offsetHeight : 0) });
const panel = new Panel(at('panel'), { goTo, close: () => select(null) });
const side = new Side(at('side'), { plan: (id) => choosePlan(id), actor: goTo });
const timeline = new Timeline(at('timeline').querySelector('canvas'), at('tip'));
const curves = new Curves(at('curves'));

// ---- the plan

async function choosePlan(id) {
  if (page.plan?.id === String(id)) return;
  page.wanted = String(id);
  await loadPlan(page.wanted);
}

// What is shown stays until all of the next plan is there; of several that are asked for, the last one counts.
async function loadPlan(id) {
  const load = (loadPlan.last = (loadPlan.last ?? 0) + 1);
  const life = lifeOf(id);
  const plan = new Plan(await client.get('plan', { id }, 30000));
  const counters = new Counters(plan);
  counters.apply(await client.get('counters', { plan: id, since: 0 }, 30000));
  if (load !== loadPlan.last) return;
  Object.assign(page, { plan, counters, life: null });
  layouts.forget();
  select(null);
  at('plan').value = id;
  await regroup();
  if (load === loadPlan.last) page.life = life;  // last: what failed on the way is tried again
}

// An owner that starts again counts its plans from 1.
function lifeOf(id) {
  return (page.state?.plans ?? []).find((p) => String(p.id) === id)?.incarnation;
}

// Groups anew. What was open under the same names stays open.
async function regroup(grouping = page.grouping) {
  if (!page.plan) return;
  page.grouping = grouping;
  page.tree = new Tree(page.plan, grouping);
  page.view = new View(page.tree);
  page.view.openFirst();
  page.totals = new Totals(page.tree, page.counters);
  for (const button of at('grouping').children) button.setAttribute('aria-checked', button.dataset.grouping === grouping);
  select(null);
  graph.setModel(page.tree, page.view, page.totals, page.counters);
  graph.setLoops(loopsOf(page.state));
  await graph.draw();
  graph.show();
  if (!document.documentElement.dataset.interactive) document.documentElement.dataset.interactive = Math.round(performance.now());
}

// By frame: the iterations that are open on any node.
function loopsOf(state) {
  const loops = new Map();
  for (const run of state?.runs ?? []) {
    if (String(run.plan) !== page.plan?.id) continue;
    for (const l of run.loops ?? []) {
      const known = loops.get(l.loop);
      loops.set(l.loop, known ? { first: Math.min(known.first, l.first), last: Math.max(known.last, l.last), window: known.window + l.window } : { first: l.first, last: l.last, window: l.window });
    }
  }
  return loops;
}

// ---- selecting and opening

function select(target) {
  page.selected = target;
  page.details = null;
  page.failure = null;
  graph.select(target);
  showSelected();
  if (target?.box !== undefined && page.tree.actors[target.box] >= 0) askActor(target);
}

async function askActor(target) {
  try {
    const details = await client.get('actor', { id: page.plan.actors.get(page.tree.actors[target.box], 'id') });
    if (page.selected === target) Object.assign(page, { details, failure: null });
  } catch (error) {
    if (page.selected === target) page.failure = error.message;
  }
  if (page.selected === target) showSelected();
}

function showSelected() {
  const target = page.selected;
  if (!target) { panel.hide(); return; }
  if (target.link) {
    const link = graph.linkOf(target.link);
    if (link) panel.showLink(graph, link);
    else select(null);
  } else if (page.tree.isGroup(target.box)) {
    panel.showGroup(graph, target.box);
  } else {
    panel.showActor(graph, target.box, page.details, page.failure);
  }
}

function say(text) {
  setText(at('note'), text);
  clearTimeout(say.timer);
  if (text) say.timer = setTimeout(() => say(''), 5000);
}

async function toggle(box) {
  if (!page.tree.isGroup(box)) { select({ box }); return; }
  const isOpen = page.view.open.has(box);
  const closed = isOpen ? (page.view.collapse(box), []) : page.view.expand(box);
  if (closed.length) say(`Closed ${closed.map((v) => shorten(clean(page.tree.labels[v]), 30)).join(', ')} to keep the page readable.`);
  await graph.draw(box);
  if (page.selected?.box !== undefined && !graph.boxes.has(page.selected.box)) select({ box });
  graph.focus(box);
  showSelected();
}

async function goTo(id) {
  const actor = page.plan?.actorAt.get(String(id));
  if (actor !== undefined) await goToBox(page.tree.leafOf[actor]);
}

async function goToBox(box) {
  page.view.reveal(box);
  await graph.draw(graph.rects.has(box) ? box : undefined);
  select({ box });
  graph.focus(box);
  graph.centre(box);
}

// The next actor, in the plan's order, that failed; if none did, that waits.
function nextAmiss() {
  const { counters, tree } = page;
  if (!counters) return;
  for (const state of ['failed', 'waiting']) {
    const wanted = kStates.indexOf(state);
    const found = Array.from(counters.state.keys()).filter((a) => counters.state[a] === wanted);
    if (!found.length) continue;
    const current = page.selected?.box === undefined ? -1 : tree.actors[page.selected.box];
    goToBox(tree.leafOf[found.find((a) => a > current) ?? found[0]]);
    return;
  }
  say('Nothing failed, and nothing waits.');
}

// The next edge of the box that the arrow keys have led to.
function walkLinks(step) {
  const key = nextLink(graph.links, graph.active, page.selected?.link, step);
  if (key !== undefined && graph.linkOf(key)) select({ link: key });
  else say('This box has no edges.');
}

// ---- hearing from the node

function alarm(text) {
  at('alarm').hidden = !text;
  setText(at('alarm'), text);
  document.body.classList.toggle('stale', Boolean(text));
}

function showLive() {
  const runs = page.state?.runs?.length ?? 0;
  setText(at('live'), runs ? `${runs} ${runs === 1 ? 'run' : 'runs'}` : 'idle');
  at('live').className = runs ? 'busy' : '';
}

function updatePlans(plans) {
  const select = at('plan');
  const wanted = plans.map((p) => String(p.id));
  if (Array.from(select.options, (o) => o.value).join('\n') === wanted.join('\n')) return;
  select.replaceChildren(...plans.map((p) => el('option', { value: p.id, text: `${shorten(clean(p.id), 24)} · ${p.actors} actors` })));
  select.value = page.plan?.id ?? wanted[0] ?? '';
}

// The plan that is asked for, or the one that runs, or the newest.
function planToShow(state) {
  const plans = state.plans ?? [];
  if (page.wanted && plans.some((p) => String(p.id) === page.wanted)) return page.wanted;
  if (page.plan && plans.some((p) => String(p.id) === page.plan.id)) return page.plan.id;
  const size = new Map(plans.map((p) => [String(p.id), p.actors]));
  const running = (state.runs ?? []).map((r) => String(r.plan)).filter((id) => size.has(id)).sort((a, b) => size.get(b) - size.get(a));
  const newest = plans.reduce((a, b) => (a && a.made_ns > b.made_ns ? a : b), null);
  return running[0] ?? (newest ? String(newest.id) : null);
}

// All that a tick asks is asked at once, so that who is silent is waited for once.
async function tick() {
  const target = page.selected, shown = showState(client.get('state'), askCounters());
  const isActor = target?.box !== undefined && page.tree.actors[target.box] >= 0;
  const ends = await Promise.allSettled([
    shown, isActor && askActor(target), !at('timeline').hidden && !timeline.isPaused && askEvents(shown), !at('curves').hidden && askScalars(),
  ]);
  const failed = ends.find((end) => end.status === 'rejected');
  if (failed) throw failed.reason;
}

// `counted`: what the counters said of the plan that was shown, which counts if it still is.
async function showState(heard, counted) {
  const state = page.state = await heard;
  setText(at('node-name'), shorten(clean(state.node), 40));
  document.title = `${shorten(clean(state.node), 40)} · Troupe`;
  side.update(state, page.verdicts);
  showLive();
  updatePlans(state.plans ?? []);
  const id = planToShow(state);
  at('nothing').hidden = id !== null;
  setText(at('nothing'), id === null ? 'No plan is on this node yet. One appears when a program runs here.' : '');
  if (id !== null && (page.plan?.id !== id || page.life !== lifeOf(id))) await loadPlan(id);
  else if (page.plan && id !== null) (await counted)();
  graph.setLoops(loopsOf(state));
  graph.update();
  showSelected();
}

// The first time, the plan goes first.
async function askEvents(shown) {
  if (!timeline.since) await shown;
  const json = await client.find('events', { since: Math.round(timeline.since || page.state.time_ns - 10e9), limit: 20000 });
  if (json) timeline.add(json);
}

// Promises what to do with the answer, also where there is none: of a plan that has gone, nothing.
async function askCounters() {
  const { plan, counters } = page;
  if (!plan) return () => {};
  try {
    const json = await client.get('counters', { plan: plan.id, since: counters.seq });
    return () => { if (counters === page.counters) page.totals.apply(counters.apply(json)); };
  } catch (error) {
    return () => { if (counters === page.counters) throw error; };
  }
}

// Records of steps that are there are not sent again; a text or a new series begins at any step, so all is asked for now and then.
async function askScalars() {
  const steps = page.series.filter((s) => s.kind === 'scalar' && s.points.length).map((s) => s.points.at(-1)[0]);
  const isAll = !steps.length || (page.asked = (page.asked ?? 0) + 1) % 10 === 0;
  const { series } = await client.find('scalars', isAll ? {} : { since: Math.min(...steps) }) ?? { series: [] };
  page.series = isAll ? series : mergeSeries(page.series, series);
  curves.set(page.series);
}

// Beside the ticks, since a diagnosis takes a second, and up to 3.5 s where a worker is waited for: it looks twice, and then again.
async function diagnose() {
  for (;;) {
    try {
      if (page.state?.runs?.length) page.verdicts = (await client.find('diagnose')).verdicts ?? [];
      else page.verdicts = [];
    } catch {
      // The ticks say that the node is silent.
    }
    await new Promise((done) => { setTimeout(done, 2000); });
  }
}

async function live() {
  for (;;) {
    const begin = performance.now();
    try {
      await tick();
      page.heard = performance.now();
      alarm('');
    } catch (error) {
      if (error.status === 401) await askToken();
      else if (error.status === undefined) { console.error(error); alarm(`This page failed: ${error.message}`); }
      else alarm(`${page.state ? shorten(clean(page.state.node), 40) : 'This node'}: ${clean(error.message)}${page.heard ? `, for ${duration((performance.now() - page.heard) * 1e6)}. What is shown is what was heard last.` : ''}`);
    }
    await new Promise((done) => { setTimeout(done, restAfter(performance.now() - begin, document.hidden)); });
  }
}

function askToken() {
  return new Promise((done) => {
    at('ask-form').onsubmit = (event) => {
      event.preventDefault();
      client.setToken(at('token').value);
      at('ask').close();
      done();
    };
    if (!at('ask').open) at('ask').showModal();
  });
}

// ---- the rest of the page

function showTab(name) {
  for (const tab of ['timeline', 'curves']) {
    const isShown = tab === name && at(tab).hidden;
    at(tab).hidden = !isShown;
    at(`tab-${tab}`).setAttribute('aria-selected', isShown);
  }
  const isOpen = !at('timeline').hidden || !at('curves').hidden;
  at('dock').classList.toggle('open', isOpen);
  at('pause').hidden = at('timeline').hidden;
  at('event-legend').hidden = at('timeline').hidden;
  localStorage.setItem('troupe-tab', isOpen ? name : '');
  timeline.draw();
  if (page.series.length && !at('curves').hidden) curves.draw();
}

function pause() {
  timeline.isPaused = !timeline.isPaused;
  at('pause').setAttribute('aria-pressed', timeline.isPaused);
  setText(at('pause'), timeline.isPaused ? 'Go on' : 'Pause');
}

function turnTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = isDark ? 'light' : 'dark';
  localStorage.setItem('troupe-theme', root.dataset.theme);
  timeline.draw();
}

function showSide(isShown) {
  document.body.classList.toggle('side-open', isShown);
  at('side-button').setAttribute('aria-expanded', isShown);
}

function find() {
  const list = at('found'), words = at('search').value;
  const hits = page.tree && words ? search(page.tree, words, 12) : [];
  list.hidden = !words;
  at('search').setAttribute('aria-expanded', !list.hidden);
  keyed(list, hits.length ? hits : words ? ['none'] : [], (v) => v, () => el('li', { role: 'option' }, [el('b'), el('span')]), (row, v) => {
    setText(row.children[0], v === 'none' ? 'Nothing has that name.' : shorten(clean(page.tree.labels[v]), 44));
    setText(row.children[1], v === 'none' ? '' : page.tree.isGroup(v) ? `${page.tree.sizes[v]} actors` : shorten(clean(page.tree.plan.actors.get(page.tree.actors[v], 'op')), 20));
    row.onmousedown = (event) => {
      event.preventDefault();
      if (v !== 'none') choose(v);
    };
  });
  find.hits = hits;
  mark(0);
}
function mark(i) {
  find.at = Math.max(0, Math.min(i, find.hits.length - 1));
  Array.from(at('found').children).forEach((row, r) => row.setAttribute('aria-selected', r === find.at));
}
function choose(v) {
  at('search').value = '';
  find();
  at('search').blur();
  goToBox(v);
}

at('search').addEventListener('input', find);
at('search').addEventListener('blur', () => { at('found').hidden = true; });
at('search').addEventListener('keydown', (event) => {
  if (event.key === 'ArrowDown') mark(find.at + 1);
  else if (event.key === 'ArrowUp') mark(find.at - 1);
  else if (event.key === 'Enter' && find.hits?.length) choose(find.hits[find.at]);
  else if (event.key === 'Escape') { at('search').value = ''; find(); at('search').blur(); graph.focus(graph.active); }
  else return;
  event.preventDefault();
  event.stopPropagation();
});

at('plan').addEventListener('change', () => choosePlan(at('plan').value).catch((error) => alarm(error.message)));
at('grouping').append(...kGroupings.map((g) => el('button', { role: 'radio', 'data-grouping': g, 'aria-checked': g === page.grouping, text: g[0].toUpperCase() + g.slice(1), onclick: () => regroup(g) })));
at('legend').append(...['running', 'ready', 'waiting', 'dead', 'failed', 'idle'].map((s) => el('li', { class: s, text: kStateWords[s] })));
at('event-legend').append(...['kernel', 'turn', 'copy', 'send', 'receive', 'wait', 'failure'].map((k) => el('span', { class: k, text: k })), el('span', { class: 'lost', text: 'not recorded' }));
const [closer, farther, fit] = at('zoom').children;
closer.onclick = () => graph.scale(1.35);
farther.onclick = () => graph.scale(1 / 1.35);
fit.onclick = () => graph.fit();
at('theme').onclick = turnTheme;
at('pause').onclick = pause;
at('help-button').onclick = () => at('help').showModal();
at('side-button').onclick = () => showSide(!document.body.classList.contains('side-open'));
at('tab-timeline').onclick = () => showTab('timeline');
at('tab-curves').onclick = () => showTab('curves');
new ResizeObserver(() => timeline.draw()).observe(at('timeline'));
new ResizeObserver(() => graph.resized()).observe(at('graph'));
showTab(localStorage.getItem('troupe-tab') ?? 'timeline');

listen({
  '/': () => at('search').focus(),
  ArrowLeft: () => graph.move(-1, 0),
  ArrowRight: () => graph.move(1, 0),
  ArrowUp: () => graph.move(0, -1),
  ArrowDown: () => graph.move(0, 1),
  Enter: () => graph.active !== undefined && toggle(graph.active),
  ' ': () => graph.active !== undefined && select({ box: graph.active }),
  Escape: () => {
    if (page.selected) { select(null); return; }
    const around = page.tree?.parents[graph.active];
    if (around > 0) toggle(around);
    else showSide(false);
  },
  n: () => walkLinks(1),
  N: () => walkLinks(-1),
  e: nextAmiss,
  g: () => regroup(kGroupings[(kGroupings.indexOf(page.grouping) + 1) % kGroupings.length]),
  f: () => graph.fit(),
  '+': () => graph.scale(1.35),
  '=': () => graph.scale(1.35),
  '-': () => graph.scale(1 / 1.35),
  t: () => showTab('timeline'),
  l: () => showTab('curves'),
  p: pause,
  d: turnTheme,
  '?': () => at('help').showModal(),
});

live();
diagnose();
