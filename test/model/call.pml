/* Calls of functions over three partitions: slots, numbers, messages that begin and end parts, and
 * the order in which partitions leave.
 *
 *   spin -a -DW=1 call.pml && gcc -O2 -DSAFETY -o pan pan.c && ./pan  (see scripts/checks/model.sh)
 *
 * OUTER calls from outside of functions, each with INNER calls inside. A function's parts are in
 * all partitions; a value goes round: home ─► first ─► second ─► home. The inner calls' home is the
 * outer ones' first other partition (SAME_HOME: their home), and they fire there when the value has
 * come. Messages in flight lie in sets, so any overtakes any other. A partition is an actor: its
 * steps are indivisible and come in any order.
 *
 * W slots a depth. POISON: the run may fail at any time, and a call that has not begun then fires
 * dead. FAULT_... are planted; NEVER_... claim that something that should happen never does:
 * README.md.
 */
#ifndef W
#define W 1
#endif
#ifndef OUTER
#define OUTER 2
#endif
#ifndef INNER
#define INNER 2
#endif
#define CALLS (OUTER + OUTER * INNER)
#define DEPTH(c) ((c) < OUTER -> 0 : 1)
#define AROUND(c) (((c) - OUTER) / INNER)
#define G (OUTER * INNER) /* calls of a depth, at most */
#define PLACES (2 * W)

/* The partition of each part of a call at each depth. */
#ifdef SAME_HOME
#define HOME(d) 0
#else
#define HOME(d) (d)
#endif
#define FIRST(d) ((HOME(d) + 1) % 3)
#define SECOND(d) ((HOME(d) + 2) % 3)
#ifdef FAULT_PLACES_FOR_ALL
#define PLACE(d, k) (k)
#else
#define PLACE(d, k) ((d) * W + (k))
#endif

#define NOT_YET 0
#define KEPT 1 /* it has fired, and there is no slot */
#define OPEN 2
#define OVER 3

/* Messages in flight, by the number of their call. */
#define BEGINS_1 0
#define BEGINS_2 1
#define X 2
#define Y 3
#define Z 4
#define ENDED_1 5
#define ENDED_2 6
#define KINDS 7
#define NUMBER(l, g) ((l) * G + (g))
#define NET(what, n) net[(what) * PLACES * G + (n)]

bit net[KINDS * PLACES * G];
byte state[CALLS];
byte held_by[PLACES];      /* the call that is open in a slot, and one more; as its home knows */
byte depth_of[PLACES];     /* ghost, but where PLACE says it */
byte ended[3 * PLACES];    /* by partition and slot: calls that have ended there */
bit open[3 * PLACES];
bit came[3 * PLACES];      /* the value; premature, where the part is not open */
bit told[2 * PLACES];      /* at the home: which parts have ended */
byte over_said;            /* 1: on their way to both others, as bits from there on */
bit over_to[3];
bit left[3];
bit poisoned;
bit kept_once;

#define AT(p, l) ((p) * PLACES + (l))

inline send(what, n) {
  assert(!NET(what, n));
  NET(what, n) = 1
}

/* The part that has the value gives it on. */
inline give_on(p, l, g) {
  if
  :: open[AT(p, l)] && came[AT(p, l)] ->
     if
     :: p == FIRST(depth_of[l]) -> send(Y, NUMBER(l, g))
     :: p == SECOND(depth_of[l]) -> send(Z, NUMBER(l, g))
     fi
  :: else -> skip
  fi
}

inline take(what, l, g) {
  NET(what, NUMBER(l, g)) = 0
}

inline begin(p, l, g) {
  assert(!left[p]);
  assert(ended[AT(p, l)] == (g) && !open[AT(p, l)]); /* the slot is free here too */
  open[AT(p, l)] = 1;
  give_on(p, l, g)
}

inline value(p, l, g) {
  assert(!left[p]);
  assert(ended[AT(p, l)] == (g)); /* it is open, or is the next one */
#ifdef NEVER_EARLY
  assert(open[AT(p, l)]);
#endif
  assert(!came[AT(p, l)]);
  came[AT(p, l)] = 1;
  give_on(p, l, g)
}

inline end_part(p, l, what) {
  open[AT(p, l)] = 0;
  came[AT(p, l)] = 0;
  ended[AT(p, l)] = ended[AT(p, l)] + 1;
  send(what, NUMBER(l, ended[AT(p, l)] - 1))
}

/* A Call fires, or fires again. */
inline call(c) {
  d = DEPTH(c);
  k = 0;
  do
  :: k < W && held_by[PLACE(d, k)] -> k++
  :: else -> break
  od;
  if
  :: poisoned -> state[c] = OVER
  :: !poisoned && k == W -> state[c] = KEPT; kept_once = 1
#ifdef NEVER_KEPT
     ; assert(false)
#endif
  :: !poisoned && k < W ->
     k = PLACE(d, k);
     depth_of[k] = d;
     state[c] = OPEN;
     held_by[k] = c + 1;
     open[AT(HOME(d), k)] = 1;
     told[k] = 0;
     told[PLACES + k] = 0;
     send(BEGINS_1, NUMBER(k, ended[AT(HOME(d), k)]));
     send(BEGINS_2, NUMBER(k, ended[AT(HOME(d), k)]));
     send(X, NUMBER(k, ended[AT(HOME(d), k)]))
  fi;
  d = 0;
  k = 0
}

#define HAS_PLACE(d) (!held_by[PLACE(d, 0)] || !held_by[PLACE(d, W - 1)])
#if INNER == 1
#define INSIDE_OVER(c) (state[OUTER + (c) * INNER] == OVER)
#else
#define INSIDE_OVER(c) \
  (state[OUTER + (c) * INNER] == OVER && state[OUTER + (c) * INNER + 1] == OVER)
#endif
/* The partition p has no call to make inside of the call in slot l, or they are over. */
#define NO_MORE_INSIDE(p, l) (depth_of[l] == 1 || p != HOME(1) || INSIDE_OVER(held_by[l] - 1))
/* May inner call c fire? The value has come to where it is made. */
#ifdef SAME_HOME
#define MAY_FIRE(c, l) (held_by[l] == AROUND(c) + 1)
#else
#define MAY_FIRE(c, l) (held_by[l] == AROUND(c) + 1 && open[AT(1, l)] && came[AT(1, l)])
#endif
#if W == 1
#define MAY_FIRE_INSIDE(c) MAY_FIRE(c, 0)
#else
#define MAY_FIRE_INSIDE(c) (MAY_FIRE(c, 0) || MAY_FIRE(c, 1))
#endif

#define FIRE_OUTER(c) :: d_step { state[c] == NOT_YET -> call(c) }
#define FIRE_INNER(c) \
  :: d_step { state[c] == NOT_YET && state[AROUND(c)] == OPEN && MAY_FIRE_INSIDE(c) -> call(c) }
#define FIRE_AGAIN(c) :: d_step { state[c] == KEPT && (poisoned || HAS_PLACE(DEPTH(c))) -> call(c) }

#define COMES(l, g) \
  :: d_step { NET(BEGINS_1, NUMBER(l, g)) -> \
      take(BEGINS_1, l, g); begin(FIRST(depth_of[l]), l, g) } \
  :: d_step { NET(BEGINS_2, NUMBER(l, g)) -> \
      take(BEGINS_2, l, g); begin(SECOND(depth_of[l]), l, g) } \
  :: d_step { NET(X, NUMBER(l, g)) -> take(X, l, g); value(FIRST(depth_of[l]), l, g) } \
  :: d_step { NET(Y, NUMBER(l, g)) -> take(Y, l, g); value(SECOND(depth_of[l]), l, g) } \
  :: d_step { NET(Z, NUMBER(l, g)) -> \
      take(Z, l, g); \
      assert(open[AT(HOME(depth_of[l]), l)] && ended[AT(HOME(depth_of[l]), l)] == g); \
      came[AT(HOME(depth_of[l]), l)] = 1 } \
  :: d_step { NET(ENDED_1, NUMBER(l, g)) -> \
      take(ENDED_1, l, g); \
      assert(ended[AT(HOME(depth_of[l]), l)] == g && !told[l]); told[l] = 1 } \
  :: d_step { NET(ENDED_2, NUMBER(l, g)) -> \
      take(ENDED_2, l, g); \
      assert(ended[AT(HOME(depth_of[l]), l)] == g && !told[PLACES + l]); told[PLACES + l] = 1 }

#ifdef FAULT_ENDED_TOO_EARLY
#define HAS_COME(p, l) true
#else
#define HAS_COME(p, l) came[AT(p, l)]
#endif
#define ENDS(l) \
  :: d_step { open[AT(FIRST(depth_of[l]), l)] && came[AT(FIRST(depth_of[l]), l)] && \
              NO_MORE_INSIDE(FIRST(depth_of[l]), l) -> end_part(FIRST(depth_of[l]), l, ENDED_1) } \
  :: d_step { open[AT(SECOND(depth_of[l]), l)] && HAS_COME(SECOND(depth_of[l]), l) && \
              NO_MORE_INSIDE(SECOND(depth_of[l]), l) -> \
              end_part(SECOND(depth_of[l]), l, ENDED_2) } \
  :: d_step { held_by[l] && came[AT(HOME(depth_of[l]), l)] && told[l] && told[PLACES + l] && \
              NO_MORE_INSIDE(HOME(depth_of[l]), l) -> \
       state[held_by[l] - 1] = OVER; \
       held_by[l] = 0; \
       open[AT(HOME(depth_of[l]), l)] = 0; \
       came[AT(HOME(depth_of[l]), l)] = 0; \
       ended[AT(HOME(depth_of[l]), l)] = ended[AT(HOME(depth_of[l]), l)] + 1 }

#ifdef FAULT_OVER_NOT_AWAITED
#define MAY_LEAVE(p) true
#else
#define MAY_LEAVE(p) over_to[p]
#endif

#if OUTER == 1
#define OUTER_OVER (state[0] == OVER)
#else
#define OUTER_OVER (state[0] == OVER && state[1] == OVER)
#endif

active proctype Partitions() {
  byte d, k;
  do
  FIRE_OUTER(0)
  FIRE_AGAIN(0)
#if OUTER == 2
  FIRE_OUTER(1)
  FIRE_AGAIN(1)
#endif
  FIRE_INNER(OUTER)
  FIRE_AGAIN(OUTER)
#if CALLS > OUTER + 1
  FIRE_INNER((OUTER + 1))
  FIRE_AGAIN((OUTER + 1))
#endif
#if CALLS > OUTER + 2
  FIRE_INNER((OUTER + 2))
  FIRE_INNER((OUTER + 3))
  FIRE_AGAIN((OUTER + 2))
  FIRE_AGAIN((OUTER + 3))
#endif
  COMES(0, 0)
  ENDS(0)
  COMES(1, 0)
  ENDS(1)
#if G > 1
  COMES(0, 1)
  COMES(1, 1)
#endif
#if G > 2
  COMES(0, 2)
  COMES(1, 2)
  COMES(0, 3)
  COMES(1, 3)
#endif
#if W == 2
  COMES(2, 0)
  ENDS(2)
  COMES(3, 0)
  ENDS(3)
#if G > 1
  COMES(2, 1)
  COMES(3, 1)
#endif
#if G > 2
  COMES(2, 2)
  COMES(3, 2)
  COMES(2, 3)
  COMES(3, 3)
#endif
#endif
#ifdef POISON
  :: d_step { !poisoned && !left[0] -> poisoned = 1 }
#endif
  :: d_step { !over_said && OUTER_OVER -> over_said = 1; left[0] = 1 }
  :: d_step { over_said && !over_to[1] -> over_to[1] = 1 } /* it comes, at any time */
  :: d_step { over_said && !over_to[2] -> over_to[2] = 1 }
  :: d_step { !left[1] && MAY_LEAVE(1) -> left[1] = 1 }
  :: d_step { !left[2] && MAY_LEAVE(2) -> left[2] = 1 }
  :: left[0] && left[1] && left[2] -> break
  od;
  skip;
  d_step {
    k = 0;
    do
    :: k < PLACES ->
      assert(!held_by[k] && !open[AT(0, k)] && !open[AT(1, k)] && !open[AT(2, k)]); k++
    :: else -> break
    od;
    k = 0;
    do
    :: k < CALLS -> assert(state[k] == OVER || (poisoned && state[AROUND(k)] == OVER)); k++
    :: else -> break
    od;
    k = 0;
    do
    :: k < KINDS * PLACES * G -> assert(!net[k]); k++
    :: else -> break
    od;
    k = 0
  }
}
