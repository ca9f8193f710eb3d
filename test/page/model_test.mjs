// The page's model without a browser: grouping, deltas, what is laid out, layouts. Run by
// test/page/page_test.sh with node.
import assert from 'node:assert/strict';
import {createRequire} from 'node:module';
import {test} from 'node:test';

import {restAfter} from '../../cluster/inspect/page/client.js';
import {drawEdge} from '../../cluster/inspect/page/edges.js';
import {
  alike, busyText, bytes, clean, duration, queueLines, range, short, shorten, timeless
} from '../../cluster/inspect/page/format.js';
import {compose, layout, Stretch} from '../../cluster/inspect/page/layout.js';
import {
  amissOf, Busiest, Failures, hasOwner, lossOf, median, nodeRow, QueueShares, RunTimes,
  trainingOf, worst
} from '../../cluster/inspect/page/history.js';
import {
  Counters, kGroupings, kMostBoxes, kMostChildren, layoutInput, linesOf, nextLink, Plan, Recorded,
  search, Totals, Tree, View
} from '../../cluster/inspect/page/model.js';
import {Layouts} from '../../cluster/inspect/page/layout_cache.js';
import {mergeSeries, namedByNode, smoothed} from '../../cluster/inspect/page/curves.js';
import {rangeOf, smoothedBothWays} from '../../cluster/inspect/page/loss.js';
import {planLabel, sparkBars} from '../../cluster/inspect/page/runs.js';
import {describeWait} from '../../cluster/inspect/page/panel.js';
import {besideEvent, stacked, Timeline} from '../../cluster/inspect/page/timeline.js';

const dagre = createRequire(import.meta.url)('/usr/share/nodejs/dagre/dist/dagre.min.js');

// A random source that is the same in every run.
function draws(seed) {
  let s = seed;
  return (n) => {
    s = (s * 1103515245 + 12345) % 2147483648;
    return Math.floor((s / 2147483648) * n);
  };
}

function planOf(scopes, edges = [], frames = [], lines = [], nodes = []) {
  return new Plan({
    id: 'a/1',
    actors: {
      columns: ['name', 'id', 'op', 'scope', 'node', 'device', 'partition', 'frame', 'line'],
      rows: scopes.map(
          (s, i) =>
              [`n${i}`, `a/1:${i}`, 'Add', s, nodes[i] ?? (i % 2 ? 'a' : 'b'),
               `/node:${i % 2 ? 'a' : 'b'}/cpu:0`, i % 3, frames[i] ?? '', lines[i] ?? ''])
    },
    edges: {
      columns: ['id', 'from', 'to', 'kind', 'cut'],
      rows: edges.map(
          ([a, b, kind, cut], i) => [i, `a/1:${a}`, `a/1:${b}`, kind ?? 'data', Boolean(cut)])
    },
  });
}
function randomPlan(n, seed) {
  const draw = draws(seed);
  const scopes =
      Array.from({length: n}, () => Array.from({length: draw(5)}, () => `s${draw(6)}`).join('/'));
  const edges = Array.from({length: 2 * n}, () => {
    const b = 1 + draw(n - 1);
    return [draw(b), b, draw(20) ? 'data' : 'back', draw(4) === 0];
  });
  return planOf(scopes, edges);
}

test('every actor is a leaf of every grouping, and no group is wide', () => {
  for (const n of [1, 7, 300, 9000]) {
    const plan = n === 9000 ? planOf(Array(n).fill('')) : randomPlan(n, n);
    for (const grouping of kGroupings) {
      const tree = new Tree(plan, grouping);
      const seen = new Set();
      for (let v = 0; v < tree.size; v += 1) {
        assert.ok(tree.children[v].length <= kMostChildren);
        assert.ok(tree.parents[v] < v);
        if (tree.actors[v] >= 0) seen.add(tree.actors[v]);
      }
      assert.equal(seen.size, n);
      assert.equal(tree.sizes[0], n);
    }
  }
});

test('a group of one group is that group', () => {
  const tree = new Tree(planOf(['a/b/c', 'a/b/c', 'd']), 'scope');
  assert.deepEqual(tree.children[0].map((v) => tree.labels[v]), ['a/b/c', 'd']);
});

test('scopes stay what they are beside many loose ops', () => {
  const scopes = Array.from(
      {length: 356},
      (_, i) =>
          (i % 50 === 7     ? 'lstm1' :
               i % 70 === 9 ? 'gradients/lstm1' :
                              ''));
  const tree = new Tree(planOf(scopes), 'scope');
  const top = tree.children[0], labels = top.map((v) => tree.labels[v]);
  assert.ok(top.length <= kMostChildren);
  for (const scope of ['lstm1', 'gradients/lstm1'])
    assert.ok(labels.includes(scope), labels.join());
  for (const v of top) assert.equal(tree.isRange[v], tree.labels[v].startsWith('no source line'));
  const view = new View(tree);
  view.openFirst();
  assert.ok(view.open.has(top[labels.indexOf('lstm1')]));  // before any range
  const many =
      new Tree(planOf(Array.from({length: 300}, (_, i) => (i % 3 ? `s${i}/x` : ''))), 'scope');
  assert.ok(many.children[0].length <= kMostChildren);
  assert.ok(many.children[0].some((v) => many.isRange[v]));
});

test('groups of loose actors bear the lines that made them, and no names of operations', () => {
  const labelsOf = (lines, nodes) => {
    const tree = new Tree(planOf(lines.map(() => ''), [], [], lines, nodes), 'scope');
    for (let v = 0; v < tree.size; v += 1) assert.ok(tree.children[v].length <= kMostChildren);
    assert.ok(tree.children[0].filter((v) => tree.isGroup(v)).every((v) => tree.isRange[v]));
    return tree.children[0].map(
        (v) => `${tree.labels[v]}${tree.isGroup(v) ? ` of ${tree.sizes[v]}` : ''}`);
  };
  const times = (n, line) => Array(n).fill(line);
  assert.deepEqual(
      labelsOf([
        ...times(50, 'lstm.hpp:43'), ...times(40, 'main.cpp:7'), 'main.cpp:9',
        ...times(30, 'lstm.hpp:43')
      ]),
      ['lstm.hpp:43 of 80', 'main.cpp:7 of 40', 'n90']);
  const many = labelsOf(
      Array.from({length: 900}, (_, i) => (i < 600 ? `a.cpp:${1 + (i % 300)}` : `b.cpp:${i}`)));
  assert.ok(many.length <= kMostChildren);
  assert.equal(many[0], 'a.cpp:1–60 of 120');
  assert.ok(
      many.every((label) => /^[ab]\.cpp:\d+(–\d+| … b\.cpp:\d+) of \d+$/.test(label)),
      many.join());
  const parts = new Tree(planOf(times(150, ''), [], [], times(150, 'x.cpp:5')), 'scope'),
        [only] = parts.children[0];
  assert.deepEqual(
      [
        parts.children[0].length, parts.labels[only],
        ...parts.children[only].map((v) => `${parts.labels[v]} (${parts.sizes[v]})`)
      ],
      [1, 'x.cpp:5', 'x.cpp:5, 1 of 3 (50)', 'x.cpp:5, 2 of 3 (50)', 'x.cpp:5, 3 of 3 (50)']);
  assert.deepEqual(
      linesOf(
          planOf(times(5, ''), [], [], ['a.cpp:9', 'a.cpp:3', '', 'b.hpp:7', 'a.cpp:5']),
          [0, 1, 2, 3, 4]),
      ['a.cpp:3–9', 'b.hpp:7']);
});

test('a plan over several nodes is grouped by node first', () => {
  assert.equal(planOf(['x', 'y']).firstGrouping, 'node');
  assert.equal(planOf(['x', 'y'], [], [], [], ['a', 'a']).firstGrouping, 'scope');
});

test('scopes of any depth', () => {
  const tree =
      new Tree(planOf([Array(3000).fill('x').map((x, i) => x + i).join('/'), 'y']), 'scope');
  assert.equal(tree.sizes[0], 2);
});

test('deltas add up to what the actors counted', () => {
  const plan = randomPlan(400, 5), counters = new Counters(plan), tree = new Tree(plan, 'scope');
  const totals = new Totals(tree, counters);
  const draw = draws(9), truth = Array.from({length: 400}, () => [0, 'idle']);
  for (let tick = 1; tick <= 20; tick += 1) {
    const rows = [];
    for (let i = 0; i < 50; i += 1) {
      const a = draw(400);
      truth[a] = [truth[a][0] + draw(100), ['idle', 'waiting', 'running', 'failed'][draw(4)]];
      rows.push([truth[a][1], `a/1:${a}`, truth[a][0]]);
    }
    totals.apply(counters.apply({
      time_ns: tick * 1e9,
      seq: tick,
      actors: {columns: ['state', 'id', 'fires'], rows: [...rows, ['idle', 'a/1:nobody', 3]]},
      edges: {columns: [], rows: []}
    }));
    const fresh = new Totals(tree, counters);
    assert.deepEqual(totals.sums, fresh.sums);
    assert.deepEqual(totals.states, fresh.states);
    assert.equal(totals.sums[0][0], truth.reduce((s, [n]) => s + n, 0));
    for (let v = 0; v < tree.size; v += 1)
      assert.equal(totals.states.slice(v * 6, v * 6 + 6).reduce((a, b) => a + b, 0), tree.sizes[v]);
  }
});

test('a rate is what changed in the time between two answers', () => {
  const plan = planOf(['', '']), counters = new Counters(plan), tree = new Tree(plan, 'scope'),
        totals = new Totals(tree, counters);
  const tell = (time_ns, fires) => totals.apply(counters.apply(
      {time_ns, seq: 1, actors: {columns: ['id', 'fires'], rows: [['a/1:0', fires]]}}));
  tell(1e9, 100);
  assert.equal(totals.rates[0][0], 0);
  tell(3e9, 500);
  assert.equal(totals.rates[0][0], 200);
});

test('the worst state colours a group', () => {
  const plan = planOf(['g', 'g', 'g']), counters = new Counters(plan),
        tree = new Tree(plan, 'scope'), totals = new Totals(tree, counters);
  const tell = (...states) => totals.apply(counters.apply({
    time_ns: 1,
    seq: 1,
    actors: {columns: ['id', 'state'], rows: states.map((s, i) => [`a/1:${i}`, s])}
  }));
  tell('waiting', 'idle', 'idle');
  assert.equal(totals.state(0), 'waiting');
  tell('waiting', 'running', 'idle');
  assert.equal(totals.state(0), 'running');
  tell('waiting', 'running', 'failed');
  assert.equal(totals.state(0), 'failed');
  tell('dead', 'ready', 'idle');
  assert.equal(totals.state(0), 'ready');
  tell('dead', 'idle', 'idle');
  assert.equal(totals.state(0), 'dead');
  tell('idle', 'idle', 'idle');
  assert.equal(totals.state(0), 'idle');
});

test(
    'a page that is seen asks at least once a second, a hidden one every two, ' +
        'and none without a rest',
    () => {
      for (const took of [0, 20, 400, 700, 900])
        assert.ok(took + restAfter(took, false) <= 1000, `${took} ms`);
      for (const took of [0, 700, 5000]) {
        assert.ok(restAfter(took, false) >= 50);
        assert.equal(restAfter(took, true), 2000);
      }
    });

test('what is shown stays within the limit, and the limit binds', () => {
  const plan = randomPlan(3000, 3), tree = new Tree(plan, 'scope'), view = new View(tree);
  view.openFirst();
  assert.ok(view.boxes().length <= 45);
  let closed = 0;
  for (let v = 0; v < tree.size; v += 1) {
    if (!tree.isGroup(v)) continue;
    closed += view.expand(v).length;
    assert.ok(view.boxes().length <= kMostBoxes + kMostChildren);
    assert.ok(view.open.has(v));
  }
  assert.ok(closed > 0);
});

test('links join the boxes that are shown, and none is lost', () => {
  const plan = randomPlan(500, 4), tree = new Tree(plan, 'scope'), view = new View(tree);
  for (let round = 0; round < 6; round += 1) {
    const boxes = new Set(view.boxes()), shown = view.shown();
    let edges = 0;
    for (const link of view.links()) {
      assert.ok(boxes.has(link.from) && boxes.has(link.to) && !view.open.has(link.from));
      edges += link.edges.length;
    }
    const between = plan.from.reduce(
        (n, from, e) => n + (shown[tree.leafOf[from]] !== shown[tree.leafOf[plan.to[e]]] ? 1 : 0),
        0);
    assert.equal(edges, between);
    const next = [...boxes].find((v) => tree.isGroup(v) && !view.open.has(v));
    if (next !== undefined) view.expand(next);
  }
});

test('back edges are in no layout', () => {
  const tree = new Tree(planOf(['a', 'b'], [[0, 1], [1, 0, 'back']]), 'scope');
  assert.deepEqual(layoutInput(tree, 0).edges, [[0, 1, 1]]);
});

function overlap(a, b) {
  return a.x < b.x + b.width - 0.01 && b.x < a.x + a.width - 0.01 && a.y < b.y + b.height - 0.01 &&
      b.y < a.y + a.height - 0.01;
}

test('nothing overlaps, whatever is open; children lie inside their group', () => {
  const plan = randomPlan(600, 8), tree = new Tree(plan, 'scope'), view = new View(tree);
  const layouts = new Map();
  const layoutOf = (v) => {
    if (!layouts.has(v)) {
      const {children, edges} = layoutInput(tree, v);
      const boxes = children.map(() => [120, 46]);
      layouts.set(v, {boxes, ...layout(dagre, boxes, edges)});
    }
    return layouts.get(v);
  };
  for (let round = 0; round < 8; round += 1) {
    const {rects} = compose(tree, view.open, layoutOf);
    assert.equal(rects.size, view.boxes().length);
    for (const [v, r] of rects) {
      const parent = rects.get(tree.parents[v]);
      if (parent)
        assert.ok(
            r.x >= parent.x && r.y >= parent.y && r.x + r.width <= parent.x + parent.width + 0.01 &&
            r.y + r.height <= parent.y + parent.height + 0.01);
      for (const u of tree.children[tree.parents[v]])
        if (u !== v)
          assert.ok(!overlap(r, rects.get(u)), `${tree.labels[v]} and ${tree.labels[u]}`);
    }
    const next = view.boxes().find((v) => tree.isGroup(v) && !view.open.has(v));
    if (next === undefined) break;
    view.expand(next);
  }
});

test('what is closed again is where it was', () => {
  const plan = randomPlan(200, 2), tree = new Tree(plan, 'scope'), view = new View(tree),
        layouts = new Map();
  const layoutOf = (v) => {
    const {children, edges} = layoutInput(tree, v);
    const boxes = children.map(() => [120, 46]);
    if (!layouts.has(v)) layouts.set(v, {boxes, ...layout(dagre, boxes, edges)});
    return layouts.get(v);
  };
  const before = compose(tree, view.open, layoutOf).rects;
  const group = view.boxes().find((v) => tree.isGroup(v));
  view.expand(group);
  compose(tree, view.open, layoutOf);
  view.collapse(group);
  assert.deepEqual(compose(tree, view.open, layoutOf).rects, before);
});

test('a layout of many boxes without edges is a block, and a wide rank is wrapped', () => {
  const block = layout(dagre, Array(60).fill([120, 46]), []);
  assert.ok(block.width / block.height < 4 && block.height / block.width < 2);
  const star =
      layout(dagre, Array(60).fill([120, 46]), Array.from({length: 59}, (_, i) => [0, i + 1, 1]));
  assert.ok(star.width < 1700);
});

test('a stretch never shrinks and gives what is asked', () => {
  const draw = draws(11);
  for (let round = 0; round < 50; round += 1) {
    const intervals = Array.from({length: draw(6)}, () => {
      const a = draw(100), w = 1 + draw(40);
      return [a, a + w, w + draw(200)];
    });
    const s = new Stretch(intervals);
    for (const [a, b, wanted] of intervals) assert.ok(s.map(b) - s.map(a) >= wanted - 1e-9);
    for (let x = 0; x < 150; x += 1) assert.ok(s.map(x + 1) - s.map(x) >= 1 - 1e-9);
  }
});

test('edges have no gaps in their numbers', () => {
  const a = {x: 0, y: 0, width: 100, height: 46};
  for (const b
           of [{...a, y: 100}, {...a, y: -100}, {...a, x: 200}, {...a, x: -200},
               {x: -10, y: -10, width: 300, height: 300}])
    for (const route of [undefined, [[50, 46], [60, 70], [50, 100]]])
      assert.doesNotMatch(drawEdge(a, b, route).path, /NaN|undefined|Infinity/);
});

test('search shows the busiest first, but for one of just that name', () => {
  const tree = new Tree(planOf(['cell', 'cell', 'loss', 'loss'], [], [], ['m.cpp:4']), 'scope'),
        busy = new Float64Array(tree.size);
  for (const [label, of] of [['n0', 5], ['n2', 50], ['n3', 7], ['cell', 3]])
    busy[tree.labels.indexOf(label)] = of;
  const found = (words) => search(tree, words, 9, busy).map((v) => tree.labels[v]);
  assert.deepEqual(found('n'), ['n2', 'n3', 'n0', 'n1']);
  assert.deepEqual(found('cell'), ['cell', 'n0', 'n1']);
  assert.equal(found('n1')[0], 'n1');
  assert.deepEqual(found('m.cpp:4'), ['n0']);
});

test('search finds by name, op and id, the name first', () => {
  const tree = new Tree(planOf(['lstm/cell', 'lstm/cell', 'loss']), 'scope');
  assert.equal(tree.labels[search(tree, 'n1')[0]], 'n1');
  assert.equal(tree.labels[search(tree, 'cell')[0]], 'lstm/cell');
  assert.equal(search(tree, 'a/1:2').length, 1);
  assert.equal(search(tree, 'nothing like it').length, 0);
});

test('numbers as people read them', () => {
  assert.deepEqual(
      [0, 7, 999, 1000, 1234567, 0.5, 1e-5, -2500, NaN].map(short),
      ['0', '7', '999', '1k', '1.23M', '0.5', '0', '−2.5k', '–']);
  assert.deepEqual(
      [5, 5e3, 5e6, 5e9, 65e9, 3700e9].map(duration),
      ['5 ns', '5 µs', '5 ms', '5 s', '1 min 5 s', '1 h 1 min']);
  assert.deepEqual([0, 1023, 1536, 3 << 20].map(bytes), ['0 B', '1023 B', '1.50 KiB', '3.00 MiB']);
});

test('iterations that round to the same are told by how many there are', () => {
  assert.deepEqual(
      [[5, 5], [14, 25], [78391, 78422], [998, 1001]].map(([a, b]) => range(a, b)),
      ['5', '14–25', '32 at 78.4k', '998–1k']);
});

test('sentences that differ in the iteration are one', () => {
  const waits = (n) => `b waits for 'x' in iteration ${n} of loop 'w/1'`;
  assert.deepEqual(
      alike([waits(7), 'a waits', waits(8), waits(9)]),
      [`${waits(7)}, and 2 more iterations like it`, 'a waits']);
  const nested = (outer, inner, time) => `Dequeue 'q' in iteration ${
      outer} of loop 'w/1', iteration ${inner} of loop 'v/1' has waited for ${time} at queue 'q'`;
  assert.deepEqual(
      alike([nested(1, 2, '812 ms'), nested(1, 3, '1.2 s'), nested(2, 2, '3 min')]),
      [`${nested(1, 2, '812 ms')}, and 2 more iterations like it`]);
});

test('what is waited for is said by its kind', () => {
  const wait = {
    run: 'a/17',
    kind: 'kernel',
    state: '',
    tag: '',
    device: '/node:a/cpu:0',
    from: '',
    for_ns: 0
  };
  const tag = 'iteration 2 of loop \'w\'';
  assert.deepEqual(
      [
        {}, {state: 'queue \'q\'', for_ns: 3e9, tag}, {state: 'actor \'x\''}, {kind: 'device', tag},
        {kind: 'grant', from: '/node:b/cpu:0'},
        {kind: 'token', device: '/node:b/cpu:0', from: '/node:a/cpu:0', tag}
      ].map((w) => describeWait({...wait, ...w})),
      [
        'its kernel to end, in run a/17',
        'queue \'q\' for 3 s, in iteration 2 of loop \'w\', in run a/17',
        'an answer of actor \'x\', in run a/17',
        'its predicate, from the device, in iteration 2 of loop \'w\', in run a/17',
        'room at /node:b/cpu:0, which has not granted its token, in run a/17',
        '/node:b/cpu:0, in iteration 2 of loop \'w\', in run a/17'
      ]);
});

test('times are left out of a sentence wherever they stand', () => {
  assert.equal(
      timeless('b has waited for 812 ms at a; it has been suspected for 1.5 s'),
      'b has waited at a; it has been suspected');
  assert.equal(timeless('b waits for x'), 'b waits for x');
});

test('names that hide or reorder are seen for what they are', () => {
  assert.equal(clean('a\u202eb\u0000\u200b\n'), 'a\\u202eb\\u0000\\u200b\\u000a');
  assert.equal(clean('<b>мир 🌍'), '<b>мир 🌍');
  assert.equal(Array.from(shorten('🌍'.repeat(100), 11)).length, 11);
  assert.equal(shorten('UpdateVariable_284 … Group_513', 23), 'Updat…e_284 … Group_513');
  assert.equal(shorten('a … Constant_281', 23), 'a … Constant_281');
  assert.equal(shorten('Constant_1 … Constant_281', 23), 'Constant_1 … Const…_281');
});

test('series grow by what is new', () => {
  const a = [{name: 'x', kind: 'scalar', points: [[1, 0, 5], [2, 0, 4]]}];
  const merged = mergeSeries(a, [
    {name: 'x', kind: 'scalar', points: [[2, 0, 4], [3, 0, 3]]},
    {name: 'y', kind: 'text', points: [[1, 0, 'hi']]}
  ]);
  assert.deepEqual(merged.map((s) => s.points.length), [3, 1]);
  assert.equal(
      smoothed([[0, 0, 4], [1, 0, null], [2, 0, 4]], 0.9).at(-1)[2].toFixed(6), '4.000000');
});

test('series of several nodes are told apart, and those of one are called as they are', () => {
  const of = (node, points) => ({name: 'loss', node, kind: 'scalar', points});
  const merged = mergeSeries([of('a', [[1, 0, 5]]), of('b', [[1, 0, 7]])], [of('b', [[2, 0, 6]])]);
  assert.deepEqual(merged.map((s) => [s.node, s.points.length]), [['a', 1], ['b', 2]]);
  assert.deepEqual(namedByNode(merged).map((s) => s.name), ['a: loss', 'b: loss']);
  assert.deepEqual(namedByNode(merged.slice(1)).map((s) => s.name), ['loss']);
});

// A canvas that shows nothing.
const timelineOf = () => new Timeline({addEventListener() {}, clientWidth: 0}, {});
const kSecond = 1e9, kBegin = 1.7e18;
const kernel = (t_ns, dur_ns, more = {}) =>
    ({t_ns, dur_ns, node: 'a', track: 'cpu:0', kind: 'kernel', name: 'MatMul', ...more});

test(
    'of ten busy seconds a timeline leaves nothing out: the last are there one by one, ' +
        'the others by how much',
    () => {
      const timeline = timelineOf();
      let sum = 0, count = 0;
      for (let tick = 1; tick <= 14; tick += 1) {
        const from = kBegin + (tick - 1) * 0.7 * kSecond, events = [];
        for (let i = 0; i < 7000; i += 1)
          events.push(kernel(from + i * 100_000, 60_000 + (i % 7) * 5_000));
        for (const e of events) sum += e.dur_ns;
        count += events.length;
        timeline.add({time_ns: from + 0.7 * kSecond, asked_ns: from + 0.7 * kSecond, events});
      }
      timeline.add({
        time_ns: timeline.until,
        asked_ns: timeline.until,
        events: [kernel(kBegin + kSecond, 0, {kind: 'failure'})]
      });
      assert.ok(timeline.events.length <= 20_000);
      assert.ok(timeline.events.length >= 10_000);
      assert.ok(timeline.bins.size > 100);
      const bins = [...timeline.bins.values()];
      assert.equal(bins.reduce((n, b) => n + b.count, 0) + timeline.events.length, count + 1);
      const told =
          bins.reduce((n, b) => n + b.took, 0) + timeline.events.reduce((n, e) => n + e.dur_ns, 0);
      assert.ok(Math.abs(told / sum - 1) < 1e-3);  // numbers of this size are 256 ns apart
      for (const b of bins) assert.ok(b.took <= b.dur_ns && b.t_ns % b.dur_ns === 0);
      assert.ok(timeline.events.some((e) => e.kind === 'failure'));
      assert.equal(timeline.lost.length, 0);
    });

test(
    'nothing on a timeline hides what is shorter, nor tokens a kernel, in whatever order they came',
    () => {
      const at = (x, width, more) => [x, 0, width, kernel(kBegin, 0, {name: `${x}`, ...more})];
      const all = [
        at(0, 100, {kind: 'turn'}), at(10, 60), at(20, 5, {name: 'short'}),
        at(60, 30, {kind: 'firing'}), at(90, 3, {kind: 'failure'}),
        at(0, 100, {kind: 'wait', name: 'behind'}),
        ...Array.from({length: 90}, (_, x) => at(x, 1, {kind: 'send'})),
        at(0, 20, {share: 0.9, kind: 'kernel', name: 'bin'}),
        at(0, 20, {share: 0.5, kind: 'copy', name: 'lower bin'})
      ];
      for (const drawn of [all, [...all].reverse(), [...all.slice(5), ...all.slice(0, 5)]]) {
        const shown =
            new Map();  // columns and tenths of the row, from below: the event drawn there last
        for (const [x, , width, e, height] of stacked(drawn))
          for (let column = x; column < x + width; column += 1)
            for (let part = 0; part < Math.round(height * 10); part += 1)
              shown.set(`${column} ${part}`, e);
        const cells = (e) => [...shown.values()].filter((other) => other === e).length;
        for (const [, , width, e] of all.filter(
                 ([, , , {kind}]) => kind !== 'turn' && kind !== 'wait'))
          assert.ok(cells(e) >= width, `${e.kind} ${e.name} is hidden`);
        assert.equal(shown.get('30 9').kind, 'kernel');
        assert.equal(shown.get('22 9').name, 'short');
        assert.equal(shown.get('30 0').kind, 'send');
        assert.equal(shown.get('91 9').kind, 'failure');
      }
    });

test(
    'what comes again, by a clock that was read anew, is one event, and a turn that went on ' +
        'is as long as it was',
    () => {
      const timeline = timelineOf(),
            turn = (dur_ns, name) => kernel(kBegin + 5e6, dur_ns, {kind: 'turn', name});
      const tokens = (shift) => [0, 1, 2].map(
          (i) => kernel(kBegin + 9e6 + i * 1000 + shift, 0, {kind: 'send', flow: `${77 + i}`}));
      timeline.add({
        time_ns: kBegin + 1e7,
        asked_ns: kBegin + 1e7,
        events: [kernel(kBegin, 30_000), turn(1e6, '100 firings'), ...tokens(0)]
      });
      timeline.add({
        time_ns: kBegin + 2e7,
        asked_ns: kBegin + 2e7,
        events: [kernel(kBegin + 512, 30_000), turn(2e6, '200 firings'), ...tokens(-768)]
      });
      assert.equal(timeline.events.length, 5);
      assert.deepEqual(
          timeline.events.filter((e) => e.kind === 'turn').map((e) => [e.dur_ns, e.name]),
          [[2e6, '200 firings']]);
    });

test('a timeline asks from where all have told, and hatches what came too late', () => {
  const timeline = timelineOf(), silent = [{node: 'a', track: 'cpu:0'}];
  const at = (seconds) => kBegin + seconds * kSecond;
  timeline.add({time_ns: at(1), asked_ns: at(1), events: [kernel(at(0.5), 1000)], silent: []});
  assert.equal(timeline.since, at(0.9));
  timeline.add({time_ns: at(2), asked_ns: at(2), events: [], silent});
  assert.equal(timeline.since, at(0.9));  // it may answer the next time
  assert.equal(timeline.lost.length, 0);
  timeline.add({time_ns: at(5), asked_ns: at(5), events: [], silent});
  assert.equal(timeline.since, at(2.9));
  assert.deepEqual(timeline.lost, [{...silent[0], from: at(1), until: at(3)}]);
  timeline.add({time_ns: at(6), asked_ns: at(6), events: [kernel(at(3.1), 1000)], silent: []});
  assert.equal(timeline.since, at(5.9));
  assert.equal(timeline.lost.length, 1);
});

test('what loops achieved is kept until it is told anew', () => {
  const counters = new Counters(planOf(['']));
  counters.apply({
    time_ns: 1,
    seq: 1,
    actors: {columns: [], rows: []},
    loops: {columns: ['loop', 'achieved_parallelism'], rows: [['w', 2.5]]}
  });
  assert.deepEqual(counters.loops, [{loop: 'w', achieved_parallelism: 2.5}]);
});

test(
    'a layout that comes after its plan has gone is not taken, and one that failed ' +
        'is asked for again',
    async () => {
      const jobs = [];
      const layouts = new Layouts((job) => new Promise((resolve, reject) => {
                                    jobs.push({...job, resolve, reject});
                                  }));
      const before = new Tree(planOf(['a', 'a', 'b']), 'scope'),
            after = new Tree(planOf(['c']), 'scope');  // a/1 both
      const late = layouts.make(before, [0]);
      layouts.forget();
      const wanted = layouts.make(after, [0]);
      assert.equal(jobs.length, 2);
      jobs[0].resolve({of: 'before'});
      await late;
      assert.equal(layouts.of(after, 0), undefined);
      jobs[1].resolve({of: 'after'});
      await wanted;
      assert.deepEqual(layouts.of(after, 0), {of: 'after'});

      layouts.forget();
      const failed = layouts.make(after, [0]);
      jobs[2].reject(new Error('it failed'));
      await assert.rejects(failed);
      const again = layouts.make(after, [0]);
      assert.equal(jobs.length, 4);
      jobs[3].resolve({of: 'again'});
      await again;
      assert.deepEqual(layouts.of(after, 0), {of: 'again'});
    });

test('kernels of one op that begin together are as many events', () => {
  const timeline = timelineOf();
  const kernel = (tag, t) => ({
    t_ns: 1e9 + t,
    dur_ns: 25_000,
    node: 'a',
    track: 'cpu:0',
    kind: 'kernel',
    name: 'MatMul',
    run: 'a/1',
    tag
  });
  const json = {time_ns: 2e9, asked_ns: 2e9, events: [kernel(1, 0), kernel(2, 5000)]};
  timeline.add(json);
  timeline.add(json);  // a repeated question returns these events again
  assert.equal(timeline.events.length, 2);
});

test('the keyboard walks round the edges of a box, and from event to event', () => {
  const links = [{from: 1, to: 2}, {from: 2, to: 3}, {from: 4, to: 2}, {from: 3, to: 4}];
  const walked = [];
  for (let i = 0, key; i < 4; i += 1) walked.push(key = nextLink(links, 2, key, 1));
  assert.deepEqual(walked, ['1 2', '4 2', '2 3', '1 2']);
  assert.equal(nextLink(links, 2, '1 2', -1), '2 3');
  assert.equal(nextLink(links, 2, '3 4', -1), '2 3');  // another box's
  assert.equal(nextLink(links, 9, undefined, 1), undefined);
  assert.equal(nextLink(links, 9, undefined, -1), undefined);

  const drawn =
      [[10, 20, 5, 'a'], [30, 20, 5, 'b'], [50, 20, 5, 'c'], [28, 37, 5, 'd'], [60, 54, 5, 'e']];
  const [a, b, c, d, e] = drawn;
  assert.equal(besideEvent(drawn, undefined, -1, 0), e);
  assert.equal(besideEvent(drawn, c, -1, 0), b);
  assert.equal(besideEvent(drawn, a, -1, 0), a);
  assert.equal(besideEvent(drawn, b, 0, 1), d);
  assert.equal(besideEvent(drawn, d, 0, 1), e);
  assert.equal(besideEvent(drawn, e, 0, -1), d);
  assert.equal(besideEvent(drawn, d, 0, -1), b);
  assert.equal(besideEvent([], undefined, 1, 0), undefined);
});

test('what was recorded of a run is its own, and what is written over is known', () => {
  const plan = planOf(['', '', '']);
  const here = '/node:a/cpu:0 of plan a/1', there = '/node:b/cpu:0 of plan a/1';
  const event = (run, kind, actor, dur_ns, more = {}) =>
      ({t_ns: 100, dur_ns, node: 'a', track: here, kind, actor, run, tag: 0, flow: '', ...more});
  const ten = Array.from({length: 10}, (_, i) => event('a/2', 'kernel', 'a/1:1', 30 + i, {tag: i}));
  const events = [
    event('a/1', 'kernel', 'a/1:1', 7000),
    event('a/1', 'turn', '', 9000),
    ...ten,
    event('a/2', 'firing', 'a/1:1', 3, {tag: 4}),
    event('a/2', 'firing', 'a/1:2', 5),
    event('a/2', 'wait', 'a/1:2', 8000),
    event('a/2', 'send', 'a/1:1', 0, {flow: '7'}),
    event('a/2', 'receive', 'a/1:1', 0, {flow: '7', track: there}),
    event('a/2', 'send', 'a/1:1', 0, {flow: '8'}),
    event('', 'turn', '', 1),
    event('', 'turn', '', 1, {track: '/node:a/cpu:0 of plan a/3'}),
  ];
  const json = {events, lost: [{node: 'a', track: here, until_ns: 50}]};
  const second = new Recorded(plan, json, 'a/2', 60);
  assert.equal(second.firings, 11);  // the worker's kernel is one, though it was drawn twice
  assert.deepEqual([...second.fires], [0, 10, 1]);
  assert.deepEqual([...second.busy], [0, 345, 5]);
  assert.deepEqual([...second.longest], [0, 39, 5]);
  assert.deepEqual([...second.tokens], [['/node:a/cpu:0 → /node:b/cpu:0', 1]]);
  assert.equal(second.events.length, 17);  // with the turn of several runs of its plan
  assert.ok(second.isThere && second.isWhole);
  const first = new Recorded(plan, json, 'a/1', 40);
  assert.deepEqual([...first.busy], [0, 7000, 0]);
  assert.ok(!first.isWhole);
  const none = new Recorded(plan, json, 'a/9', 60);
  assert.ok(!none.isThere);
  assert.equal(none.events.length, 0);
  assert.equal(new Recorded(plan, null, 'a/1', 0).firings, 0);
});

// ---- what is kept of answers

const kPlan = {
  id: 'a/1',
  owner: 'a',
  incarnation: '7',
  runs_ended: 0,
  runs_failed: 0
};
const ended = (n, took, more = {}) => ({
  id: `a/${n}`,
  plan: 'a/1',
  took_ns: took,
  ended_ns: n * kSecond,
  ok: true,
  error: '',
  ...more
});

test('runs are one row a plan, each run counted once, and another life begins anew', () => {
  const times = new RunTimes(), other = {...kPlan, id: 'a/10', runs_ended: 2},
        second = {...kPlan, id: 'a/2'};
  const row = (state) =>
      times.rows({plans: [other, second, kPlan], ...state}).find((r) => r.id === 'a/1');
  assert.deepEqual(
      times.rows({plans: [other, second, kPlan]}).map((r) => r.id), ['a/1', 'a/2', 'a/10']);
  row({recent: [ended(3, 30), ended(2, 20), ended(1, 10)]});
  const now = row({
    plans: [{...kPlan, runs_ended: 5, runs_failed: 1}],
    recent: [ended(5, 900, {ok: false}), ended(4, 100), ended(3, 30), ended(2, 20)],
    runs: [{id: 'a/6', plan: 'a/1', for_ns: 5}]
  });
  assert.deepEqual(
      [now.times, now.median, now.slowest, now.count, now.failed, now.running],
      [[10, 20, 30, 100], 25, 100, 5, 1, 1]);
  assert.deepEqual(row({plans: [{...kPlan, incarnation: '8'}], recent: []}).times, []);
  for (let n = 0; n < 500; n += 1)
    row({plans: [{...kPlan, incarnation: '8'}], recent: [ended(n, n)]});
  assert.equal(row({plans: [{...kPlan, incarnation: '8'}]}).times.length, 200);
  assert.ok(Number.isNaN(median([])));
  assert.equal(sparkBars([1, 2, 3]).match(/M/g).length, 3);
  assert.equal(sparkBars(Array(100).fill(5)).match(/M/g).length, 42);
  assert.deepEqual(
      [planLabel({id: 'a/3', owner: 'a'}, false), planLabel({id: 'a/3', owner: 'a'}, true)],
      ['plan 3', 'a/3']);
});

test(
    'failures are kept for an hour after their node has left, one a run, in bounded memory', () => {
      const failures = new Failures(), now = 1e6 * kSecond;
      const error = (run, ago, node, text) =>
          ({run, plan: 'a/1', node, text, time_ns: now - ago * kSecond});
      const rows = failures.add({
        time_ns: now,
        errors: [
          {...error('a/3', 10, 'b', 'b was lost'), how: 'restart', times: 7, flight: '/f'},
          {...error('a/3', 11, 'a', 'MatMul failed'), flight: '/g'},
          error('a/1', 3000, 'a', 'early')
        ],
        recent: [
          {id: 'a/4', plan: 'a/1', ok: false, error: 'late', ended_ns: now},
          {id: 'a/5', plan: 'a/1', ok: true}
        ]
      });
      assert.deepEqual(
          rows.map((f) => [f.run, f.text, [...f.nodes]]),
          [['a/4', 'late', []], ['a/3', 'MatMul failed', ['a', 'b']], ['a/1', 'early', ['a']]]);
      assert.deepEqual(
          rows.map((f) => [f.how, f.times, [...f.flights]]),
          [['', 1, []], ['restart', 7, [['a', '/g'], ['b', '/f']]], ['', 1, []]]);
      assert.deepEqual(
          failures.add({time_ns: now + kSecond}).map((f) => f.run),
          ['a/4', 'a/3', 'a/1']);  // nothing is reported any more
      assert.deepEqual(
          failures.add({time_ns: now + 1000 * kSecond}).map((f) => f.run), ['a/4', 'a/3']);
      for (let n = 0; n < 3000; n += 1)
        failures.add(
            {time_ns: now + 1000 * kSecond, errors: [error(`a/${10 + n}`, -n / 10, 'a', 'x')]});
      assert.ok(failures.rows.length <= 500);
      assert.equal(failures.rows[0].run, 'a/3009');
    });

test('a training is where its program says, or what its curves are called', () => {
  const curve = (name, points, node = 'a') => ({name, node, kind: 'scalar', points});
  const loss =
      curve('train/loss', Array.from({length: 20}, (_, i) => [i * 10, i * kSecond, 4 - i / 10]));
  const guess =
      trainingOf([curve('chars/s', [[0, 0, 500]]), loss, curve('validation/bits', [[0, 0, 2.5]])]);
  assert.deepEqual(
      [
        guess.step, guess.steps, guess.loss, guess.validation, guess.rate, guess.unit,
        guess.perSecond
      ],
      [190, 0, 4 - 1.9, 2.5, 500, 'chars', 10]);
  assert.ok(Number.isNaN(guess.left_ns));
  const progress = {
    name: 'progress',
    node: 'a',
    kind: 'progress',
    points: [[
      200, 20 * kSecond, {
        steps: 700,
        loss: 1.5,
        validation: null,
        rate: 64,
        unit: 'images',
        began_step: 0,
        began_ns: 0
      }
    ]]
  };
  const told = trainingOf([loss, progress, curve('loss', [[1, 1, 9]], 'b')]);
  assert.deepEqual(
      [
        told.node, told.step, told.steps, told.loss, told.rate, told.unit, told.left_ns / kSecond,
        told.others
      ],
      ['a', 200, 700, 1.5, 64, 'images', 50, 1]);
  const alone = trainingOf([progress]);
  assert.deepEqual([alone.perSecond, alone.left_ns / kSecond, alone.curve], [10, 50, undefined]);
  assert.equal(
      trainingOf([{...progress, points: [[700, kSecond, {...progress.points[0][2]}]]}]).left_ns, 0);
  assert.equal(trainingOf([curve('accuracy', [[1, 1, 1]])]), null);
  assert.equal(trainingOf([]), null);
  assert.equal(lossOf([curve('validation/loss', [[1, 1, 1]])]), undefined);
  const grown = mergeSeries(
      [loss, progress],
      [{...progress, points: [[210, 21 * kSecond, {}]]}, curve('progress', [[1, 1, 1]])]);
  assert.deepEqual(
      grown.map((s) => s.kind),
      ['scalar', 'progress', 'scalar']);  // a user's curve of that name is another
});

test('the axis of a loss holds what follows the first steps, and a validation that is near', () => {
  assert.equal(rangeOf([]), null);
  assert.deepEqual(rangeOf([2, 4, 3]), [2, 4]);
  assert.deepEqual(rangeOf([2, 4, 3], [5, 500]), [2, 5]);
  const [low, high] = rangeOf([1000, ...Array.from({length: 200}, (_, i) => 5 - i / 100)]);
  assert.ok(high <= 5 && low > 3);
  assert.deepEqual(rangeOf([0, 0]), [-1, 1]);
});

test('the mean of a loss neither lags nor moves the last point away', () => {
  const line = Array.from({length: 200}, (_, i) => [i, i, i < 100 ? 5 : 1]);
  const mean = smoothedBothWays(line);
  assert.ok(Math.abs(mean[100][2] - 3) < 0.5, `${mean[100]}`);
  assert.ok(Math.abs(mean[0][2] - 5) < 0.05 && Math.abs(mean.at(-1)[2] - 1) < 0.05);
  assert.deepEqual(smoothedBothWays(line.slice(0, 20)), line.slice(0, 20));
});

test('the busiest actors are those of late, and their order is calm', () => {
  const plan = planOf(Array(9).fill('')), counters = new Counters(plan),
        busiest = new Busiest(plan);
  const tell = (seconds, rows) => busiest.apply(counters.apply({
    time_ns: seconds * kSecond,
    seq: 1,
    actors: {columns: ['id', 'busy_ns'], rows: rows.map((busy, i) => [`a/1:${i}`, busy * kSecond])}
  }));
  tell(1, [50, 0, 0, 1, 2, 3, 4]);
  assert.deepEqual(busiest.top(counters).map((b) => b.actor), [0, 6, 5, 4, 3]);  // ever
  for (let s = 2; s < 40; s += 1) tell(s, [50, 0.5 * s, 0.25 * s, 1, 2, 3, 4]);
  assert.deepEqual(busiest.top(counters).map((b) => b.actor), [1, 2]);
  const [first] = busiest.top(counters);
  assert.ok(Math.abs(first.cores - 0.5) < 0.01 && Math.abs(first.share - 2 / 3) < 0.01);
});

test('queues of devices have shares and rates between two states', () => {
  const shares = new QueueShares();
  const queue = (name, busy_ns, launches) =>
      ({name, busy_ns, launches, replayed: launches / 2, depth: 0, events: 0});
  const node = (compute, copies) => ({
    name: 'a',
    devices: [
      {name: '/node:a/gpu:0', in_use: 1, queues: [compute, copies]},
      {name: '/node:a/cpu:0', in_use: 1}
    ]
  });
  const tell = (time_ns, ...queues) => {
    const of = node(...queues);
    shares.add({time_ns, nodes: [of]});
    return nodeRow(of, time_ns, shares);
  };
  assert.ok(Number.isNaN(tell(1e9, queue('compute', 5e8, 10), queue('copy 0', 0, 0)).queue.share));
  const row = tell(3e9, queue('compute', 20e8, 30), queue('copy 0', 1e8, 4));
  assert.deepEqual(
      row.queues.map((q) => [q.device, q.name, q.share, q.perSecond, q.replayedPerSecond]), [
        ['/node:a/gpu:0', 'compute', 0.75, 10, 5], ['/node:a/gpu:0', 'copy 0', 0.05, 2, 1]
      ]);
  assert.equal(row.queue.name, 'compute');
  // The state that is shown again is no new one, and a node that begins anew has no debt.
  assert.equal(tell(3e9, queue('compute', 20e8, 30), queue('copy 0', 1e8, 4)).queue.share, 0.75);
  assert.equal(tell(4e9, queue('compute', 1e8, 3), queue('copy 0', 1e8, 4)).queue.share, 0);
  assert.match(busyText({share: 0.615, depth: 14}), /^62 %, 14 open$/);
  assert.match(queueLines(row.queues), /gpu:0, compute: 75 %; .* 15 of 30 launches by/);
  const old = {name: 'old', devices: [{name: 'd', in_use: 1}]};
  assert.equal(nodeRow(old, 0, shares).queue, undefined);
});

test('of many devices and peers a node has one row: the worst, and how many there are', () => {
  const device = (in_use, limit, swapped = 0) => ({name: `d${in_use}`, in_use, limit, swapped}),
        peer = (node, round_trip_ns) =>
            ({node, round_trip_ns, queued_bytes: 3, unacknowledged_bytes: 4});
  const row = nodeRow(
      {
        name: 'a',
        state: 'alive',
        cpu: 1,
        cores: 2,
        memory: {resident: 5, total: 9},
        devices: [device(5, 100), device(8, 10, 7), device(900, 0)],
        peers: [peer('b', 5), peer('c', 50), peer('d', 7)]
      },
      9);
  assert.deepEqual(
      [row.device.name, row.devices, row.swapped, row.peer.node, row.peers, row.waiting],
      ['d8', 3, 7, 'c', 3, 21]);
  assert.deepEqual(worst([], () => 1), {row: undefined, count: 0});
  assert.deepEqual(
      ['alive', 'suspect', 'dead', 'left'].map(
          (state) => nodeRow({name: 'x', state, reachable: false}, 0).state),
      ['silent', 'silent', 'dead', 'left']);
  const state = {
    nodes: [
      {name: 'x', state: 'suspect', reachable: false, why: 'last message'},
      {name: 'y', state: 'left', reachable: false}, {name: 'z', state: 'alive'}
    ]
  };
  assert.deepEqual(
      amissOf(
          state,
          [
            {run: 'a/1', text: 'waits for 3 s', actor: 'a/1:0'},
            {run: 'a/1', text: 'waits for 9 s', actor: 'a/1:0'}
          ],
          timeless)
          .map((v) => v.what),
      ['x', 'a/1']);
  assert.deepEqual(
      ['x', 'y', 'z', 'nobody'].map((owner) => hasOwner({owner}, state)),
      [true, false, true, true]);
});

test('waits and silences that last are drawn up to now', () => {
  const timeline = timelineOf(), track = '/node:a/cpu:0 of plan a/1',
        at = (seconds) => kBegin + seconds * kSecond;
  timeline.add({
    time_ns: at(5),
    asked_ns: at(5),
    events: [kernel(at(4), kSecond / 2, {track}), kernel(at(3), kSecond, {node: 'b', track: 'x'})]
  });
  const wait = (more) => ({
    kind: 'kernel',
    what: 'Dequeue \'q\'',
    node: 'a',
    device: '/node:a/cpu:0',
    for_ns: 0,
    ...more
  });
  const state = {
    time_ns: at(9),
    runs: [{
      id: 'a/9',
      plan: 'a/1',
      started_ns: at(1),
      waits: [wait({for_ns: 2 * kSecond}), wait({}), wait({for_ns: kSecond})]
    }],
    nodes: [
      {name: 'b', reachable: false, state: 'alive', why: 'it does not answer'},
      {name: 'c', reachable: false, state: 'dead', since_ns: at(2)},
      {name: 'd', reachable: false, state: 'left'}
    ]
  };
  timeline.setOpen(state);
  assert.equal(timeline.until, at(9));
  assert.deepEqual(timeline.open.map((e) => [e.node, e.track, e.kind, e.t_ns, e.count]), [
    ['a', track, 'wait', at(4.5), 3], ['b', 'x', 'silent', at(5), 1],
    ['c', 'all of it', 'silent', at(2), 1]
  ]);
  const early = timelineOf();  // the length of a wait is not known before anything was heard
  early.setOpen({...state, runs: [{...state.runs[0], waits: [wait({})]}], nodes: []});
  assert.deepEqual(early.open.map((e) => e.t_ns), [at(9)]);
  early.add({time_ns: at(9), asked_ns: at(9), events: []});
  early.setOpen({...state, runs: [{...state.runs[0], waits: [wait({})]}], nodes: []});
  assert.deepEqual(early.open.map((e) => e.t_ns), [at(-1)]);
  timeline.setOpen({...state, time_ns: at(10), runs: [], nodes: []});
  assert.deepEqual([timeline.open, timeline.until], [[], at(10)]);
});

test('modules of a report have one scope, and no name in it twice', async () => {
  const {readFileSync} = await import('node:fs');
  const read = (path) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
  const [, modules] =
      read('scripts/cmake/embed_page.cmake').match(/set\(report_modules ([\w ]+)\)/);
  let whole = '\'use strict\';\n';
  for (const name of modules.split(' '))
    whole += read(`cluster/inspect/page/${name}.js`)
                 .replace(/(^|\n)import [^\n]*/g, '$1')
                 .replace(/(^|\n)export /g, '$1');
  assert.doesNotThrow(() => new Function(whole));  // it is compiled, and not called
});
