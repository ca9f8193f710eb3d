#!/usr/bin/python3
"""A made-up node for tests of the page.

It serves cluster/inspect/page/ and answers /api/* as cluster/inspect/INSPECTION.md specifies.

  test/page/fake_node.py SOURCE --actors 10000 --port 0

It prints its address and serves until it is killed.

Its clock is the number of answers given, so that two equal calls get equal answers. --failing,
--hostile, --token T and --silent-after N, --reborn-after N and --left-after N change its answers,
--plain leaves progress out, --late SECONDS sets the delay of each answer.
"""

import argparse
import json
import math
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

HOSTILE = [
    '<script>document.title="owned"</script>',
    '<img src=x onerror="document.title=\'owned\'">',
    '"onmouseover="alert(1)',
    '\u202egnp.exe',
    'a' * 5000,
    'line\nbreak\tand\0nul',
    '</script><svg onload=alert(1)>',
    '{{7*7}}',
    'javascript:alert(1)',
    '\u200b\u200b\u2066x',
    '名前 мир 🌍',
]
OPS = ['MatMul', 'Add', 'Tanh', 'Sigmoid', 'Mul', 'Slice', 'Concat', 'Sum', 'Softmax', 'Send']
ACTOR = [
    'id',
    'op',
    'name',
    'scope',
    'node',
    'device',
    'partition',
    'line',
    'frame',
    'frame_depth',
    'user_actor',
]
COUNTS = ['id', 'fires', 'dead', 'busy_ns', 'bytes_out', 'state', 'waiting_for']
MOVED = ['id', 'tokens', 'bytes', 'in_flight', 'window']
TYPES = {
    'js': 'text/javascript',
    'css': 'text/css',
    'html': 'text/html',
    'svg': 'image/svg+xml',
    'txt': 'text/plain',
}


class World:
    """A plan in layers: reader, steps of an LSTM in a loop, loss, gradients, optimizer.

    It runs over two nodes with two devices each.
    """

    def __init__(self, actors, hostile, failing):
        self.failing = failing
        self.actors, self.edges = [], []
        self.ticks = 0
        self.reborn_after, self.life = 0, '17'
        self.left_after, self.is_plain = 0, False
        self.verdicts = []
        self.failures = 9
        self.born = time.time_ns()
        self._build(actors)
        self.producers = {}  # producer of each actor's first input
        for e in self.edges:
            self.producers.setdefault(e[2], e[1])
        for i, a in enumerate(self.actors):
            if self._is_dead(i):
                a[2] = f'not taken {i}'
        if hostile:
            for i, name in enumerate(HOSTILE):
                self.actors[i][2] = name
                self.actors[-1 - i][3] = name

    def dependence(self):
        """Causes of two nodes: b is driven by requests, a is locked by the steps of a training."""
        names = ['MatMul h (m.cpp:4)', 'Add g (m.cpp:5)', 'send Add g', 'receive Mul k', 'Tanh t']
        if self.actors[0][2].startswith('<script'):
            names[0] = HOSTILE[1]
        edge = {'strength': 0.97, 'delay': 0.0004, 'q': 1e-9}
        true = [(0, 1), (1, 2), (3, 4)]

        def node(name, found, locked):
            return {
                'node': name,
                'seconds': 20,
                'locked': locked,
                'channels': [{'name': n, 'events': 480 + 3 * i} for i, n in enumerate(names)],
                'edges': [{'from': names[f], 'to': names[t], **edge} for f, t in found],
                'true_edges': [{'from': names[f], 'to': names[t]} for f, t in true],
                'fits': [],
                'alarms': [
                    {
                        'change': 'insert',
                        'key': 1,
                        'begin_ns': self.now() - 3 * 10**9,
                        'end_ns': 2**63 - 1,
                        'output': names[1],
                        'text': f'the weight of {names[0]} falls from 0.97 to 0.41',
                    }
                ],
            }

        everything = [(f, t) for f in range(5) for t in range(5) if f < t]
        return {'nodes': [node('a', everything, 1.0), node('b', [(0, 1), (3, 4), (4, 0)], 0.1)]}

    def _add(self, op, name, scope, node, device, partition, frame, inputs, line):
        i = len(self.actors)
        self.actors.append(
            [
                f'a/3:{i}',
                op,
                name,
                scope,
                node,
                f'/node:{node}/{device}',
                partition,
                line,
                frame,
                1 if frame else 0,
                False,
            ]
        )
        for k, j in enumerate(inputs):
            self._link(j, i, k)
        return i

    def _link(self, j, i, k, kind='data'):
        cut = self.actors[j][6] != self.actors[i][6]
        self.edges.append(
            [len(self.edges), f'a/3:{j}', f'a/3:{i}', 0, k, kind, 'f32', '[32, 256]', cut, 32768]
        )

    def _build(self, n):
        line = 'model.cpp:%d'
        read = self._add('Dequeue', 'next batch', 'reader', 'a', 'cpu:0', 0, '', [], line % 12)
        embed = self._add('Gather', 'embedding', 'reader', 'a', 'cpu:0', 0, '', [read], line % 15)
        enter = self._add('Enter', 'x', 'lstm', 'a', 'cpu:0', 0, 'time', [embed], line % 20)
        merge = self._add('Merge', 'state', 'lstm', 'a', 'cpu:0', 0, 'time', [enter], line % 20)
        last, layer = merge, 0
        tail = ['loss', 'backward', 'optimizer']
        body = max(1, n - 9 - max(3, n // 10) * 2)
        per_layer = max(6, min(400, body // 6 or 1))
        made = 0
        while made < body:
            at = min(per_layer, body - made)
            node, device = ('a', 'b')[layer % 2], ('cpu:0', 'cpu:1')[layer // 2 % 2]
            cell = last
            for i in range(at):
                gate = ('input', 'forget', 'cell', 'output')[i % 4]
                inputs = [cell] if i % 5 else [cell, last]
                cell = self._add(
                    OPS[i % len(OPS)],
                    f'{OPS[i % len(OPS)].lower()} {i}',
                    f'lstm/layer {layer}/{gate} gate',
                    node,
                    device,
                    1 + layer % 4,
                    'time',
                    list(dict.fromkeys(inputs)),
                    line % (30 + i % 40),
                )
            last = cell
            layer += 1
            made += at
        back = self._add(
            'NextIteration', 'next state', 'lstm', 'a', 'cpu:0', 0, 'time', [last], line % 21
        )
        self._link(back, merge, 1, 'back')
        out = self._add('Exit', 'h', 'lstm', 'a', 'cpu:0', 0, '', [last], line % 22)
        loss = self._add(
            'SoftmaxCrossEntropy', 'loss', 'loss', 'b', 'cpu:0', 2, '', [out, read], line % 90
        )
        for scope in tail[1:]:
            at = loss
            for i in range(max(3, n // 10)):
                prior = at if i % 3 else loss
                at = self._add(
                    'MatMul' if scope == 'backward' else 'AssignSub',
                    f'{scope} {i}',
                    f'{scope}/part {i % 7}',
                    ('a', 'b')[i % 2],
                    'cpu:1',
                    3 + i % 2,
                    '',
                    [prior],
                    line % (100 + i % 50),
                )
            loss = at

    def now(self):
        return self.born + self.ticks * 700_000_000

    def busy(self, i):
        return self.failing != 'hang' and (i * 7919) % 97 < 88

    def plan(self):
        return {
            'id': 'a/3',
            'actors': {'columns': ACTOR, 'rows': self.actors},
            'edges': {
                'columns': [
                    'id',
                    'from',
                    'to',
                    'output',
                    'input',
                    'kind',
                    'dtype',
                    'shape',
                    'cut',
                    'bytes',
                ],
                'rows': self.edges,
            },
        }

    def _is_dead(self, i):
        """Beside a branch that is never taken: dead tokens only."""
        return i % 41 == 38

    def _counts(self, i, t):
        a = self.actors[i]
        if self._is_dead(i):
            return [a[0], 0, t * 12, 0, 0, 'dead', '']
        steps = 0 if i % 41 == 40 else (40 if self.failing == 'hang' else t) * (120 if a[8] else 12)
        state = (
            'idle'
            if i % 41 == 40
            else (
                'waiting'
                if self.failing == 'hang' or (i + t) % 6 == 0
                else 'running' if (i * 31 + t) % 11 == 0 else 'ready'
            )
        )
        if self.failing and i == len(self.actors) // 2:
            state = 'failed'
        return [
            a[0],
            steps,
            steps // 9 if 'forget' in a[3] else 0,
            steps * (20_000 + i % 9 * 9_000),
            steps * 32768,
            state,
            self.producers.get(a[0], '') if state == 'waiting' else '',
        ]

    def _moved(self, e, t):
        tokens, is_full = (40 if self.failing == 'hang' else t) * 120, self.failing == 'hang' and e[
            0
        ] % 3 == 0
        return [e[0], tokens, tokens * 32768, 32 if is_full else (e[0] + t) % 9, 32]

    def counters(self, since):
        self.ticks += 1
        t = self.ticks
        rows = [
            self._counts(i, t)
            for i in range(len(self.actors))
            if not since or (i + t) % 5 == 0 or len(self.actors) <= 100
        ]
        edges = [self._moved(e, t) for e in self.edges if e[8]]
        return {
            'seq': t,
            'reset': since == 0,
            'actors': {'columns': COUNTS, 'rows': rows},
            'edges': {'columns': MOVED, 'rows': edges[:2000]},
            'loops': {
                'columns': [
                    'loop',
                    'device',
                    'executions',
                    'iterations',
                    'window',
                    'most_parallel',
                    'open_ns',
                    'achieved_parallelism',
                    'limited_by_window',
                ],
                'rows': [
                    ['time', f'/node:{n}/cpu:0', t, t * 119, 32, 32, t * 600_000_000, 12.5, 0.25]
                    for n in ('a', 'b')
                ],
            },
        }

    def state(self):
        t = self.ticks
        if self.reborn_after and t >= self.reborn_after:
            self.life, self.actors[0][2] = '18', 'second life'
        hang = self.failing == 'hang'
        nodes = []
        for k, name in enumerate(['a', 'b', 'worker3']):
            away = self.failing and name == 'worker3'
            node = {
                'name': name,
                'address': f'tcp://10.0.0.{k + 1}:7117',
                'state': 'suspect' if away else 'alive',
                'since_ns': self.born - 90_000_000_000,
                'incarnation': '17',
                'labels': {'zone': 'x'},
                'engine': '0.1.0',
                'reachable': not away,
            }
            if away:
                node['why'] = (
                    'worker3 has not answered for 12 s: its process is stopped, or the network to '
                    '10.0.0.3 is cut'
                )
            else:
                node.update(
                    {
                        'cpu': 0.1 if hang else 1.2 + 0.4 * math.sin(t / 3 + k),
                        'cores': 2,
                        'memory': {'resident': (410 + 30 * k) << 20, 'total': 8 << 30},
                        'workers': 2,
                        'devices': [
                            {
                                'name': f'/node:{name}/cpu:0',
                                'in_use': (120 + 9 * (t % 7)) << 20,
                                'peak': 300 << 20,
                                'reserved': 320 << 20,
                                'free': 700 << 20,
                                'limit': 1 << 30,
                                'swapped': 24 << 20 if name == 'b' else 0,
                                'queues': [
                                    {
                                        'name': 'compute',
                                        'busy_ns': 434_000_000 * t,
                                        'enqueued': 1200 * t,
                                        'depth': 14,
                                        'events': 3,
                                        'launches': 1100 * t,
                                        'graphs': 9 * t,
                                        'replayed': 900 * t,
                                        'to_device': {'count': 60 * t, 'bytes': t << 20},
                                        'from_device': {'count': 40 * t, 'bytes': t << 10},
                                        'from_peer': {'count': 0, 'bytes': 0},
                                    }
                                ],
                            }
                        ],
                        'transport': {
                            'sent_bytes': t << 20,
                            'received_bytes': t << 19,
                            'sent_messages': t * 40,
                            'received_messages': t * 40,
                            'queued_bytes': 0,
                            'reconnects': 0,
                        },
                        'round_trip_ns': 41_000,
                        'peers': [
                            {
                                'node': p,
                                'sent_bytes': t << 20,
                                'received_bytes': t << 19,
                                'queued_bytes': (t % 3) << 18,
                                'unacknowledged_bytes': (t % 2) << 20,
                                'round_trip_ns': 210_000 + 10_000 * (t % 5),
                            }
                            for p in ('a', 'b')
                            if p != name
                        ],
                    }
                )
            nodes.append(node)
        verdict = (
            "'next batch' (Dequeue, model.cpp:12) on node a waits for a token that nobody sends: "
            "queue 'batches' is empty, and nothing in this run or elsewhere enqueues to it"
        )
        runs = [
            {
                'id': 'a/17',
                'plan': 'a/3',
                'owner': 'a',
                'step': 17,
                'started_ns': self.born,
                'for_ns': self.now() - self.born,
                'state': 'running',
                'nodes': ['a', 'b'],
                'fired': (40 if hang else t) * 9_120,
                'ready': 3,
                'loops': [
                    {
                        'loop': 'time',
                        'tag': '',
                        'node': 'a',
                        'device': '/node:a/cpu:0',
                        'first': t % 400,
                        'last': t % 400 + 11,
                        'window': 32,
                        'depth': 1,
                        'predicate': '',
                    }
                ],
                'waits': [
                    {
                        'what': "Dequeue 'next batch' (model.cpp:12)",
                        'actor': 'a/3:0',
                        'node': w['device'][6:7],
                        'from_node': w['from'][6:7],
                        'line': 'model.cpp:12',
                        **w,
                    }
                    for w in self.waits(0)
                ],
                'verdicts': [verdict if hang else 'a kernel computes'],
            }
        ]
        self.verdicts = (
            [
                {
                    'run': 'a/17',
                    'text': verdict,
                    'node': 'a',
                    'actor': 'a/3:0',
                    'line': 'model.cpp:12',
                }
            ]
            if hang
            else []
        )
        recent = [
            {
                'id': f'a/{i}',
                'plan': 'a/3',
                'ended_ns': self.now() - (17 - i) * 1_000_000_000,
                'took_ns': 812_000_000 + i * 1_000_000,
                'ok': not (self.failing and i == 15),
                'error': (
                    'MatMul \'gates\' (model.cpp:31): shapes [32, 256] and [128, 256] do not match'
                    if self.failing and i == 15
                    else ''
                ),
            }
            for i in range(9, 17)
        ]
        errors = [
            {
                'time_ns': self.now() - (17 - i) * 1_000_000_000,
                'node': node,
                'run': f'a/{i}',
                'plan': 'a/3',
                'incarnation': '17',
                'text': r['error'],
            }
            for i, r in enumerate(recent, 9)
            if not r['ok']
            for node in ('a', 'b')
        ]
        if self.failing:  # failures in an hour
            errors += [
                {
                    'time_ns': self.now() - 60_000_000_000 * i,
                    'node': 'b',
                    'run': f'gone/{40 - i}',
                    'plan': 'gone/1',
                    'incarnation': '3',
                    'text': f"run gone/{40 - i}: node 'worker{i}' was lost",
                    'code': 'unavailable',
                    'how': 'start the program again with --resume FILE: it goes on from there',
                    'owned': False,
                    'took_ns': 3_000_000_000,
                    'times': i,
                    'first_ns': self.now() - 60_000_000_000 * i,
                    'flight': f'/var/lib/troupe/flight/gone-{40 - i}.json',
                }
                for i in range(1, self.failures + 1)
            ]
        if self.left_after and t >= self.left_after:
            nodes[0] |= {
                'state': 'left',
                'reachable': False,
                'why': 'it has left, and has been gone for 3 s',
            }
            runs, recent, errors = [], [], []
        return {
            'version': 2,
            'time_ns': self.now(),
            'node': 'a',
            'nodes': nodes,
            'plans': [
                {
                    'id': 'a/3',
                    'owner': 'a',
                    'incarnation': self.life,
                    'nodes': ['a', 'b'],
                    'actors': len(self.actors),
                    'edges': len(self.edges),
                    'made_ns': self.born,
                    'runs_started': 17,
                    'runs_ended': 16,
                    'runs_failed': 0,
                }
            ],
            'runs': runs,
            'recent': recent,
            'errors': errors,
        }

    def waits(self, i):
        """Returns the actors that wait at the queue, and the partitions that wait for tokens.

        The tokens are those of their producer.
        """
        if self.failing != 'hang':
            return []
        a = self.actors[i]
        here = (
            [
                {
                    'run': 'a/17',
                    'kind': 'kernel',
                    'state': "queue 'batches'",
                    'tag': '',
                    'device': a[5],
                    'from': '',
                    'for_ns': 2_000_000_000,
                }
            ]
            if i == 0
            else []
        )
        awaiting = dict.fromkeys(
            self.actors[int(e[2].split(':')[1])][5] for e in self.edges if e[8] and e[1] == a[0]
        )
        tags = [f"iteration {n} of loop 'time'" for n in (12, 13, 14)] if a[8] else ['']
        return here + [
            {
                'run': 'a/17',
                'kind': 'token',
                'state': '',
                'tag': tag,
                'device': device,
                'from': a[5],
                'for_ns': 0,
            }
            for device in awaiting
            for tag in tags
        ]

    def ends(self, name, own, other):
        """The edges of an actor, at its end `own`."""
        found = []
        for e in (e for e in self.edges if e[own] == name):
            a = self.actors[int(e[other].split(':')[1])]
            found.append(
                {
                    'actor': a[0],
                    'op': a[1],
                    'name': a[2],
                    'output': e[3],
                    'input': e[4],
                    'dtype': e[6],
                    'shape': e[7],
                    'cut': e[8],
                    **(dict(zip(MOVED[1:], self._moved(e, self.ticks)[1:])) if e[8] else {}),
                }
            )
        return found

    def actor(self, name):
        at = next((a for a in self.actors if a[0] == name), None)
        if at is None:
            return None
        i = int(name.split(':')[1])
        counts = dict(zip(COUNTS, self._counts(i, self.ticks)))
        known = {
            **dict(zip(ACTOR, at)),
            **counts,
            'plan': 'a/3',
            'sampled_cost_ns': counts['busy_ns'] // max(1, counts['fires']),
            'inputs': self.ends(name, 2, 1),
            'outputs': self.ends(name, 1, 2),
        }
        errors = (
            ["MatMul 'gates' (model.cpp:31): shapes [32, 256] and [128, 256] do not match"]
            if self.failing and i == len(self.actors) // 2
            else []
        )
        loop = (
            {
                'loop': {
                    'loop': 'time',
                    'executions': 17,
                    'iterations': 2023,
                    'window': 32,
                    'most_parallel': 32,
                    'open_ns': 12_300_000_000,
                    'achieved_parallelism': 12.5,
                    'limited_by_window': 0.25,
                }
            }
            if at[8]
            else {}
        )
        queue = {'queue': {'elements': 3, 'capacity': 8}} if at[1] == 'Dequeue' else {}
        return {
            **known,
            'attributes': 'transpose=false',
            'bytes_in': None if i % 2 else 5 << 20,
            **loop,
            **queue,
            'open_iterations': (
                [{'run': 'a/17', 'loop': 'time', 'tag': '', 'first': 12, 'last': 19, 'window': 32}]
                if at[8]
                else []
            ),
            'waits': self.waits(i),
            'errors': errors,
        }

    def events(self, since):
        rows, end = [], self.now()
        begin = max(since, end - 2_000_000_000)
        if self.failing == 'hang':
            end = begin_of_hang = self.born + 3 * 700_000_000  # all that was done was done before
            begin = max(since, begin_of_hang - 2_000_000_000)
        for node in ('a', 'b'):
            for device in ('cpu:0', 'cpu:1'):
                track = f'/node:{node}/{device} of plan a/3'
                t = begin - begin % 9_000_000
                k = 0
                while t < end:
                    kind = ('kernel', 'kernel', 'turn', 'kernel', 'copy', 'wait')[
                        (k + len(node + device) + int(device[-1])) % 6
                    ]
                    took = (3 + (t // 9_000_000 * 7) % 5) * 1_000_000
                    if t >= since:
                        rows.append(
                            {
                                't_ns': t,
                                'dur_ns': took,
                                'node': node,
                                'track': track,
                                'kind': kind,
                                'name': OPS[(t // 9_000_000) % len(OPS)],
                                'actor': self.actors[(t // 9_000_000) % len(self.actors)][0],
                                'run': 'a/17',
                                'tag': '0',
                                'flow': 0,
                            }
                        )
                    t += 9_000_000 + (k % 4) * 2_000_000
                    k += 1
        for t in range(begin - begin % 40_000_000, end, 40_000_000):
            if t >= since:
                rows.append(
                    {
                        't_ns': t,
                        'dur_ns': 1_200_000,
                        'node': 'a',
                        'track': 'transport',
                        'kind': 'send',
                        'name': 'to b',
                        'run': 'a/17',
                        'tag': '',
                        'flow': 1,
                    }
                )
                rows.append(
                    {
                        't_ns': t + 2_000_000,
                        'dur_ns': 900_000,
                        'node': 'b',
                        'track': 'transport',
                        'kind': 'receive',
                        'name': 'from a',
                        'run': 'a/17',
                        'tag': '',
                        'flow': 1,
                    }
                )
        return rows

    def lost(self):
        """A recorder that keeps 300 ms."""
        return [
            {
                'node': 'a',
                'track': '/node:a/cpu:0 of plan a/3',
                'until_ns': self.now() - 300_000_000,
            }
        ]

    def scalars(self):
        steps = range(0, 40 * (self.ticks + 10), 10)
        noise = lambda s: 0.12 * math.sin(s * 12.9898) * math.cos(s * 4.1)
        curve = lambda f: [[s, self.born + s * 10_000_000, f(s)] for s in steps]
        return [
            {
                'name': 'train/loss',
                'kind': 'scalar',
                'points': curve(lambda s: 1.4 + 2.6 * math.exp(-s / 300) + noise(s)),
            },
            {
                'name': 'validation/bits',
                'kind': 'scalar',
                'points': curve(lambda s: 2.1 + 3.4 * math.exp(-s / 350))[::8],
            },
            {
                'name': 'chars/s',
                'kind': 'scalar',
                'points': curve(lambda s: 181_000 + 9_000 * math.sin(s / 90) + 40_000 * noise(s)),
            },
            {
                'name': 'weights/w',
                'kind': 'histogram',
                'points': [
                    [
                        s,
                        0,
                        {
                            'min': -1,
                            'max': 1,
                            'limits': [-1 + (b + 1) / 15 for b in range(30)],
                            'counts': [
                                math.exp(-(((b - 15) / (4 + s / 200)) ** 2)) * 400
                                for b in range(30)
                            ],
                        },
                    ]
                    for s in (0, 200, 400)
                ],
            },
            {
                'name': 'sample',
                'kind': 'text',
                'points': [
                    [400, 0, 'And the LORD said unto <b>Moses</b>, Go up into the mountain']
                ],
            },
            *(
                []
                if self.is_plain
                else [
                    {
                        'name': 'progress',
                        'kind': 'progress',
                        'points': [
                            [
                                steps[-1],
                                self.now(),
                                {
                                    'steps': 12000,
                                    'loss': 1.4 + 2.6 * math.exp(-steps[-1] / 300),
                                    'validation': 2.1 + 3.4 * math.exp(-steps[-1] / 350),
                                    'rate': 181_234.5,
                                    'unit': 'characters',
                                    'began_step': 0,
                                    'began_ns': self.born,
                                },
                            ]
                        ],
                    }
                ]
            ),
        ]


class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do_GET(self):
        url = urlparse(self.path)
        query = {k: v[0] for k, v in parse_qs(url.query).items()}
        server = self.server
        server.answered += 1
        if url.path.startswith('/api/'):
            if server.silent_after and server.world.ticks >= server.silent_after:
                self.close_connection = True
                return
            if server.token and self.headers.get('Authorization') != f'Bearer {server.token}':
                self.answer_json(401, {'error': 'this node answers only with its token'})
                return
            server.deltas += url.path == '/api/counters' and query.get('since', '0') != '0'
            time.sleep(server.late)
            self.api(url.path[5:], query)
            return
        if url.path == '/deltas':  # number of requests, for tests: no real node has it
            self.answer_json(200, {'deltas': server.deltas})
            return
        name = 'index.html' if url.path == '/' else url.path.removeprefix('/assets/')
        places = {
            'd3.js': '/usr/share/nodejs/d3/dist/d3.min.js',
            'dagre.js': '/usr/share/nodejs/dagre/dist/dagre.min.js',
        }
        path = places.get(name) or os.path.join(
            server.source, 'cluster/inspect/page', os.path.basename(name)
        )
        if not os.path.exists(path):
            self.answer_json(404, {'error': f'there is no {name}'})
            return
        with open(path, 'rb') as file:
            self.answer(200, TYPES[name.rsplit('.', 1)[1]], file.read())

    def api(self, what, query):
        world = self.server.world
        since = int(float(query.get('since', 0)))
        body = {
            'state': world.state,
            'plan': world.plan,
            'counters': lambda: world.counters(since),
            'scalars': lambda: {'series': world.scalars()},
            'actor': lambda: world.actor(query.get('id')),
            'events': lambda: {
                'asked_ns': world.now(),
                'events': world.events(since),
                'lost': world.lost(),
                'silent': [],
                'dropped': 0,
            },
            'diagnose': lambda: {'runs': 1, 'verdicts': world.verdicts},
            'dependence': world.dependence,
        }.get(what, lambda: None)()
        if body is None:
            self.answer_json(404, {'error': f'there is no {what} {query.get("id", "")}'})
            return
        self.answer_json(200, {'version': 2, 'time_ns': world.now(), **body})

    def answer_json(self, status, body):
        self.answer(status, 'application/json', json.dumps(body).encode())

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header('Content-Type', f'{kind}; charset=utf-8')
        self.send_header('Content-Length', str(len(body)))
        self.send_header('Content-Security-Policy', self.server.policy)
        self.send_header('Cache-Control', 'no-cache')
        self.send_header('Troupe-Inspection', '2')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def policy_of(source):
    """The page's own policy, so that the test breaks if the page does not keep it."""
    with open(os.path.join(source, 'cluster/inspect/page_assets.hpp'), encoding='utf-8') as file:
        text = file.read().split('kPagePolicy =', 1)[1].split(';\n', 1)[0]
    return ''.join(text.split('"')[1::2])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('source')
    parser.add_argument('--actors', type=int, default=400)
    parser.add_argument('--port', type=int, default=0)
    parser.add_argument('--hostile', action='store_true')
    parser.add_argument('--failing', choices=['', 'hang', 'error'], default='')
    parser.add_argument('--token', default='')
    parser.add_argument('--silent-after', type=int, default=0)
    parser.add_argument('--reborn-after', type=int, default=0)
    parser.add_argument('--left-after', type=int, default=0)
    parser.add_argument('--plain', action='store_true')
    parser.add_argument('--late', type=float, default=0)
    given = parser.parse_args()
    server = ThreadingHTTPServer(('127.0.0.1', given.port), Handler)
    server.daemon_threads = True
    server.world = World(given.actors, given.hostile, given.failing)
    server.world.reborn_after, server.world.left_after, server.world.is_plain = (
        given.reborn_after,
        given.left_after,
        given.plain,
    )
    server.source, server.token, server.silent_after, server.answered, server.late = (
        given.source,
        given.token,
        given.silent_after,
        0,
        given.late,
    )
    server.policy, server.deltas = policy_of(given.source), 0
    print(f'http://127.0.0.1:{server.server_address[1]}/', flush=True)
    server.serve_forever()


if __name__ == '__main__':
    sys.exit(main())
