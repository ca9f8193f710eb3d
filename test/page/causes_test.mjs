// The tab of causes without a browser: found edges against true ones, and why edges are no causes.
// Run by test/page/page_test.sh with node.
import assert from 'node:assert/strict';
import {test} from 'node:test';

import {alarmsOf, bow, compared, ring, whyNoCauses} from '../../cluster/inspect/page/causes.js';
import {operatorRows} from '../../cluster/inspect/page/panel.js';

const edge = (from, to) => ({from, to, strength: 1, delay: 0.001, q: 0.01});

test('found edges are right, wrong or missed by the true ones', () => {
  const edges = [edge('a', 'b'), edge('c', 'a')], truths = [edge('a', 'b'), edge('b', 'c')],
        node = {edges, true_edges: truths};
  const {found, truth, precision, recall} = compared(node);
  assert.deepEqual(found.map((e) => e.isRight), [true, false]);
  assert.deepEqual(truth.map((e) => e.isFound), [true, false]);
  assert.equal(precision, 0.5);
  assert.equal(recall, 0.5);
  const nothing = compared({edges: [], true_edges: []});
  assert.ok(Number.isNaN(nothing.precision) && Number.isNaN(nothing.recall));
});

test('a training that locks its channels is the reason why edges are no causes', () => {
  assert.equal(whyNoCauses({locked: 0.2}, {name: 'fit'}), '');
  const why = whyNoCauses({locked: 0.9}, {name: 'fit'});
  assert.match(why, /^A training runs here, and its steps lock the channels together: 90 % of/);
  assert.match(why, /no causes; the plan on the right has them\.$/);
  assert.match(whyNoCauses({locked: 1}), /^A fixed cycle locks the channels together: 100 %/);
});

test('channels stand on a circle, and an edge and its counterpart bend apart', () => {
  const places = ring(4, 100, 40);
  assert.deepEqual(places.map(([x, y]) => [Math.round(x), Math.round(y)]),
                   [[50, 10], [90, 50], [50, 90], [10, 50]]);
  const middle = (path) => path.split(/[Q ]/)[1];
  assert.notEqual(middle(bow(places[0], places[2])), middle(bow(places[2], places[0])));
  assert.match(bow([0, 0], [0, 0]), /^M[\d.,-]+Q/);
});

test('an alarm is open until it is taken back', () => {
  const insert =
      {change: 'insert', key: 1, begin_ns: 1e9, end_ns: 9e18, output: 'o', text: 'weight'};
  assert.deepEqual(alarmsOf({alarms: [insert]}, 3e9),
                   [{isOpen: true, text: 'o: weight', when: 'for 2 s'}]);
  const taken = alarmsOf({alarms: [insert, {...insert, change: 'retract', end_ns: 2e9}]}, 3e9);
  assert.deepEqual(taken, [{isOpen: false, text: 'o: weight', when: 'ended after 1 s'}]);
});

test('an operator of a query shows what it holds and what it has sent', () => {
  assert.deepEqual(operatorRows(undefined), []);
  const o = {blocked: 3, state_size: 2, peak_state: 7, events_out: 5, retractions_out: 1,
    live_bytes: 2048, peak_bytes: 4096, clipped: 0, dropped: 0, refused: 0};
  assert.deepEqual(operatorRows(o), [
    ['Blocked', '3 messages'], ['State', '2 events, 7 at most'],
    ['Output', '5 events, 1 retractions'], ['Live bytes', '2.00 KiB, 4.00 KiB at most']
  ]);
  assert.deepEqual(operatorRows({...o, refused: 2}).at(-1),
                   ['Amiss', '0 clipped, 0 dropped, 2 refused']);
});
