// Signals stay out of the kernels. oneDNN's generated products move the stack pointer into their
// own buffer while they compute. If a signal handler runs there (an interrupt from the keyboard, a
// profiler's timer), the kernel of the operating system writes the handler's frame over the heap
// (measured with Debian's 2.7.3: the process dies within a second of a 1 ms timer). So worker
// threads take no signals at all, and other threads none while they are inside the library.
#pragma once

#include <csignal>

namespace troupe {

/// This thread handles no signal while this object lives. Signals sent to the thread meanwhile are
/// delivered afterwards, signals to the process go to another thread. Signals that the thread
/// itself causes (SIGSEGV, SIGFPE, ...) are not blocked.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    if (!blocked_for_good_) pthread_sigmask(SIG_BLOCK, &blocked(), &before_);
  }
  ~SignalsBlocked() {
    if (!blocked_for_good_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

  /// For a thread of our own, until it ends: later objects of this class then cost nothing.
  static void for_good() {
    pthread_sigmask(SIG_BLOCK, &blocked(), nullptr);
    blocked_for_good_ = true;
  }

 private:
  static const sigset_t& blocked() {
    static const sigset_t set = [] {
      sigset_t s;
      sigfillset(&s);
      for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
        sigdelset(&s, own);
      return s;
    }();
    return set;
  }

  static inline constinit thread_local bool blocked_for_good_ = false;
  sigset_t before_;
};

}  // namespace troupe
