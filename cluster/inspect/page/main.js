// The page: requests data from the node, keeps the answers, and updates its parts.
import {Causes} from './causes.js';
import {Client, restAfter} from './client.js';
import {Curves, mergeSeries} from './curves.js';
import {el, keyed, setText} from './dom.js';
import {clean, duration, shorten, timeless} from './format.js';
import {Graph, kStateWords} from './graph.js';
import {
  amissOf,
  Busiest,
  Failures,
  hasOwner,
  nodeRow,
  QueueShares,
  RunTimes,
  trainingOf
} from './history.js';
import {listen} from './keys.js';
import {inWorker, Layouts} from './layout_cache.js';
import {Counters, kGroupings, kStates, nextLink, Plan, search, Totals, Tree,
  View} from './model.js';
import {Overview} from './overview.js';
import {Panel} from './panel.js';
import {Side} from './sidebar.js';
import {Timeline} from './timeline.js';

const at = (id) => document.getElementById(id);
const client = new Client();
const layouts = new Layouts(inWorker(new URL('./layout_worker.js', import.meta.url)));

const page = {
  state: null,
  plan: null,
  counters: null,
  tree: null,
  view: null,
  totals: null,
  grouping: null,
  wanted: null,
  selected: null,
  details: null,
  failure: null,
  series: [],
  heard: 0,
  verdicts: [],
  tab: '',
  busiest: null,
  gone: null,
};
const runTimes = new RunTimes(), failures = new Failures(), queueShares = new QueueShares();
const kTabs = ['overview', 'graph', 'timeline', 'curves', 'causes'];

const graph = new Graph(at('graph'), layouts, {
  select,
  toggle,
  covered: () => (innerWidth <= 820 && !at('panel').hidden ? at('panel').offsetHeight : 0)
});
const panel = new Panel(at('panel'), {goTo, close: () => select(null)});
const choose = {
  plan: (id) => {
    showTab('graph');
    choosePlan(id).catch((error) => alarm(error.message));
  },
  actor: goTo,
  overview: () => showTab('overview')
};
const side = new Side(at('side'), choose), overview = new Overview(at('overview'), choose);
const timeline = new Timeline(at('timeline').querySelector('canvas'), at('tip'));
const curves = new Curves(at('curves')), causes = new Causes(at('causes'));

// ---- the plan

async function choosePlan(id) {
  if (page.plan?.id === String(id)) return;
  page.wanted = String(id);
  await loadPlan(page.wanted);
}

// The shown plan stays until all of the next plan is there. The last of several requested plans
// counts.
async function loadPlan(id) {
  const load = (loadPlan.last = (loadPlan.last ?? 0) + 1);
  const life = lifeOf(id);
  const plan = new Plan(await client.get('plan', {id}, 30000));
  const counters = new Counters(plan), busiest = new Busiest(plan);
  counters.apply(await client.get('counters', {plan: id, since: 0}, 30000));
  if (load !== loadPlan.last) return;
  Object.assign(page, {plan, counters, busiest, life: null, gone: null});
  layouts.forget();
  select(null);
  at('plan').value = id;
  await regroup();
  if (load === loadPlan.last) page.life = life;  // last: what failed on the way is tried again
}

// A plan that has gone, with its owner or before it, leaves nothing but its last failure.
function forgetPlan() {
  if (!page.plan) return;
  loadPlan.last = (loadPlan.last ?? 0) + 1;
  page.gone = page.plan.id;
  select(null);
  Object.assign(page, {
    plan: null,
    counters: null,
    tree: null,
    view: null,
    totals: null,
    busiest: null,
    life: null
  });
  layouts.forget();
  graph.clear();
}

// Words in the place of the graph.
function wordsOfNothing() {
  if (!page.gone) return 'No plan is on this node yet. One appears when a program runs here.';
  const last = failures.rows.find((f) => f.plan === page.gone) ?? failures.rows[0];
  return `Plan ${shorten(clean(page.gone), 40)} has ended with its owner.${
      last ? ` The last failure, of run ${shorten(clean(last.run), 40)}: ${
                 shorten(clean(last.text), 600)}${
                 last.how ? `. To go on: ${shorten(clean(last.how), 600)}` : ''}` :
             ''}`;
}

// An owner that starts again counts its plans from 1.
function lifeOf(id) {
  return (page.state?.plans ?? []).find((p) => String(p.id) === id)?.incarnation;
}

// Groups anew. Groups that were open under equal names stay open.
async function regroup(chosen = page.grouping) {
  if (!page.plan) return;
  page.grouping = chosen;
  const grouping = chosen ?? page.plan.firstGrouping;
  page.tree = new Tree(page.plan, grouping);
  page.view = new View(page.tree);
  page.totals = new Totals(page.tree, page.counters);
  for (const button of at('grouping').children)
    button.setAttribute('aria-checked', button.dataset.grouping === grouping);
  select(null);
  graph.setModel(page.tree, page.view, page.totals, page.counters);
  graph.setLoops(loopsOf(page.state));
  await graph.drawFirst();
  if (!document.documentElement.dataset.interactive)
    document.documentElement.dataset.interactive = Math.round(performance.now());
}

// By frame: the iterations that are open on any node.
function loopsOf(state) {
  const loops = new Map();
  for (const run of state?.runs ?? []) {
    if (String(run.plan) !== page.plan?.id) continue;
    for (const l of run.loops ?? []) {
      const known = loops.get(l.loop);
      loops.set(
          l.loop,
          known ? {
            first: Math.min(known.first, l.first),
            last: Math.max(known.last, l.last),
            window: known.window + l.window
          } :
                  {first: l.first, last: l.last, window: l.window});
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
    const details =
        await client.get('actor', {id: page.plan.actors.get(page.tree.actors[target.box], 'id')});
    if (page.selected === target) Object.assign(page, {details, failure: null});
  } catch (error) {
    if (page.selected === target) page.failure = error.message;
  }
  if (page.selected === target) showSelected();
}

function showSelected() {
  const target = page.selected;
  if (!target) {
    panel.hide();
    return;
  }
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
  if (!page.tree.isGroup(box)) {
    select({box});
    return;
  }
  const isOpen = page.view.open.has(box);
  const closed = isOpen ? (page.view.collapse(box), []) : page.view.expand(box);
  if (closed.length)
    say(`Closed ${
        closed.map((v) => shorten(clean(page.tree.labels[v]), 30))
            .join(', ')} to keep the page readable.`);
  await graph.draw(box);
  if (page.selected?.box !== undefined && !graph.boxes.has(page.selected.box)) select({box});
  graph.focus(box);
  showSelected();
}

async function goTo(id) {
  const actor = page.plan?.actorAt.get(String(id));
  if (actor !== undefined) await goToBox(page.tree.leafOf[actor]);
}

async function goToBox(box) {
  showTab('graph');
  page.view.reveal(box);
  await graph.draw(graph.rects.has(box) ? box : undefined);
  select({box});
  graph.focus(box);
  graph.centre(box);
}

// The next actor, in the plan's order, that failed; if none did, that waits.
function nextAmiss() {
  const {counters, tree} = page;
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
  showTab('graph');
  const key = nextLink(graph.links, graph.active, page.selected?.link, step);
  if (key !== undefined && graph.linkOf(key)) select({link: key});
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
  select.replaceChildren(...plans.map(
      (p) =>
          el('option', {value: p.id, text: `${shorten(clean(p.id), 24)} · ${p.actors} actors`})));
  select.value = page.plan?.id ?? wanted[0] ?? '';
}

// The plan that is asked for, or the one that runs, or the newest; none of an owner that has left.
function planToShow(state) {
  const plans = (state.plans ?? []).filter((plan) => hasOwner(plan, state));
  if (page.wanted && plans.some((p) => String(p.id) === page.wanted)) return page.wanted;
  if (page.plan && plans.some((p) => String(p.id) === page.plan.id)) return page.plan.id;
  const size = new Map(plans.map((p) => [String(p.id), p.actors]));
  const running = (state.runs ?? [])
                      .map((r) => String(r.plan))
                      .filter((id) => size.has(id))
                      .sort((a, b) => size.get(b) - size.get(a));
  const newest = plans.reduce((a, b) => (a && a.made_ns > b.made_ns ? a : b), null);
  return running[0] ?? (newest ? String(newest.id) : null);
}

// Sends all requests of a tick at once, so that a silent node delays it once.
async function tick() {
  const target = page.selected, shown = showState(client.get('state'), askCounters());
  const isActor = target?.box !== undefined && page.tree.actors[target.box] >= 0;
  const ends = await Promise.allSettled([
    shown,
    isActor && askActor(target),
    page.tab === 'timeline' && !timeline.isPaused && askEvents(shown),
    ['curves', 'overview', 'causes'].includes(page.tab) && askScalars(),
    page.tab === 'causes' && askCauses(),
  ]);
  const failed = ends.find((end) => end.status === 'rejected');
  if (failed) throw failed.reason;
  showNumbers();
}

// Updates the side panel and the overview.
function showNumbers() {
  const {state, plan, counters, busiest, verdicts} = page;
  if (!state) return;
  const order = {silent: 0, dead: 1, suspect: 2};
  queueShares.add(state);
  const nodes = (state.nodes ?? [])
                    .map((n) => nodeRow(n, state.time_ns, queueShares))
                    .sort(
                        (a, b) => (order[a.state] ?? (a.state === 'left' ? 9 : 5)) -
                                (order[b.state] ?? (b.state === 'left' ? 9 : 5)) ||
                            (a.name < b.name ? -1 : 1));
  const told = {
    state,
    rows: runTimes.rows(state),
    failures: failures.add(state),
    amiss: amissOf(state, verdicts, timeless),
    nodes,
    training: trainingOf(page.series),
    accused: new Set((state.runs ?? [])
                         .filter((r) => verdicts.some((v) => String(v.run) === String(r.id)))
                         .map((r) => String(r.plan))),
    firings: page.totals && counters.time > 0 ? page.totals.rates[0][0] : NaN,
    busiest: plan ? {plan, counters, top: busiest.top(counters)} : undefined,
  };
  side.update(told);
  if (page.tab === 'overview') overview.update(told);
  if (!plan) setText(at('nothing'), wordsOfNothing());
}

// `counted`: what the counters said of the plan that was shown, which counts if it still is.
async function showState(heard, counted) {
  const state = page.state = await heard;
  setText(at('node-name'), shorten(clean(state.node), 40));
  document.title = `${shorten(clean(state.node), 40)} · Troupe`;
  failures.add(state);
  timeline.setOpen(state);
  showLive();
  const id = planToShow(state);
  updatePlans((state.plans ?? []).filter((plan) => hasOwner(plan, state)));
  at('nothing').hidden = id !== null;
  for (const part of [at('grouping'), at('legend'), at('plan').parentElement])
    part.hidden = id === null;
  if (id === null) forgetPlan();
  if (id !== null && (page.plan?.id !== id || page.life !== lifeOf(id))) await loadPlan(id);
  else if (page.plan && id !== null) (await counted)();
  graph.setLoops(loopsOf(state));
  graph.update();
  showSelected();
}

// The first time, the plan goes first.
async function askEvents(shown) {
  if (!timeline.since) await shown;
  const json = await client.find(
      'events', {since: Math.round(timeline.since || page.state.time_ns - 10e9), limit: 20000});
  if (json) timeline.add(json);
}

// Promises what to do with the answer, also where there is none: of a plan that has gone, nothing.
async function askCounters() {
  const {plan, counters} = page;
  if (!plan) return () => {};
  try {
    const json = await client.get('counters', {plan: plan.id, since: counters.seq});
    return () => {
      if (counters !== page.counters) return;
      const changes = counters.apply(json);
      page.totals.apply(changes);
      page.busiest.apply(changes);
    };
  } catch (error) {
    return () => {
      if (counters === page.counters) throw error;
    };
  }
}

// Records of steps that are there are not sent again; a text or a new series begins at any step, so
// all is asked for now and then.
async function askScalars() {
  const steps = page.series.filter((s) => s.kind === 'scalar' && s.points.length)
                    .map((s) => s.points.at(-1)[0]);
  const isAll = !steps.length || (page.asked = (page.asked ?? 0) + 1) % 10 === 0;
  const {series} =
      await client.find('scalars', isAll ? {} : {since: Math.min(...steps)}) ?? {series: []};
  page.series = isAll ? series : mergeSeries(page.series, series);
  if (page.tab === 'curves') curves.set(page.series);
}

// A node tests every few seconds; answers are as good as the last test.
async function askCauses() {
  const answer = await client.find('dependence');
  const trainings = page.series.filter((s) => ['progress', 'scalar'].includes(s.kind))
                        .map((s) => [s.node ?? page.state?.node, s]);
  causes.set(answer, new Map(trainings));
}

// Beside the ticks, since a diagnosis takes a second, and up to 3.5 s where a worker is waited for:
// it looks twice, and then again.
async function diagnose() {
  for (;;) {
    try {
      if (page.state?.runs?.length) page.verdicts = (await client.find('diagnose')).verdicts ?? [];
      else page.verdicts = [];
    } catch {
      // The ticks say that the node is silent.
    }
    await new Promise((done) => {
      setTimeout(done, 2000);
    });
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
      else if (error.status === undefined) {
        console.error(error);
        alarm(`This page failed: ${error.message}`);
      } else
        alarm(`${page.state ? shorten(clean(page.state.node), 40) : 'This node'}: ${
            clean(error.message)}${
            page.heard ? `, for ${
                             duration(
                                 (performance.now() - page.heard) *
                                 1e6)}. What is shown is what was heard last.` :
                         ''}`);
    }
    await new Promise((done) => {
      setTimeout(done, restAfter(performance.now() - begin, document.hidden));
    });
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
  if (page.tab === name) return;
  page.tab = name;
  document.body.dataset.tab = name;
  for (const tab of kTabs) at(`tab-${tab}`).setAttribute('aria-selected', tab === name);
  for (const tab of ['timeline', 'curves', 'causes']) at(tab).hidden = tab !== name;
  if (name === 'timeline') timeline.draw();
  if (name === 'curves') curves.set(page.series);
  showNumbers();
}

function pause() {
  timeline.isPaused = !timeline.isPaused;
  at('pause').setAttribute('aria-pressed', timeline.isPaused);
  setText(at('pause'), timeline.isPaused ? 'Go on' : 'Pause');
}

function turnTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === 'dark' :
                                      matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = isDark ? 'light' : 'dark';
  localStorage.setItem('troupe-theme', root.dataset.theme);
  timeline.draw();
}

function showSide(isShown) {
  document.body.classList.toggle('side-open', isShown);
  at('side-button').setAttribute('aria-expanded', isShown);
}

// A row: name, scope, node and state. The busiest are first.
function find() {
  const list = at('found'), words = at('search').value;
  const {tree, totals} = page;
  const hits = tree && words ? search(tree, words, 12, totals.sums[2]) : [];
  list.hidden = !words;
  at('search').setAttribute('aria-expanded', !list.hidden);
  keyed(
      list,
      hits.length ? hits :
          words   ? ['none'] :
                    [],
      (v) => v,
      () =>
          el('li', {role: 'option'},
             [
               el('span', {class: 'dot'}), el('b'), el('span', {class: 'where'}),
               el('span', {class: 'node'}), el('span', {class: 'word'})
             ]),
      (row, v) => {
        const [, name, where, node, word] = row.children;
        if (v === 'none') {
          setText(name, 'Nothing has that name.');
          return;
        }
        const actor = tree.actors[v], state = totals.state(v), isGroup = tree.isGroup(v);
        row.className = state;
        setText(name, shorten(clean(tree.labels[v]), 34));
        setText(
            where,
            shorten(
                isGroup ?
                    `${tree.sizes[v]} actors${
                        tree.parents[v] > 0 ? ` in ${clean(tree.labels[tree.parents[v]])}` : ''}` :
                                              [
                      clean(tree.plan.actors.get(actor, 'scope') ?? ''),
                      clean(tree.plan.actors.get(actor, 'op'))
                    ].filter(Boolean)
                        .join(' · '),
                40));
        const nodes = isGroup ? new Set(tree.leaves(v, 2000).map(
                                    (leaf) => tree.plan.actors.get(tree.actors[leaf], 'node'))) :
                                new Set([tree.plan.actors.get(actor, 'node')]);
        setText(
            node, nodes.size > 1 ? `${nodes.size} nodes` : shorten(clean([...nodes][0] ?? ''), 16));
        setText(word, kStateWords[state]);
        row.onmousedown = (event) => {
          event.preventDefault();
          take(v);
        };
      });
  find.hits = hits;
  mark(0);
}
function mark(i) {
  find.at = Math.max(0, Math.min(i, find.hits.length - 1));
  Array.from(at('found').children)
      .forEach((row, r) => row.setAttribute('aria-selected', r === find.at));
}
function take(v) {
  at('search').value = '';
  find();
  at('search').blur();
  goToBox(v);
}

at('search').addEventListener('input', find);
at('search').addEventListener('blur', () => {
  at('found').hidden = true;
});
at('search').addEventListener('keydown', (event) => {
  if (event.key === 'ArrowDown') mark(find.at + 1);
  else if (event.key === 'ArrowUp') mark(find.at - 1);
  else if (event.key === 'Enter' && find.hits?.length) take(find.hits[find.at]);
  else if (event.key === 'Escape') {
    at('search').value = '';
    find();
    at('search').blur();
    graph.focus(graph.active);
  } else return;
  event.preventDefault();
  event.stopPropagation();
});

at('plan').addEventListener(
    'change', () => choosePlan(at('plan').value).catch((error) => alarm(error.message)));
at('grouping').append(...kGroupings.map((g) => el('button', {
                                          role: 'radio',
                                          'data-grouping': g,
                                          'aria-checked': false,
                                          text: g[0].toUpperCase() + g.slice(1),
                                          onclick: () => regroup(g)
                                        })));
at('legend').append(...['running', 'ready', 'waiting', 'dead', 'failed', 'idle'].map(
    (s) => el('li', {class: s, text: kStateWords[s]})));
at('event-legend')
    .append(
        ...['kernel', 'turn', 'copy', 'send', 'receive', 'wait', 'failure'].map(
            (k) => el('span', {class: k, text: k})),
        el('span', {class: 'silent', text: 'does not answer'}),
        el('span', {class: 'lost', text: 'not recorded'}));
const [closer, farther, fit] = at('zoom').children;
closer.onclick = () => graph.scale(1.35);
farther.onclick = () => graph.scale(1 / 1.35);
fit.onclick = () => graph.fit();
at('theme').onclick = turnTheme;
at('pause').onclick = pause;
at('help-button').onclick = () => at('help').showModal();
at('side-button').onclick = () => showSide(!document.body.classList.contains('side-open'));
for (const tab of kTabs) at(`tab-${tab}`).onclick = () => showTab(tab);
new ResizeObserver(() => timeline.draw()).observe(at('timeline'));
new ResizeObserver(() => graph.resized()).observe(at('graph'));
new ResizeObserver(() => page.tab === 'curves' && curves.draw()).observe(at('curves'));
new ResizeObserver(() => page.tab === 'overview' && overview.loss.draw()).observe(at('overview'));
showTab('overview');

const isGraph = () => page.tab === 'graph';
listen({
  '/': () => at('search').focus(),
  ArrowLeft: () => isGraph() && graph.move(-1, 0),
  ArrowRight: () => isGraph() && graph.move(1, 0),
  ArrowUp: () => isGraph() && graph.move(0, -1),
  ArrowDown: () => isGraph() && graph.move(0, 1),
  Enter: () => isGraph() && graph.active !== undefined && toggle(graph.active),
  ' ': () => isGraph() && graph.active !== undefined && select({box: graph.active}),
  Escape: () => {
    if (page.selected) {
      select(null);
      return;
    }
    if (!isGraph()) {
      showSide(false);
      return;
    }
    const around = page.tree?.parents[graph.active];
    if (around > 0) toggle(around);
    else showSide(false);
  },
  n: () => walkLinks(1),
  N: () => walkLinks(-1),
  e: nextAmiss,
  g: () =>
      (isGraph() ?
           page.tree &&
               regroup(
                   kGroupings[(kGroupings.indexOf(page.tree.grouping) + 1) % kGroupings.length]) :
           showTab('graph')),
  f: () => graph.fit(),
  '+': () => graph.scale(1.35),
  '=': () => graph.scale(1.35),
  '-': () => graph.scale(1 / 1.35),
  o: () => showTab('overview'),
  t: () => showTab('timeline'),
  l: () => showTab('curves'),
  c: () => showTab('causes'),
  p: pause,
  d: turnTheme,
  '?': () => at('help').showModal(),
});

live();
diagnose();
