/* One while loop over two partitions: iteration windows, grants, future tokens, reuse of the
 * instance.
 *
 *   spin -a -DK=1 -DN=3 frame.pml && gcc -O2 -o pan pan.c && ./pan    (see scripts/checks/model.sh)
 *
 * A partition is an actor: its steps are indivisible, and come in any order that tokens allow. The
 * frame is executed GENS times in one storage, so that a late token or grant would meet a reused
 * iteration state. A token on a local edge is 'producer fired, consumer not'; tokens and grants
 * between partitions lie in sets, so they overtake each other freely.
 *
 *   leader L                                          follower F
 *   Enter x ─► Merge ─► Pred+Switch ─► Send p ─────► Recv p+Switch ─► NextIteration ─► Merge
 *                │        │  │ └─────► Send d ─────► Recv d ─► body+Send r     (Enter control)
 *                ▼        │  └─► Exit                             │     ▲
 *              Recv r ◄───┼───────────────────────────────────────┘   constant Enter
 *                └──► body+NextIteration ◄── constant Enter; a third Enter has no consumer left
 *
 * Sizes: K parallel iterations (ring of K+1), at most N iterations of the body, GENS executions.
 * README.md describes the options:
 * - FAULT_... are planted, NEVER_... claim that a limit never binds, POISON adds errors.
 * - ONE_WAY leaves the edge r out, so that the leader can be whole executions ahead.
 * - EVERY_GRANT grants only after so many iterations.
 * - EARLY admits tokens for so many iterations beyond those with an iteration state, where they
 *   wait.
 * - REPEAT has one token come twice, at any time.
 * - BYTES makes every token as large as an edge may carry at once (LAST: the body's iterations,
 *   where grants that acknowledge iterations go on to N).
 */
#ifndef K
#define K 1
#endif
#ifndef N
#define N 3
#endif
#ifndef GENS
#define GENS 2
#endif
#ifndef LAST
#define LAST N
#endif
#ifndef EVERY_GRANT
#define EVERY_GRANT 1
#endif
#ifndef EARLY
#define EARLY 0
#endif
#if EARLY && defined(BYTES)
#error what is large is not sent so far ahead
#endif
#define R (K + 1)

#define L 0
#define F 1

/* Values of a token. FALSE is for the predicate's edge alone. */
#define NONE 0
#define LIVE 1
#define FALSE 2
#define DEAD 3
#define USED 4 /* the edge has carried its token of this iteration */

/* Nodes, as bits of `fired`. Nodes that always run inline, one after the other, are one here. */
#define MERGE 1
#define PRED 2     /* L: predicate and Switch */
#define SEND_P 4   /* L */
#define SEND_D 8   /* L */
#define RECV_R 16  /* L */
#define NEXT 32    /* L: body and NextIteration; F: NextIteration */
#define EXIT 64    /* L */
#define RECV_P 2   /* F: Recv and Switch */
#define RECV_D 4   /* F */
#define SEND_R 8   /* F: body and Send */

#ifdef ONE_WAY
#define NODES(p) (p == L -> 6 : 4)
#define LEADER_WAITS_FOR PRED
#else
#define NODES(p) (p == L -> 7 : 5)
#define LEADER_WAITS_FOR (PRED | RECV_R)
#endif
/* bit 0 loop variable or control, bit 1 constant, bit 2 without consumer */
#define ENTERS(p) (p == L -> 7 : 3)

/* Cut edges */
#define P 0
#define D 1
#define RES 2
#define EDGES 3

typedef Record {
  byte iter;   /* iteration that this state stands for; given when it enters the window */
  byte fired;
  byte left;   /* static count minus firings */
  byte merge;  /* NONE until the Merge has fired */
  byte pred;   /* LIVE: taken, FALSE: not, DEAD */
  byte in0;    /* remote tokens, buffered until the node fires: L: r; F: p */
  byte in1;    /* F: d */
  byte data;   /* liveness of what the body got from the other side */
#ifdef REPEAT
  byte came;   /* edges whose token of this iteration has come, as bits */
#endif
};

typedef Instance {
  byte gen;      /* which execution; GENS: all over */
  byte oldest;   /* oldest open iteration */
  byte newest;   /* newest started */
  byte pending;  /* iteration that a NextIteration waits to start, 0: none */
  bit exited;    /* a live Exit went out */
  bit withheld;  /* a dead Exit did not */
  Record r[R];
};

Instance inst[2];
byte granted[EDGES];             /* at the sender: highest iteration that it may send */
byte buffered[EDGES * GENS];     /* ghost: sent and not yet consumed */
byte net[EDGES * GENS * (N + 1)];  /* in flight: what; USED afterwards */
bit grant[EDGES * GENS * (N + 1)]; /* in flight */
#if EARLY
/* has come for an iteration that has no iteration state yet: its value is still in `net` */
bit waits[EDGES * GENS * (N + 1)];
#endif
bit watched[2 * GENS];           /* a large token has come: grants follow every iteration */
byte exits[GENS];                /* ghost: what the parent got */
byte last[2 * GENS];             /* ghost: last iteration of each partition */
byte entered[2 * GENS];          /* Enters that have arrived, of each partition and execution */
bit alive[GENS];                 /* the variables enter live: the loop is in no untaken branch */
#ifdef REPEAT
bit repeated;                    /* once is enough: more change nothing, as long as this does not */
#endif
bit poisoned[GENS];              /* ghost: an error came before the loop's end */

#define AT(e, g, n) ((e) * GENS * (N + 1) + (g) * (N + 1) + (n))
#define RECORD(p, s) inst[p].r[s]
#define ENTERED(p) entered[(p) * GENS + inst[p].gen]
#define OVER (inst[L].gen == GENS && inst[F].gen == GENS)
#define OPEN(p) (inst[p].gen < GENS)
#define READY(p, s, node, before) \
  (OPEN(p) && !(RECORD(p, s).fired & (node)) && (RECORD(p, s).fired & (before)) == (before))

inline fire(p, s, node) {
  assert(!(RECORD(p, s).fired & (node))); /* a node fires once, so a local edge carries one token */
  RECORD(p, s).fired = RECORD(p, s).fired | (node);
  assert(RECORD(p, s).left > 0);
  RECORD(p, s).left--;
}

/* An iteration state comes into the iteration window, empty, for iteration n. */
inline bind(p, n) {
  RECORD(p, (n) % R).iter = n;
  RECORD(p, (n) % R).fired = 0;
  RECORD(p, (n) % R).left = NODES(p);
  RECORD(p, (n) % R).merge = NONE;
  RECORD(p, (n) % R).pred = NONE;
  RECORD(p, (n) % R).in0 = NONE;
  RECORD(p, (n) % R).in1 = NONE;
  RECORD(p, (n) % R).data = NONE
#ifdef REPEAT
  ; RECORD(p, (n) % R).came = 0
#endif
}

/* The Merge of iteration n gets its one token: the iteration starts. */
inline start(p, n, what) {
  assert(RECORD(p, (n) % R).iter == (n));                              /* no reused state */
  assert((n) >= inst[p].oldest && (n) <= inst[p].oldest + K);          /* in the iteration window */
  assert(RECORD(p, (n) % R).merge == NONE);
  inst[p].newest = n;
  RECORD(p, (n) % R).merge = what;
  fire(p, (n) % R, MERGE);
}

/* A live NextIteration leaves the iteration of slot s. */
inline next_iteration(p, s) {
  if
#ifndef FAULT_NO_WINDOW
  :: RECORD(p, s).iter + 1 > inst[p].oldest + K ->
#ifdef NEVER_WINDOW
    assert(false);
#endif
    assert(inst[p].pending == 0); /* only iteration oldest+K can wait: one token a node */
    inst[p].pending = RECORD(p, s).iter + 1
#endif
  :: else -> to = RECORD(p, s).iter + 1; start(p, to, LIVE); to = 0
  fi
}

inline send(p, s, e, what) {
  assert(net[AT(e, inst[p].gen, RECORD(p, s).iter)] == NONE); /* one token an edge and iteration */
  net[AT(e, inst[p].gen, RECORD(p, s).iter)] = what;
  buffered[(e) * GENS + inst[p].gen]++;
  assert(buffered[(e) * GENS + inst[p].gen] <= R + EARLY);
}

inline open(p) {
  inst[p].oldest = 0;
  inst[p].newest = 0;
  inst[p].pending = 0;
  inst[p].exited = 0;
  inst[p].withheld = 0;
  bind(p, 0);
  bind(p, 1);
#if K == 2
  bind(p, 2);
#endif
  if
  :: p == L -> granted[P] = K + EARLY; granted[D] = K + EARLY
  :: else -> granted[RES] = K + EARLY
  fi
}

inline finish(p) {
  assert(inst[p].pending == 0 && inst[p].newest == inst[p].oldest);
  last[(p) * GENS + inst[p].gen] = inst[p].oldest;
  if
  :: p == L && !inst[p].exited && inst[p].withheld ->
    assert(exits[inst[p].gen] == NONE);
    exits[inst[p].gen] = DEAD
  :: else
  fi;
  inst[p].gen++;
  if
  :: OPEN(p) -> open(p)
  :: else -> /* one way to be over, so that equal ends are one state */
    bind(p, 0); bind(p, 1);
#if K == 2
    bind(p, 2);
#endif
    inst[p].oldest = 0; inst[p].newest = 0;
    inst[p].exited = 0; inst[p].withheld = 0
  fi
}

#if defined(FAULT_GRANT_AHEAD)
#define AHEAD 1
#else
#define AHEAD 0
#endif
inline give(p, e) {
  if
  :: inst[p].oldest % EVERY_GRANT != 0 && !watched[(p) * GENS + inst[p].gen]
  :: inst[p].oldest + K + EARLY + AHEAD <= N ->
    grant[AT(e, inst[p].gen, inst[p].oldest + K + EARLY + AHEAD)] = 1
  :: else /* it will never be needed */
  fi
}

/* A token is put into the iteration state of its iteration. */
#define PUT(p, e, g, n) \
  if \
  :: (e) == D -> assert(RECORD(p, (n) % R).in1 == NONE); RECORD(p, (n) % R).in1 = net[AT(e, g, n)] \
  :: else -> assert(RECORD(p, (n) % R).in0 == NONE); RECORD(p, (n) % R).in0 = net[AT(e, g, n)] \
  fi
/* An iteration has got an iteration state: the tokens that waited for it are put there. */
#if EARLY
inline take(p, e, n) {
  if
  :: n <= N && waits[AT(e, inst[p].gen, n)] ->
    waits[AT(e, inst[p].gen, n)] = 0;
    PUT(p, e, inst[p].gen, n);
#ifdef REPEAT
    RECORD(p, (n) % R).came = RECORD(p, (n) % R).came | (1 << (e));
#endif
    net[AT(e, inst[p].gen, n)] = USED
  :: else
  fi
}
#ifdef ONE_WAY
#define TAKE_EARLY(p, n) if :: p == F -> take(p, P, n); take(p, D, n) :: else fi
#else
#define TAKE_EARLY(p, n) if :: p == F -> take(p, P, n); take(p, D, n) :: else -> take(p, RES, n) fi
#endif
#else
#define TAKE_EARLY(p, n) skip
#endif

/* The oldest iteration is done: the iteration window moves, or the frame is finished. */
inline retire(p) {
  if
  :: inst[p].newest == inst[p].oldest && inst[p].pending == 0 -> finish(p)
  :: else ->
    to = inst[p].oldest + R; bind(p, to); TAKE_EARLY(p, to); to = 0;
    inst[p].oldest++;
    if
#ifdef ONE_WAY
    :: p == L /* no edge ends here */
#else
    :: p == L -> give(p, RES)
#endif
    :: else -> give(p, P); give(p, D)
    fi;
    if
    :: inst[p].pending != 0 -> to = inst[p].pending; inst[p].pending = 0; start(p, to, LIVE); to = 0
    :: else
    fi
  fi
}

#ifdef FAULT_NO_ENTERS
#define ALL_ENTERED(p) true
#else
#define ALL_ENTERED(p) (ENTERED(p) == ENTERS(p))
#endif
#if defined(FAULT_EARLY_RECYCLE)
/* The follower computes from the predicate that the data will be dead, and does not wait for that
 * token. */
#define DRAINED(p, s) (RECORD(p, s).left == 0 || (p == F && RECORD(p, s).left == 2 && \
                       (RECORD(p, s).fired & NEXT) && RECORD(p, s).pred != LIVE))
#elif defined(FAULT_UNSENT)
/* The leader does not wait for the sending of the data. */
#define DRAINED(p, s) (RECORD(p, s).left == 0 || \
                       (p == L && RECORD(p, s).left == 1 && !(RECORD(p, s).fired & SEND_D)))
#else
#define DRAINED(p, s) (RECORD(p, s).left == 0)
#endif
#define DONE(p, s) (OPEN(p) && RECORD(p, s).iter == inst[p].oldest && DRAINED(p, s) && \
                    (inst[p].oldest > 0 || ALL_ENTERED(p)))

/* A remote token reaches partition p in its execution g of the frame. A token of an execution that
 * p has not begun stays with the run's dispatch. One of an execution that is over must not
 * exist. */
inline arrive(p, e, g, n) {
  assert(inst[p].gen == (g));                       /* no reused instance */
#if EARLY
  if
  :: (n) > inst[p].oldest + K ->
    assert((n) <= inst[p].oldest + K + EARLY);
#ifdef NEVER_AHEAD
    assert(false);
#endif
#ifdef FAULT_DROPS_EARLY
    net[AT(e, g, n)] = USED
#else
    waits[AT(e, g, n)] = 1
#endif
  :: else -> arrive_in_window(p, e, g, n)
  fi
#else
  arrive_in_window(p, e, g, n)
#endif
}
inline arrive_in_window(p, e, g, n) {
  assert(RECORD(p, (n) % R).iter == (n));           /* no reused iteration state */
#ifdef NEVER_EARLY
  assert(RECORD(p, (n) % R).merge != NONE);
#endif
  if
#ifdef FAULT_NO_HOLD
  :: RECORD(p, (n) % R).merge == NONE /* lost */
  :: else ->
#else
  :: true ->
#endif
    PUT(p, e, g, n)
  fi;
  net[AT(e, g, n)] = USED;
#ifdef REPEAT
  RECORD(p, (n) % R).came = RECORD(p, (n) % R).came | (1 << (e));
#endif
#if defined(BYTES) && !defined(FAULT_UNWATCHED)
  if
  :: watched[(p) * GENS + (g)]
  :: else ->
    watched[(p) * GENS + (g)] = 1;
    if
#ifdef ONE_WAY
    :: p == L
#else
    :: p == L -> give(p, RES)
#endif
    :: else -> give(p, P); give(p, D)
    fi
  fi
#endif
}
#if EARLY
#define IN_FLIGHT(e, g, n) \
  (net[AT(e, g, n)] != NONE && net[AT(e, g, n)] != USED && !waits[AT(e, g, n)])
#define HAS_ARRIVED(e, g, n) (net[AT(e, g, n)] == USED || waits[AT(e, g, n)])
#else
#define IN_FLIGHT(e, g, n) (net[AT(e, g, n)] != NONE && net[AT(e, g, n)] != USED)
#define HAS_ARRIVED(e, g, n) (net[AT(e, g, n)] == USED)
#endif
/* It comes once more. The receiver detects it by its path and by its notes on this iteration and
 * edge. An empty slot proves nothing, because the node that it was for may have fired. */
#ifdef REPEAT
#ifdef FAULT_NO_CAME
#define HAS_COME(p, e, n) \
  ((e) == D -> RECORD(p, (n) % R).in1 != NONE : RECORD(p, (n) % R).in0 != NONE)
#else
#define HAS_COME(p, e, n) (RECORD(p, (n) % R).came & (1 << (e)))
#endif
inline repeat(p, e, g, n) {
  repeated = 1;
  if
  :: inst[p].gen != (g) /* its execution is over */
  :: inst[p].gen == (g) && (n) < inst[p].oldest /* its iteration is done */
  :: inst[p].gen == (g) && (n) >= inst[p].oldest ->
#ifdef NEVER_REPEATED
    assert(false);
#endif
    if
#if EARLY
    :: (n) > inst[p].oldest + K -> assert(waits[AT(e, g, n)])
#endif
    :: else -> assert(HAS_COME(p, e, n)) /* else it would be counted twice */
    fi
  fi
}
#define REPETITION(p, e, g, n) :: d_step { !repeated && HAS_ARRIVED(e, g, n) -> repeat(p, e, g, n) }
#else
#define REPETITION(p, e, g, n)
#endif
#define ARRIVAL(p, e, g, n) \
  :: d_step { inst[p].gen >= (g) && IN_FLIGHT(e, g, n) -> arrive(p, e, g, n) }

/* A grant reaches the sender p. It is a maximum, because grants overtake each other. One for an
 * execution that is over is dropped, because no sender waited for it. */
inline hear(p, e, g, n) {
  grant[AT(e, g, n)] = 0;
  assert((g) <= inst[p].gen); /* a receiver cannot be ahead: its window moves by our tokens */
#ifdef NEVER_LATE_GRANT
  assert((g) == inst[p].gen);
#endif
#ifdef NEVER_OVERTAKEN_GRANT
  assert((g) < inst[p].gen || (n) > granted[e]);
#endif
  if
#ifdef FAULT_LATE_GRANT
  :: OPEN(p) && (n) > granted[e] -> granted[e] = n
#elif defined(FAULT_LAST_GRANT)
  :: (g) == inst[p].gen -> granted[e] = n
#else
  :: (g) == inst[p].gen && (n) > granted[e] -> granted[e] = n
#endif
  :: else
  fi
}
#define GRANT(p, e, g, n) :: d_step { grant[AT(e, g, n)] -> hear(p, e, g, n) }

/* With BYTES a token has room if it is of the oldest iteration, or no other is in flight: sent, and
 * its iteration not known to be done. Grants acknowledge iterations. */
#define SENDER(e) (e == RES -> F : L)
#define ON_WAY(e, m) ((m) + K >= granted[e] && net[AT(e, inst[SENDER(e)].gen, m)] != NONE)
#ifdef FAULT_REFUSES_OLDEST
#define IS_OLDEST(e, n) false
#else
#define IS_OLDEST(e, n) ((n) + K <= granted[e])
#endif
#if !defined(BYTES)
#define HAS_ROOM(e, n) true
#elif N == 4
#define HAS_ROOM(e, n) \
  (IS_OLDEST(e, n) || \
   !(ON_WAY(e, 0) || ON_WAY(e, 1) || ON_WAY(e, 2) || ON_WAY(e, 3) || ON_WAY(e, 4)))
#else
#error with BYTES, N is 4
#endif
#ifdef FAULT_NO_GRANT
#define MAY_SEND(e, n) true
#else
#define MAY_SEND(e, n) ((n) <= granted[e] && HAS_ROOM(e, n))
#endif

#if N > 5
#error the lists of iterations below end at 5
#endif
#define EVERY(X, p, e, g) \
  X(p, e, g, 0) X(p, e, g, 1) X(p, e, g, 2) G3(X, p, e, g) G4(X, p, e, g) G5(X, p, e, g)
#if N >= 3
#define G3(X, p, e, g) X(p, e, g, 3)
#else
#define G3(X, p, e, g)
#endif
#if N >= 4
#define G4(X, p, e, g) X(p, e, g, 4)
#else
#define G4(X, p, e, g)
#endif
#if N >= 5
#define G5(X, p, e, g) X(p, e, g, 5)
#else
#define G5(X, p, e, g)
#endif

#ifdef FAULT_DEAD_CONTROL
#define LIVE_ENTER(p) (p == L -> LIVE : DEAD)
#else
#define LIVE_ENTER(p) LIVE
#endif

/* The parent's Enters of execution g: each arrives once, at any time after the partition began
 * g. */
inline enter(p, g, b) {
  assert(inst[p].gen == (g)); /* no reused instance */
  entered[(p) * GENS + (g)] = entered[(p) * GENS + (g)] | (b);
  if
  :: (b) == 1 && alive[g] -> start(p, 0, LIVE_ENTER(p))
  :: (b) == 1 && !alive[g] -> start(p, 0, DEAD)
  :: (b) == 1 && !alive[g] && p == F ->
    start(p, 0, LIVE) /* a control loop may enter without a condition */
  :: (b) != 1
  fi
}
#define ENTER(p, g, b) \
  :: atomic { inst[p].gen >= (g) && !(entered[(p) * GENS + (g)] & (b)) -> enter(p, g, b) }

#if defined(NEVER_REFUSED) /* by bytes alone */
#define UNGRANTED(p, s, node, before, e) \
  :: READY(p, s, node, before) && RECORD(p, s).iter <= granted[e] && \
     !HAS_ROOM(e, RECORD(p, s).iter) -> assert(false);
#elif defined(NEVER_UNGRANTED)
#define UNGRANTED(p, s, node, before, e) \
  :: READY(p, s, node, before) && !MAY_SEND(e, RECORD(p, s).iter) -> assert(false);
#else
#define UNGRANTED(p, s, node, before, e)
#endif

#ifdef FAULT_DEAD_CONSTANT
#define CONSTANT(p) DEAD
#else
#define CONSTANT(p) LIVE
#endif

#ifdef ONE_WAY
#define BODY(s) LIVE
#else
#define BODY(s) RECORD(L, s).data
#endif

#define LEADER(s) \
  :: atomic { READY(L, s, PRED, MERGE) -> \
       if \
       :: RECORD(L, s).merge == LIVE && RECORD(L, s).iter < LAST -> RECORD(L, s).pred = LIVE \
       :: RECORD(L, s).merge == LIVE -> RECORD(L, s).pred = FALSE \
       POISONED_PRED(s) \
       :: RECORD(L, s).merge == DEAD -> RECORD(L, s).pred = DEAD \
       fi; \
       fire(L, s, PRED) } \
  UNGRANTED(L, s, SEND_P, PRED, P) \
  :: d_step { READY(L, s, SEND_P, PRED) && MAY_SEND(P, RECORD(L, s).iter) -> \
       send(L, s, P, RECORD(L, s).pred); fire(L, s, SEND_P) } \
  UNGRANTED(L, s, SEND_D, PRED, D) \
  :: d_step { READY(L, s, SEND_D, PRED) && MAY_SEND(D, RECORD(L, s).iter) -> \
       send(L, s, D, (RECORD(L, s).pred == LIVE -> LIVE : DEAD)); fire(L, s, SEND_D) } \
  :: d_step { READY(L, s, RECV_R, MERGE) && RECORD(L, s).in0 != NONE -> \
       RECORD(L, s).data = RECORD(L, s).in0; RECORD(L, s).in0 = NONE; \
       buffered[RES * GENS + inst[L].gen]--; fire(L, s, RECV_R) } \
  :: d_step { READY(L, s, NEXT, LEADER_WAITS_FOR) && (ENTERED(L) & 2) -> \
       fire(L, s, NEXT); \
       if \
       :: RECORD(L, s).pred == LIVE && BODY(s) == LIVE && CONSTANT(L) == LIVE -> \
            next_iteration(L, s) \
       :: else \
       fi } \
  :: d_step { READY(L, s, EXIT, PRED) -> \
       if \
       :: RECORD(L, s).pred == FALSE -> \
            assert(exits[inst[L].gen] == NONE); exits[inst[L].gen] = LIVE; inst[L].exited = 1 \
       :: else -> DEAD_EXIT \
       fi; \
       fire(L, s, EXIT) } \
  :: d_step { DONE(L, s) -> retire(L) }

#ifdef POISON
/* After an error the kernels of L are skipped: its predicate has no value and goes out dead. */
#define POISONED_PRED(s) \
  :: RECORD(L, s).merge == LIVE -> RECORD(L, s).pred = DEAD; poisoned[inst[L].gen] = 1
#else
#define POISONED_PRED(s)
#endif

#ifdef FAULT_DEAD_EXITS
#define DEAD_EXIT assert(exits[inst[L].gen] == NONE); exits[inst[L].gen] = DEAD
#else
#define DEAD_EXIT inst[L].withheld = 1
#endif

#ifdef ONE_WAY
#define BACK(s)
#else
#define BACK(s) \
  UNGRANTED(F, s, SEND_R, RECV_D, RES) \
  :: atomic { READY(F, s, SEND_R, RECV_D) && (ENTERED(F) & 2) && \
              MAY_SEND(RES, RECORD(F, s).iter) -> \
       if \
       :: true -> send(F, s, RES, RECORD(F, s).data) \
       POISONED_BODY(s) \
       fi; \
       fire(F, s, SEND_R) }
#endif

#define FOLLOWER(s) \
  :: d_step { READY(F, s, RECV_P, MERGE) && RECORD(F, s).in0 != NONE -> \
       assert(RECORD(F, s).merge == LIVE || RECORD(F, s).in0 == DEAD); \
       RECORD(F, s).pred = RECORD(F, s).in0; RECORD(F, s).in0 = NONE; \
       buffered[P * GENS + inst[F].gen]--; fire(F, s, RECV_P) } \
  :: d_step { READY(F, s, NEXT, RECV_P) -> \
       fire(F, s, NEXT); \
       if \
       :: RECORD(F, s).merge == LIVE && RECORD(F, s).pred == LIVE -> next_iteration(F, s) \
       :: else \
       fi } \
  :: d_step { READY(F, s, RECV_D, MERGE) && RECORD(F, s).in1 != NONE -> \
       RECORD(F, s).data = RECORD(F, s).in1; RECORD(F, s).in1 = NONE; \
       buffered[D * GENS + inst[F].gen]--; fire(F, s, RECV_D) } \
  BACK(s) \
  :: d_step { DONE(F, s) -> retire(F) }

#ifdef FAULT_DEAD_POISON
/* A skipped kernel sends a dead token, as if poison were deadness. */
#define POISONED_BODY(s) :: true -> send(F, s, RES, DEAD)
#else
#define POISONED_BODY(s)
#endif

/* The steps of one partition, and of the network, are shared out over processes, one for each slot
 * or execution: a step is indivisible, so this only changes the size of the verifier. */
proctype leader(byte s) {
  byte to; /* an iteration, within a step */
end:
  do
  LEADER(s)
  od
}

proctype follower(byte s) {
  byte to;
end:
  do
  FOLLOWER(s)
  od
}

proctype network(byte g) {
  byte to;
end:
  do
  ENTER(L, g, 1)
  ENTER(L, g, 2)
  ENTER(L, g, 4)
  ENTER(F, g, 1)
  ENTER(F, g, 2)
  EVERY(ARRIVAL, F, P, g)
  EVERY(ARRIVAL, F, D, g)
  EVERY(ARRIVAL, L, RES, g)
  EVERY(REPETITION, F, P, g)
  EVERY(REPETITION, F, D, g)
  EVERY(REPETITION, L, RES, g)
  EVERY(GRANT, L, P, g)
  EVERY(GRANT, L, D, g)
  EVERY(GRANT, F, RES, g)
  od
}

init {
  byte g, n;
  atomic {
    do
    :: g < GENS -> if :: alive[g] = 0 :: alive[g] = 1 fi; g++
    :: else -> g = 0; break
    od;
    open(L);
    open(F);
    do
    :: g < GENS -> run network(g); g++
    :: else -> g = 0; break
    od;
    do
    :: n <= K -> run leader(n); run follower(n); n++
    :: else -> n = 0; break
    od
  }
  /* A state in which nothing can happen any more and this has not been passed is a deadlock. */
  d_step {
    OVER -> do
    :: g < GENS ->
      assert(exits[g] == (alive[g] && !poisoned[g] -> LIVE : DEAD)); /* once, and the right one */
      assert(last[L * GENS + g] == last[F * GENS + g]);
      assert(entered[L * GENS + g] == ENTERS(L) && entered[F * GENS + g] == ENTERS(F));
      n = 0;
      do /* every edge carried one token in every iteration, and none after */
      :: n <= N ->
        assert(net[AT(P, g, n)] == (n <= last[L * GENS + g] -> USED : NONE));
        assert(net[AT(D, g, n)] == (n <= last[L * GENS + g] -> USED : NONE));
#ifndef ONE_WAY
        assert(net[AT(RES, g, n)] == (n <= last[L * GENS + g] -> USED : NONE));
#endif
        n++
      :: else -> break
      od;
      assert(buffered[P * GENS + g] + buffered[D * GENS + g] + buffered[RES * GENS + g] == 0);
      g++
    :: else -> break
    od;
    g = 0; n = 0
  }
}

#ifdef LIVENESS
ltl finishes { <> OVER }
#endif
