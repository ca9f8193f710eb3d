/* A while loop inside a while loop, over two partitions: paths, reused inner instances, iteration
 * windows by level.
 *
 * The rules of frame.pml for one frame hold here on both levels. New are:
 * - An inner instance is taken from a free list and reached by a slot in the iteration state of its
 *   outer iteration. It counts as one item of that iteration state.
 * - Messages name the path (outer iteration i, inner iteration j).
 * - A grant has a part for each level of its edge.
 *
 *   leader L, outer                                     follower F, outer
 *   Merge ─► Pred+Switch ─► Send o ──────────────────► Recv o+Switch ─► NextIteration
 *                 └─► Enter ─► [inner] ─► NextIteration    Merge ─► Enter ─► [inner]
 *   leader L, inner                                     follower F, inner
 *   Merge ─► Pred+Switch ─► Send p ──────────────────► Recv p+Switch ─► NextIteration
 *                 └─► Exit                                   └─► body+Send r
 *   Recv r ─► NextIteration ◄────────────────────────────────────┘
 *
 * Sizes: K parallel iterations on both levels is 1 (rings of 2); at most NO outer and NI inner
 * iterations.
 */
#ifndef NO
#define NO 2
#endif
#ifndef NI
#define NI 2
#endif
#define K 1
#define R 2

#define L 0
#define F 1

#define NONE 0
#define LIVE 1
#define FALSE 2
#define DEAD 3
#define USED 4

#define MERGE 1
#define PRED 2 /* L: predicate and Switch; F: Recv of it and Switch */
#define SEND 4 /* L: of the predicate; F, inner: body and Send r */
#define NEXT 8
#define ENTER 16 /* outer: into the inner frame */
#define CHILD 32 /* outer: the inner instance is over */
#define RECV 16  /* L, inner: of r */
#define EXIT 32  /* L, inner */

#define OUTER_NODES(p) (p == L -> 6 : 5)
#define INNER_NODES(p) (p == L -> 6 : 4)

#define NO_CHILD 2 /* slots are 0 and 1 */

typedef Outer {
  byte iter;
  byte fired;
  byte left;
  byte pred;
  byte in;    /* F: the buffered token of edge o */
  byte child; /* slot of the inner instance */
  byte exit;  /* L: what came out of it */
};
typedef Inner {
  byte iter;
  byte fired;
  byte left;
  byte merge;
  byte pred;
  byte in;   /* the buffered token: L: r, F: p */
  byte data;
};
typedef Instance { /* an instance of the inner frame */
  bit used;
  byte path;    /* ghost: the outer iteration */
  byte outer;   /* slot of the outer iteration state */
  byte oldest;
  byte newest;
  byte pending;
  byte granted; /* highest inner iteration that may be sent */
  bit exited;
  Inner r[R];
};

#define X(p, x) inst[(p) * R + (x)]
#define RECORD(p, x, s) X(p, x).r[s]
Instance inst[2 * R];
#define OUT(p, s) out[(p) * R + (s)]
Outer out[2 * R];
byte oldest[2];
byte newest[2];
byte pending[2];
bit entered[2];
bit over[2];
byte last[2];

byte granted_o;        /* at L, edge o: highest outer iteration that may be sent */
byte prefix[2];        /* at the sender p, inner edge: highest outer iteration that may be sent */
byte net_o[NO + 1];    /* tokens in flight, by path */
byte net_p[(NO + 1) * (NI + 1)];
byte net_r[(NO + 1) * (NI + 1)];
bit grant_o[NO + 1];   /* grants in flight */
bit prefix_p[NO + 1];
bit prefix_r[NO + 1];
bit grant_p[(NO + 1) * (NI + 1)];
bit grant_r[(NO + 1) * (NI + 1)];
byte buffered_o;       /* ghost: sent and not yet consumed, over all paths */
byte buffered_p;
byte buffered_r;

#define PATH(i, j) ((i) * (NI + 1) + (j))
#define AT(p, x, s) PATH(X(p, x).path, RECORD(p, x, s).iter)

inline fire_outer(p, s, node) {
  assert(!(OUT(p, s).fired & (node)));
  OUT(p, s).fired = OUT(p, s).fired | (node);
  assert(OUT(p, s).left > 0);
  OUT(p, s).left--
}
inline fire(p, x, s, node) {
  assert(!(RECORD(p, x, s).fired & (node)));
  RECORD(p, x, s).fired = RECORD(p, x, s).fired | (node);
  assert(RECORD(p, x, s).left > 0);
  RECORD(p, x, s).left--
}

inline bind_outer(p, n) {
  OUT(p, (n) % R).iter = n;
  OUT(p, (n) % R).fired = 0;
  OUT(p, (n) % R).left = OUTER_NODES(p);
  OUT(p, (n) % R).pred = NONE;
  OUT(p, (n) % R).in = NONE;
  OUT(p, (n) % R).child = NO_CHILD;
  OUT(p, (n) % R).exit = NONE
}
inline bind(p, x, n) {
  RECORD(p, x, (n) % R).iter = n;
  RECORD(p, x, (n) % R).fired = 0;
  RECORD(p, x, (n) % R).left = INNER_NODES(p);
  RECORD(p, x, (n) % R).merge = NONE;
  RECORD(p, x, (n) % R).pred = NONE;
  RECORD(p, x, (n) % R).in = NONE;
  RECORD(p, x, (n) % R).data = NONE
}

inline start_outer(p, n) {
  assert(OUT(p, (n) % R).iter == (n));
  assert((n) >= oldest[p] && (n) <= oldest[p] + K);
  newest[p] = n;
  fire_outer(p, (n) % R, MERGE)
}
inline start(p, x, n, what) {
  assert(RECORD(p, x, (n) % R).iter == (n));
  assert((n) >= X(p, x).oldest && (n) <= X(p, x).oldest + K);
  assert(RECORD(p, x, (n) % R).merge == NONE);
  X(p, x).newest = n;
  RECORD(p, x, (n) % R).merge = what;
  fire(p, x, (n) % R, MERGE)
}

inline next_outer(p, s) {
  if
  :: OUT(p, s).iter + 1 > oldest[p] + K ->
#ifdef NEVER_OUTER_WINDOW
    assert(false);
#endif
    assert(pending[p] == 0);
    pending[p] = OUT(p, s).iter + 1
  :: else -> to = OUT(p, s).iter + 1; start_outer(p, to); to = 0
  fi
}
inline next(p, x, s) {
  if
  :: RECORD(p, x, s).iter + 1 > X(p, x).oldest + K ->
#ifdef NEVER_INNER_WINDOW
    assert(false);
#endif
    assert(X(p, x).pending == 0);
    X(p, x).pending = RECORD(p, x, s).iter + 1
  :: else -> to = RECORD(p, x, s).iter + 1; start(p, x, to, LIVE); to = 0
  fi
}

/* The inner instance of outer slot s, made by the Enter or a remote token, whichever comes first. A
 * iteration window of outer iterations has one each, so the free list never lacks one. The outcome
 * is in slot `at`. */
inline reach_child(p, s) {
  if
  :: OUT(p, s).child != NO_CHILD -> at = OUT(p, s).child
  :: else ->
    at = (X(p, 0).used -> 1 : 0);
    assert(!X(p, at).used);
    X(p, at).used = 1;
    X(p, at).path = OUT(p, s).iter;
    X(p, at).outer = s;
    X(p, at).granted = K;
    bind(p, at, 0);
    bind(p, at, 1);
    OUT(p, s).child = at
  fi
}

/* The iteration window moves: each inner edge that ends here gets the new outer iteration too. */
inline retire_outer(p) {
  if
  :: newest[p] == oldest[p] && pending[p] == 0 ->
    over[p] = 1;
    last[p] = oldest[p];
    bind_outer(p, 0);
    bind_outer(p, 1)
  :: else ->
    to = oldest[p] + R; bind_outer(p, to); to = 0;
    oldest[p]++;
    if
    :: oldest[p] + K <= NO && p == L -> prefix_r[oldest[p] + K] = 1
    :: oldest[p] + K <= NO && p == F -> prefix_p[oldest[p] + K] = 1; grant_o[oldest[p] + K] = 1
    :: else
    fi;
    if
    :: pending[p] != 0 -> to = pending[p]; pending[p] = 0; start_outer(p, to); to = 0
    :: else
    fi
  fi
}

inline retire(p, x) {
  if
  :: X(p, x).newest == X(p, x).oldest && X(p, x).pending == 0 ->
    /* finished: the dead Exit, if no live one went out, and back to the free list */
    at = X(p, x).outer;
    assert(OUT(p, at).iter == X(p, x).path && OUT(p, at).child == x);
    if
    :: p == L && !X(p, x).exited -> assert(OUT(p, at).exit == NONE); OUT(p, at).exit = DEAD
    :: else
    fi;
    fire_outer(p, at, CHILD);
    at = 0;
    bind(p, x, 0);
    bind(p, x, 1);
    X(p, x).path = 0;
    X(p, x).outer = 0;
    X(p, x).oldest = 0;
    X(p, x).newest = 0;
    X(p, x).granted = 0;
    X(p, x).exited = 0;
    X(p, x).used = 0
  :: else ->
    to = X(p, x).oldest + R; bind(p, x, to); to = 0;
    X(p, x).oldest++;
    if
    :: X(p, x).oldest + K <= NI && p == L -> grant_r[PATH(X(p, x).path, X(p, x).oldest + K)] = 1
    :: X(p, x).oldest + K <= NI && p == F -> grant_p[PATH(X(p, x).path, X(p, x).oldest + K)] = 1
    :: else
    fi;
    if
    :: X(p, x).pending != 0 ->
      to = X(p, x).pending; X(p, x).pending = 0; start(p, x, to, LIVE); to = 0
    :: else
    fi
  fi
}

/* A token for the path (i, j) reaches p. */
inline arrive(p, i, j, cell) {
  assert(!over[p]);
#ifdef FAULT_NO_OUTER_HOLD
  if
  :: !(OUT(p, (i) % R).fired & ENTER) -> skip /* no instance yet: lost */
  :: else ->
#endif
  assert(OUT(p, (i) % R).iter == (i));         /* the outer iteration is in the iteration window */
  assert(!(OUT(p, (i) % R).fired & CHILD));    /* and its inner instance not yet over */
#ifdef NEVER_EARLY_INSTANCE
  assert(OUT(p, (i) % R).fired & MERGE);
#endif
  reach_child(p, (i) % R);
  assert(X(p, at).path == (i));                /* no reused instance */
  assert(RECORD(p, at, (j) % R).iter == (j));  /* no reused iteration state */
  assert(RECORD(p, at, (j) % R).in == NONE);
  RECORD(p, at, (j) % R).in = cell;
  at = 0;
#ifdef FAULT_NO_OUTER_HOLD
  fi;
#endif
  cell = USED
}

/* A grant for the path (i, j) reaches the sender p. It goes to the instance of that path if it is
 * there. A sender whose instance is over has sent all it had, so the grant is dropped. An instance
 * that is not there yet cannot be meant, because a receiver's inner iteration window moves by the
 * sender's tokens. */
inline hear(p, i, j) {
#ifdef FAULT_GRANT_BY_SLOT
  if
  :: OUT(p, (i) % R).child != NO_CHILD && !(OUT(p, (i) % R).fired & CHILD) ->
#else
  assert(over[p] || (i) < oldest[p] ||
         (OUT(p, (i) % R).iter == (i) && OUT(p, (i) % R).child != NO_CHILD));
  if
  :: !over[p] && OUT(p, (i) % R).iter == (i) && !(OUT(p, (i) % R).fired & CHILD) ->
#endif
    at = OUT(p, (i) % R).child;
    assert(X(p, at).path == (i)); /* no reused instance */
    if
    :: (j) > X(p, at).granted -> X(p, at).granted = j
    :: else
    fi;
    at = 0
  :: else ->
#ifdef NEVER_LATE_GRANT
    assert(false)
#else
    skip
#endif
  fi
}

#ifdef FAULT_NO_PREFIX
#define MAY_SEND(p, x, s) (RECORD(p, x, s).iter <= X(p, x).granted)
#else
#define MAY_SEND(p, x, s) (RECORD(p, x, s).iter <= X(p, x).granted && X(p, x).path <= prefix[p])
#endif
#ifdef NEVER_NO_PREFIX
#define NO_PREFIX(p, x, s) \
  :: READY(p, x, s, SEND, PRED) && X(p, x).path > prefix[p] -> assert(false);
#else
#define NO_PREFIX(p, x, s)
#endif

#define READY_OUTER(p, s, node, before) \
  (!over[p] && !(OUT(p, s).fired & (node)) && (OUT(p, s).fired & (before)) == (before))
#define READY(p, x, s, node, before) \
  (X(p, x).used && !(RECORD(p, x, s).fired & (node)) && \
   (RECORD(p, x, s).fired & (before)) == (before))

#ifdef FAULT_NO_CHILD_COUNT
/* The child is not counted: the outer iteration does not wait for it. */
#define DRAINED(p, s) (OUT(p, s).left == 0 || (OUT(p, s).left == 1 && !(OUT(p, s).fired & CHILD)))
#else
#define DRAINED(p, s) (OUT(p, s).left == 0)
#endif
#define RETIRE_OUTER(p, s) \
  :: d_step { !over[p] && OUT(p, s).iter == oldest[p] && DRAINED(p, s) && entered[p] -> \
              retire_outer(p) }
#define RETIRE(p, x, s) \
  :: d_step { X(p, x).used && RECORD(p, x, s).iter == X(p, x).oldest && \
              RECORD(p, x, s).left == 0 -> retire(p, x) }

#define LEADER_OUTER(s) \
  :: atomic { READY_OUTER(L, s, PRED, MERGE) -> \
       if \
       :: OUT(L, s).iter < NO -> OUT(L, s).pred = LIVE \
       :: OUT(L, s).pred = FALSE \
       fi; \
       fire_outer(L, s, PRED) } \
  :: d_step { READY_OUTER(L, s, SEND, PRED) && OUT(L, s).iter <= granted_o -> \
       assert(net_o[OUT(L, s).iter] == NONE); \
       net_o[OUT(L, s).iter] = OUT(L, s).pred; \
       buffered_o++; \
       assert(buffered_o <= R); \
       fire_outer(L, s, SEND) } \
  :: d_step { READY_OUTER(L, s, ENTER, PRED) -> \
       reach_child(L, s); \
       if \
       :: OUT(L, s).pred == LIVE -> start(L, at, 0, LIVE) \
       :: else -> start(L, at, 0, DEAD) \
       fi; \
       at = 0; \
       fire_outer(L, s, ENTER) } \
  :: d_step { READY_OUTER(L, s, NEXT, PRED) && OUT(L, s).exit != NONE -> \
       fire_outer(L, s, NEXT); \
       if \
       :: OUT(L, s).pred == LIVE && OUT(L, s).exit == LIVE -> next_outer(L, s) \
       /* an inner loop that was entered gives a live value */ \
       :: else -> assert(OUT(L, s).pred != LIVE) \
       fi } \
  RETIRE_OUTER(L, s)

#define LEADER(x, s) \
  :: atomic { READY(L, x, s, PRED, MERGE) -> \
       if \
       :: RECORD(L, x, s).merge == LIVE && RECORD(L, x, s).iter < NI -> \
          RECORD(L, x, s).pred = LIVE \
       :: RECORD(L, x, s).merge == LIVE -> RECORD(L, x, s).pred = FALSE \
       :: RECORD(L, x, s).merge == DEAD -> RECORD(L, x, s).pred = DEAD \
       fi; \
       fire(L, x, s, PRED) } \
  NO_PREFIX(L, x, s) \
  :: d_step { READY(L, x, s, SEND, PRED) && MAY_SEND(L, x, s) -> \
       assert(net_p[AT(L, x, s)] == NONE); \
       net_p[AT(L, x, s)] = RECORD(L, x, s).pred; \
       buffered_p++; \
       assert(buffered_p <= R * R); \
       fire(L, x, s, SEND) } \
  :: d_step { READY(L, x, s, RECV, MERGE) && RECORD(L, x, s).in != NONE -> \
       RECORD(L, x, s).data = RECORD(L, x, s).in; \
       RECORD(L, x, s).in = NONE; \
       buffered_r--; \
       fire(L, x, s, RECV) } \
  :: d_step { READY(L, x, s, NEXT, PRED | RECV) -> \
       fire(L, x, s, NEXT); \
       if \
       :: RECORD(L, x, s).pred == LIVE && RECORD(L, x, s).data == LIVE -> next(L, x, s) \
       :: else -> assert(RECORD(L, x, s).pred != LIVE) \
       fi } \
  :: d_step { READY(L, x, s, EXIT, PRED) -> \
       if \
       :: RECORD(L, x, s).pred == FALSE -> \
            assert(OUT(L, X(L, x).outer).iter == X(L, x).path && \
                   OUT(L, X(L, x).outer).exit == NONE); \
            OUT(L, X(L, x).outer).exit = LIVE; \
            X(L, x).exited = 1 \
       :: else \
       fi; \
       fire(L, x, s, EXIT) } \
  RETIRE(L, x, s)

#define FOLLOWER_OUTER(s) \
  :: d_step { READY_OUTER(F, s, PRED, MERGE) && OUT(F, s).in != NONE -> \
       OUT(F, s).pred = OUT(F, s).in; \
       OUT(F, s).in = NONE; \
       buffered_o--; \
       fire_outer(F, s, PRED) } \
  :: d_step { READY_OUTER(F, s, ENTER, MERGE) -> \
       reach_child(F, s); start(F, at, 0, LIVE); at = 0; fire_outer(F, s, ENTER) } \
  :: d_step { READY_OUTER(F, s, NEXT, PRED) -> \
       fire_outer(F, s, NEXT); \
       if \
       :: OUT(F, s).pred == LIVE -> next_outer(F, s) \
       :: else \
       fi } \
  RETIRE_OUTER(F, s)

#define FOLLOWER(x, s) \
  :: d_step { READY(F, x, s, PRED, MERGE) && RECORD(F, x, s).in != NONE -> \
       RECORD(F, x, s).pred = RECORD(F, x, s).in; \
       RECORD(F, x, s).in = NONE; \
       buffered_p--; \
       fire(F, x, s, PRED) } \
  :: d_step { READY(F, x, s, NEXT, PRED) -> \
       fire(F, x, s, NEXT); \
       if \
       :: RECORD(F, x, s).pred == LIVE -> next(F, x, s) \
       :: else \
       fi } \
  NO_PREFIX(F, x, s) \
  :: d_step { READY(F, x, s, SEND, PRED) && MAY_SEND(F, x, s) -> \
       assert(net_r[AT(F, x, s)] == NONE); \
       net_r[AT(F, x, s)] = (RECORD(F, x, s).pred == LIVE -> LIVE : DEAD); \
       buffered_r++; \
       assert(buffered_r <= R * R); \
       fire(F, x, s, SEND) } \
  RETIRE(F, x, s)

#define FLYING(cell) (cell != NONE && cell != USED)
#define TOKEN_O(i) \
  :: d_step { FLYING(net_o[i]) -> \
       assert(!over[F] && OUT(F, (i) % R).iter == (i) && OUT(F, (i) % R).in == NONE); \
       OUT(F, (i) % R).in = net_o[i]; \
       net_o[i] = USED }
#define TOKEN_P(i, j) :: d_step { FLYING(net_p[PATH(i, j)]) -> arrive(F, i, j, net_p[PATH(i, j)]) }
#define TOKEN_R(i, j) :: d_step { FLYING(net_r[PATH(i, j)]) -> arrive(L, i, j, net_r[PATH(i, j)]) }
#define GRANT_P(i, j) :: d_step { grant_p[PATH(i, j)] -> grant_p[PATH(i, j)] = 0; hear(L, i, j) }
#define GRANT_R(i, j) :: d_step { grant_r[PATH(i, j)] -> grant_r[PATH(i, j)] = 0; hear(F, i, j) }
#define RAISE(what, n) if :: (n) > what -> what = n :: else fi
#define GRANT_O(i) :: d_step { grant_o[i] -> grant_o[i] = 0; RAISE(granted_o, i) }
#define PREFIX_P(i) :: d_step { prefix_p[i] -> prefix_p[i] = 0; RAISE(prefix[L], i) }
#define PREFIX_R(i) :: d_step { prefix_r[i] -> prefix_r[i] = 0; RAISE(prefix[F], i) }

#if NI == 1
#define EVERY_INNER(Y, i) Y(i, 0) Y(i, 1)
#elif NI == 2
#define EVERY_INNER(Y, i) Y(i, 0) Y(i, 1) Y(i, 2)
#endif
#define OVER (over[L] && over[F])

/* The steps of a partition, and of the network, are shared out over processes. This only changes
 * the size of the verifier, because a step is indivisible. */
proctype leader_outer(byte s) {
  byte to, at; /* an iteration and a slot, within a step */
end:
  do
  LEADER_OUTER(s)
  od
}

proctype leader(byte x) {
  byte to, at;
end:
  do
  LEADER(x, 0)
  LEADER(x, 1)
  od
}

proctype follower_outer(byte s) {
  byte to, at;
end:
  do
  FOLLOWER_OUTER(s)
  od
}

proctype follower(byte x) {
  byte to, at;
end:
  do
  FOLLOWER(x, 0)
  FOLLOWER(x, 1)
  od
}

proctype network(byte i) {
  byte at;
end:
  do
  :: d_step { i < 2 && !entered[i] -> entered[i] = 1; start_outer(i, 0) }
  TOKEN_O(i)
  GRANT_O(i)
  PREFIX_P(i)
  PREFIX_R(i)
  EVERY_INNER(TOKEN_P, i)
  EVERY_INNER(TOKEN_R, i)
  EVERY_INNER(GRANT_P, i)
  EVERY_INNER(GRANT_R, i)
  od
}

init {
  byte i, p;
  atomic {
    do
    :: p < 2 ->
      bind_outer(p, 0);
      bind_outer(p, 1);
      do
      :: i < R -> bind(p, i, 0); bind(p, i, 1); i++
      :: else -> i = 0; break
      od;
      prefix[p] = K;
      p++
    :: else -> p = 0; break
    od;
    granted_o = K;
    do
    :: i < R -> run leader_outer(i); run leader(i); run follower_outer(i); run follower(i); i++
    :: else -> i = 0; break
    od;
    do
    :: i <= NO -> run network(i); i++
    :: else -> i = 0; break
    od
  }
  d_step {
    OVER -> assert(last[L] == last[F]);
    assert(buffered_o + buffered_p + buffered_r == 0);
    do
    :: i <= NO ->
      /* in each outer iteration the inner loop ran, if only dead; every token was sent and used */
      assert(net_o[i] == (i <= last[L] -> USED : NONE));
      assert(net_p[PATH(i, 0)] == net_o[i] && net_r[PATH(i, 0)] == net_o[i]);
      i++
    :: else -> i = 0; break
    od;
    do
    :: i < (NO + 1) * (NI + 1) ->
      assert(net_p[i] == net_r[i] && !FLYING(net_p[i]));
      i++
    :: else -> i = 0; break
    od;
    do /* all inner instances are back in their free lists */
    :: i < 2 * R -> assert(!inst[i].used); i++
    :: else -> i = 0; break
    od
  }
}

#ifdef LIVENESS
ltl finishes { <> OVER }
#endif
