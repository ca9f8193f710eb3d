/* The wake-up of the worker pool (devices/threads/worker_pool.hpp, .cpp, run_ring.hpp): which
 * worker parks, and which wakes another.
 *
 * The letters W1, W2, S1, S2, F1, F2 are those of Note [Waking] in devices/NOTES.md. One step here
 * is one sequentially consistent operation there, or one critical section. Memory is taken as
 * sequentially consistent, as the Note argues for the operations that matter. A look takes as many
 * steps as there are rings.
 *
 *   outside thread            worker
 *   inject, inject, ...       next: own ring, shared queue ─► execute (pushes children)
 *                             search: others' rings, shared queue ─► leave_search ─► execute
 *                             nothing: park W1, W2, sleep ─► searching again when notified or,
 *                             for the watcher, after its millisecond
 *
 * A job pushes up to two children, decided freely. WAITS: the first job does not end before a job
 * that it pushed, alone, into its own ring has run: only the watcher can bring that about.
 * ANY_WAITS: any job may wait so, as long as not all workers do at once.
 * STOP: the destructor runs, too; not with the above, as workers then leave beside one that waits.
 * CALLS: a caller stands in for an idle worker so many times (class CallerWorker): it takes a
 * parked worker's slot, or requests a searching one's, pushes a job, runs as many jobs as it likes,
 * and gives the slot back. CALLERS: the number of callers, each CALLS times.
 */
#ifndef W
#define W 2
#endif
#ifndef OUTSIDE
#define OUTSIDE 2 /* jobs from the outside thread */
#endif
#ifndef CHILDREN
#define CHILDREN 2 /* jobs that jobs push, in all */
#endif
#ifndef CALLS
#define CALLS 0
#endif
#ifndef CALLERS
#define CALLERS 1
#endif
#define CAPACITY 2 /* size of a ring; a third job overflows to the shared queue */
#define NOBODY W

byte injected; /* length of the shared queue; written under its mutex */
byte ring[W];
/* by thief, victim: the victim has finished no job since the thief saw it with a lone one */
bit sighted[W * W];
byte searching, nparked; /* state_, one word */
byte order[W]; /* parked_, by position; the last is woken first */
bit notified[W];
byte watcher = NOBODY;
bit stopping;
#define ANYBODY (W + 1)
byte wanted = NOBODY; /* `ANYBODY`: a caller asks for a slot; else the worker that lends its own */
bit lent[W];          /* the caller acts as this worker; a ghost */
byte calls = CALLS * CALLERS; /* to come, or under way */

byte children = CHILDREN; /* may still be pushed */
bit waited;    /* WAITS: a job has begun that waits for its child */
byte waiting;  /* ANY_WAITS: number of such jobs */
bit gone[W];   /* threads that have ended */

/* Ghosts */
bit computing[W], asleep[W];
byte submitting; /* number of submitters between their push and their look */
byte made, made_outside, done;

#define VISIBLE2 (injected > 0 || ring[0] > 1 || ring[1] > 1)
#if W == 3
#define VISIBLE (VISIBLE2 || ring[2] > 1)
#else
#define VISIBLE VISIBLE2
#endif

/* wake_one: under idle_mutex_ all but the signal. */
inline wake_one() {
  chosen = NOBODY;
  atomic {
    if
    :: nparked == 0
    :: else ->
      if
      :: order[nparked - 1] == watcher && nparked > 1 ->
        chosen = order[0]; order[0] = order[nparked - 1]
      :: else -> chosen = order[nparked - 1]
      fi;
      if :: chosen == watcher -> watcher = NOBODY :: else fi;
      order[nparked - 1] = 0;
      nparked--;
      searching++
    fi
  }
  if
  :: chosen != NOBODY -> atomic { notified[chosen] = 1; chosen = NOBODY }
  :: else
  fi
}

/* S2 */
inline wake_if_asleep() {
  if
  :: nparked > 0 && searching == 0 -> wake_one()
  :: else
  fi
}

/* S1: under inject_mutex_ */
inline inject() {
#ifdef FAULT_WAKE_FIRST
  wake_if_asleep();
  injected++
#else
  injected++;
  wake_if_asleep()
#endif
}

inline take_injected() {
  atomic { if :: injected > 0 -> injected--; got = 1 :: else fi }
}

/* work_visible(): the shared queue, then ring after ring, one look each. */
inline look() {
  atomic { seen = 0; if :: injected > 0 -> seen = 1 :: else fi };
  i = 0;
  do
  :: i < W && !seen -> atomic { if :: ring[i] > 1 -> seen = 1 :: else fi; i++ }
  :: else -> i = 0; break
  od
}

/* A parked worker takes itself back; under idle_mutex_. Not there: a waker was faster. */
inline unpark() {
  atomic {
    back = 0;
    i = 0;
    do
    :: i < nparked && !back -> if :: order[i] == me -> back = 1 :: else -> i++ fi
    :: else -> break
    od;
    if
    :: back ->
      do
      :: i + 1 < nparked -> order[i] = order[i + 1]; i++
      :: else -> break
      od;
      order[nparked - 1] = 0;
      nparked--;
      searching++;
      if :: watcher == me -> watcher = NOBODY :: else fi
    :: else
    fi;
    i = 0
  }
}

inline park() {
  if
  :: atomic { wanted == ANYBODY -> /* lend */
      notified[me] = 0; wanted = me; lent[me] = 1; watching = 0; back = 0 }
  :: atomic { /* W1: under idle_mutex_ */
      notified[me] = 0;
      order[nparked] = me;
      nparked++;
      watching = 0;
#ifndef FAULT_NO_WATCHER
      if :: watcher == NOBODY && nparked < W -> watching = 1; watcher = me :: else fi;
#endif
      searching--
    }
#ifdef FAULT_NO_SECOND_LOOK
    seen = 0;
#else
    look(); /* W2 */
#endif
    back = 0;
    if
    :: seen || stopping -> unpark()
    :: else
    fi
  fi;
  if
  :: back -> atomic { back = 0; watching = 0; seen = 0 }
  :: else ->
    atomic { seen = 0; asleep[me] = 1 };
endasleep: /* a worker of an idle pool may stay here */
    do
    :: atomic { notified[me] -> asleep[me] = 0; watching = 0; break }
    :: atomic { !notified[me] && watching ->
        asleep[me] = 0; watching = 0 }; /* its millisecond is over */
      unpark();
      if
      :: back -> atomic { back = 0; break }
      :: else -> asleep[me] = 1 /* the notification is on the way */
      fi
    od
  fi
}

/* A thief that found the owner of a lone job with the same count of finished jobs twice, some
 * microseconds apart, takes that job too. */
inline steal() {
  do
  :: atomic { v < W && !got ->
      if
      :: v != me && ring[v] > 1 -> ring[v]--; got = 1
      :: v != me && ring[v] == 1 && sighted[me * W + v] -> ring[v]--; got = 1
      :: v != me && ring[v] == 1 && !sighted[me * W + v] -> sighted[me * W + v] = 1
      :: else
      fi;
      v++ }
  :: else -> v = 0; break
  od
}

/* F1, F2 */
inline leave_search() {
  atomic { searching--; last = (searching == 0 && nparked > 0) };
#ifndef FAULT_NO_LAST_LOOK
  if
  :: last ->
    last = 0;
    if
#ifndef FAULT_NO_WATCH_LEFT
    :: watcher == NOBODY -> seen = 1
#endif
    :: else -> look()
    fi;
    if
    :: seen -> seen = 0; wake_if_asleep()
    :: else
    fi
  :: else
  fi
#else
  last = 0
#endif
}

/* A job: pushes children, each of which may wake a worker, then ends. `computing` is off while it
 * is between a push and its look at the sleeping workers. */
inline execute() {
  computing[me] = 1;
#if defined(ANY_WAITS)
  if
  :: atomic { children > 0 && waiting < W - 1 ->
      children--; waiting++; assert(ring[me] == 0); made++; ring[me] = 1 };
    atomic { ring[me] == 0 -> waiting-- }
  :: true
  fi;
#elif defined(WAITS)
  if
  :: atomic { !waited ->
      waited = 1; assert(ring[me] == 0); made++; ring[me] = 1 }; /* alone: it wakes no worker */
    ring[me] == 0 /* until another has taken it */
  :: else
  fi;
#else
  do
  :: atomic { children > 0 && ring[me] < CAPACITY ->
      computing[me] = 0; children--; made++; ring[me]++; pushed = ring[me] };
    if
    :: pushed > 1 -> pushed = 0; wake_if_asleep()
    :: else -> pushed = 0
    fi;
    computing[me] = 1
  :: atomic { children > 0 && ring[me] == CAPACITY -> computing[me] = 0; children--; made++ };
    inject();
    computing[me] = 1
  :: break
  od;
#endif
  atomic {
    got = 0; computing[me] = 0; done++;
    do :: i < W -> sighted[i * W + me] = 0; i++ :: else -> i = 0; break od
  }
}

proctype worker(byte me) {
  byte i, v, chosen = NOBODY, pushed;
  bit got, seen, back, watching, last;
  do
  :: /* next */
    atomic { if :: ring[me] > 0 -> ring[me]--; got = 1 :: else fi };
    if
    :: got
    :: else -> take_injected()
    fi;
    if
    :: got
    :: else -> /* search */
      searching++;
      do
      :: atomic { /* a caller worker has left it */
          if :: ring[me] > 0 -> ring[me]--; got = 1 :: else fi };
        if
        :: !got -> steal()
        :: else
        fi;
        if
        :: !got -> take_injected()
        :: else
        fi;
        if
        :: got -> leave_search(); break
        :: else /* look again: the time is not over */
        :: !got -> /* it is */
          if
          :: stopping ->
            look();
            if
            :: !seen -> atomic { searching--; gone[me] = 1 }; goto left
            :: else -> seen = 0
            fi
          :: else
          fi;
          park()
        fi
      od
    fi;
    execute()
  od;
left:
  skip
}

/* The destructor of StandIn, and give_back. */
inline give_back() {
  atomic { searching++; submitting++ }; /* on its way until its look, like a submitter */
  stay = 0;
#ifdef FAULT_COUNTS_FIRST
  others = (searching > 1);
#endif
  atomic { /* under idle_mutex_, but the look at its own ring */
#ifndef FAULT_COUNTS_FIRST
    others = (searching > 1);
#endif
    if
#ifndef FAULT_FORGETS_RING
    :: ring[me] > 0
#endif
    :: else ->
      if
#ifndef FAULT_NO_WATCH_AFTER
      :: watcher == NOBODY && nparked + 1 < W && !others
#endif
      :: else -> order[nparked] = me; nparked++; searching--; stay = 1; lent[me] = 0 /* W1 */
      fi
    fi;
    others = 0
  }
  if
  :: stay ->
#ifndef FAULT_NO_LOOK_AFTER
    look(); /* W2 */
    if :: seen -> seen = 0; wake_if_asleep() :: else fi
#endif
  :: else -> atomic { notified[me] = 1; lent[me] = 0 }
  fi;
  atomic { stay = 0; submitting-- }
}

proctype caller() {
  byte me = NOBODY, i, v, chosen = NOBODY, pushed;
  bit got, seen, back, last, stay, others;
  byte left = CALLS;
  do
  :: left > 0 ->
    atomic { /* take_parked(true): any of them, for the core it sleeps on is its own affair */
      if
      :: nparked > 0 ->
        do :: i + 1 < nparked -> i++ :: break od;
        me = order[i];
        order[i] = order[nparked - 1]; order[nparked - 1] = 0; i = 0;
        nparked--; searching++; lent[me] = 1;
        if :: me == watcher -> watcher = NOBODY :: else fi
      :: else
      fi
    };
    if
    :: me == NOBODY && searching > 0 ->
      atomic { /* no other caller asks */
        if :: wanted == NOBODY -> wanted = ANYBODY; back = 1 :: else fi };
      if
      :: back && wanted != ANYBODY
      :: true
      fi;
      atomic {
        if
        :: back && wanted == ANYBODY -> wanted = NOBODY
        :: back && wanted != ANYBODY -> me = wanted; wanted = NOBODY
        :: else
        fi;
        back = 0
      }
    :: else
    fi;
    if
    :: me == NOBODY -> /* no worker is idle: as any submitter */
      atomic { submitting++; made++ };
      inject();
      submitting--
    :: else ->
      leave_search();
      atomic { assert(ring[me] == 0); made++; ring[me] = 1 };
      do
      :: atomic { if :: ring[me] > 0 -> ring[me]--; got = 1 :: else fi };
        if :: !got -> take_injected() :: else fi;
        if
        :: got -> execute()
        :: else ->
          searching++;
          steal();
          if :: !got -> take_injected() :: else fi;
          leave_search();
          if
          :: got -> execute()
          :: else -> break
          fi
        fi
      :: break
      od;
      give_back();
      me = NOBODY
    fi;
    atomic { left--; calls-- }
  :: else -> break
  od
}

/* No worker is about to do anything: each sleeps unnotified or computes. */
#define SLEEPS(w) (asleep[w] && !notified[w] && !lent[w])
#define RESTS(w) (SLEEPS(w) || computing[w])
#if W == 2
#define ALL_REST (RESTS(0) && RESTS(1))
#define ONE_SLEEPS (SLEEPS(0) || SLEEPS(1))
#define ALL_GONE (gone[0] && gone[1])
#else
#define ALL_REST (RESTS(0) && RESTS(1) && RESTS(2))
#define ONE_SLEEPS (SLEEPS(0) || SLEEPS(1) || SLEEPS(2))
#define ALL_GONE (gone[0] && gone[1] && gone[2])
#endif

#ifdef NEVER_PARKED
#define LOST (SLEEPS(0) && SLEEPS(1))
#else
#define LOST (!submitting && ALL_REST && ONE_SLEEPS && VISIBLE)
#endif
active proctype invariant2() {
end:
  atomic { LOST -> assert(false) }
}

init {
  byte i, chosen = NOBODY;
  atomic {
    do
    :: i < W -> run worker(i); i++
    :: else -> i = 0; break
    od
  }
#if CALLS
  atomic {
    do
    :: i < CALLERS -> run caller(); i++
    :: else -> i = 0; break
    od
  }
#endif
  do
  :: made_outside < OUTSIDE ->
    atomic { submitting++; made_outside++; made++ };
    inject();
    submitting--
  :: else -> break
  od;
#ifdef STOP
  calls == 0; /* no destruction under a caller */
  atomic { stopping = 1; submitting++ };
  do
  :: nparked > 0 -> wake_one()
  :: else -> break
  od;
  submitting--;
  ALL_GONE;
#else
  timeout; /* nothing moves any more */
#endif
  assert(done == made);
  assert(made >= OUTSIDE + CALLS * CALLERS)
}

#ifdef LIVENESS
/* Every job is run in the end. */
ltl runs { <> (made_outside == OUTSIDE && calls == 0 && done == made) }
#endif
