#include <troupe/devices/device/attr.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace troupe::detail {
namespace {

template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;

}  // namespace

std::string text_of(const AttrValue& value) {
  return std::visit(Overload{
                        [](bool b) { return std::string(b ? "true" : "false"); },
                        [](std::int64_t i) { return std::to_string(i); },
                        [](double d) { return fmt::format("{:g}", d); },
                        [](const std::string& s) { return '"' + s + '"'; },
                        [](DType t) { return std::string(name_of(t)); },
                        [](const Shape& s) { return s.text(); },
                        [](const std::vector<std::int64_t>& v) {
                          std::string out = "[";
                          for (std::size_t i = 0; i < v.size(); ++i)
                            out += (i ? ", " : "") + std::to_string(v[i]);
                          return out + "]";
                        },
                        [](const Tensor& t) { return t.text(4); },
                        [](const std::shared_ptr<const AttrObject>& o) {
                          return o ? o->text() : std::string("null");
                        },
                    },
                    value);
}

bool equal(const AttrValue& a, const AttrValue& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&]<class T>(const T& x) {
        const T& y = std::get<T>(b);
        if constexpr (std::is_same_v<T, Tensor>) return identical(x, y);
        else return x == y;
      },
      a);
}

Attrs::Attrs(std::initializer_list<Entry> entries) {
  std::vector<Entry> sorted(entries);
  std::sort(sorted.begin(), sorted.end(),
            [](const Entry& a, const Entry& b) { return a.first < b.first; });
  if (!sorted.empty()) entries_ = std::make_shared<const std::vector<Entry>>(std::move(sorted));
}

const AttrValue* Attrs::find(std::string_view name) const {
  if (!entries_) return nullptr;
  for (const Entry& e : *entries_)
    if (e.first == name) return &e.second;
  return nullptr;
}

void Attrs::set(std::string_view name, AttrValue value) {
  std::vector<Entry> changed;
  changed.reserve(entries().size() + 1);
  changed.assign(entries().begin(), entries().end());
  auto at = std::lower_bound(changed.begin(), changed.end(), name,
                             [](const Entry& e, std::string_view n) { return e.first < n; });
  if (at != changed.end() && at->first == name) at->second = std::move(value);
  else changed.insert(at, Entry(std::string(name), std::move(value)));
  entries_ = std::make_shared<const std::vector<Entry>>(std::move(changed));
}

const std::vector<Attrs::Entry>& Attrs::entries() const {
  static const std::vector<Entry> none;
  return entries_ ? *entries_ : none;
}

bool operator==(const Attrs& a, const Attrs& b) {
  if (a.entries_ == b.entries_) return true;
  const auto &x = a.entries(), &y = b.entries();
  return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [](const Attrs::Entry& p, const Attrs::Entry& q) {
                      return p.first == q.first && equal(p.second, q.second);
                    });
}

std::string Attrs::text() const {
  std::string out;
  for (const Entry& e : entries())
    out += (out.empty() ? "" : ", ") + e.first + "=" + text_of(e.second);
  return out;
}

void Attrs::missing(std::string_view name) const {
  throw Error(Code::internal,
              fmt::format("attribute '{}' is missing or of another type in {{{}}}", name, text()));
}

}  // namespace troupe::detail
