#include <troupe/ops/format/safetensors.hpp>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <limits>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/format/crc64.hpp>
#include <troupe/ops/format/disk.hpp>
#include <troupe/ops/format/tensor_image.hpp>

namespace troupe {
namespace {

static_assert(std::endian::native == std::endian::little,
              "elements are written as they lie in memory");

using Json = nlohmann::ordered_json;

constexpr const char* kMetadata = "__metadata__";
constexpr const char* kChecksum = "troupe.crc64";
constexpr const char* kNoChecksum = "0000000000000000";
constexpr std::uint64_t kMaxHeader = 100'000'000;  // the reference implementation's limit

// Falling alignment, in the reference implementation's order.
struct FormatType {
  DType dtype;
  const char* name;
};
constexpr FormatType kTypes[] = {
    {DType::u64, "U64"}, {DType::i64, "I64"},      {DType::f64, "F64"}, {DType::c64, "C64"},
    {DType::f32, "F32"}, {DType::u32, "U32"},      {DType::i32, "I32"}, {DType::bf16, "BF16"},
    {DType::f16, "F16"}, {DType::u16, "U16"},      {DType::i16, "I16"}, {DType::i8, "I8"},
    {DType::u8, "U8"},   {DType::boolean, "BOOL"},
};
// Dtypes of the format that Troupe lacks.
constexpr const char* kForeignTypes[] = {"F8_E4M3", "F8_E5M2", "F8_E8M0",
                                         "F6_E2M3", "F6_E3M2", "F4"};

const FormatType* type_of(DType dtype) {
  auto it = std::find_if(std::begin(kTypes), std::end(kTypes),
                         [&](const FormatType& t) { return t.dtype == dtype; });
  return it == std::end(kTypes) ? nullptr : it;
}

const FormatType* type_named(const std::string& name) {
  auto it = std::find_if(std::begin(kTypes), std::end(kTypes),
                         [&](const FormatType& t) { return name == t.name; });
  return it == std::end(kTypes) ? nullptr : it;
}

// ---- writing

[[noreturn]] void refuse_to_save(const std::string& path, Code code, const std::string& why) {
  throw Error(code, fmt::format("cannot save '{}': {}", path, why));
}

// The tensors in the order of the data.
std::vector<const NamedTensors::value_type*> ordered(const std::string& path,
                                                     const NamedTensors& tensors) {
  std::vector<const NamedTensors::value_type*> order;
  std::set<std::string_view> names;
  for (const auto& entry : tensors) {
    const auto& [name, tensor] = entry;
    auto refuse = [&](const char* why) {
      refuse_to_save(path, Code::invalid_argument, fmt::format("tensor '{}' {}", name, why));
    };
    if (name == kMetadata) refuse("has the name of the format's own entry");
    if (!names.insert(name).second) refuse("is given twice");
    if (!tensor.has_value()) refuse("is empty");
    if (!tensor.is_on_host()) refuse("is not on the host");
    if (tensor.dtype() == DType::string)
      refuse(
          "holds strings, which safetensors does not have; save numbers, or put the strings into "
          "the metadata");
    if (!type_of(tensor.dtype()))
      refuse("is c128, which safetensors does not have; save real and imaginary parts");
    order.push_back(&entry);
  }
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) {
    auto rank = [](const Tensor& t) { return type_of(t.dtype()) - kTypes; };
    return std::pair(rank(a->second), std::string_view(a->first)) <
           std::pair(rank(b->second), std::string_view(b->first));
  });
  return order;
}

std::string header_of(const std::string& path,
                      const std::vector<const NamedTensors::value_type*>& order,
                      const std::map<std::string, std::string>& metadata, bool has_checksum) {
  Json header = Json::object();
  Json strings(metadata);
  if (has_checksum) strings[kChecksum] = kNoChecksum;
  header[kMetadata] = std::move(strings);
  std::uint64_t at = 0;
  for (const auto* entry : order) {
    const auto& [name, tensor] = *entry;
    std::uint64_t end = at + tensor.bytes();
    header[name] =
        Json{{"dtype", type_of(tensor.dtype())->name},
             {"shape", std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end())},
             {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::type_error&) {
    refuse_to_save(path, Code::invalid_argument, "a name or a metadata string is not UTF-8");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kMaxHeader)
    refuse_to_save(path, Code::invalid_argument, "names and metadata take more than 100 MB");
  return text;
}

// Returns the position of the checksum's digits in a header of this writer's; npos if there are
// none.
std::size_t find_checksum(const std::string& header, const std::string& value) {
  std::string entry = fmt::format("\"{}\":\"{}\"", kChecksum, value);
  std::size_t at = header.find(entry);
  return at == std::string::npos ? at : at + entry.size() - 1 - value.size();
}

// ---- reading

[[noreturn]] void lost(const std::string& path, const std::string& why) {
  throw Error(Code::data_loss,
              fmt::format("'{}' is truncated, corrupted or no safetensors file: {}", path, why));
}

// Walks a header before anything is built from it: how deep it nests, and names that occur twice,
// of which a parser would silently keep the last.
class HeaderCheck final : public nlohmann::json_sax<Json> {
 public:
  std::string trouble;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    names_.emplace_back();
    return start();
  }
  bool key(string_t& name) override {
    return names_.back().insert(name).second || fail(fmt::format("'{}' occurs twice", name));
  }
  bool end_object() override {
    names_.pop_back();
    return end();
  }
  bool start_array(std::size_t) override { return start(); }
  bool end_array() override { return end(); }
  bool parse_error(std::size_t at, const std::string&,
                   const nlohmann::detail::exception&) override {
    return fail(fmt::format("its header is no JSON at byte {}", at + 7));
  }

 private:
  // one more than the format needs, for additions of later versions
  static constexpr int kDeepest = 4;
  bool start() { return ++depth_ <= kDeepest || fail("its header nests too deep"); }
  bool end() { return --depth_, true; }
  bool fail(std::string why) {
    if (trouble.empty()) trouble = std::move(why);
    return false;
  }
  std::vector<std::set<std::string>> names_;
  int depth_ = 0;
};

struct Entry {
  std::string name;
  DType dtype;
  Shape shape;
  std::uint64_t begin, end;
};

bool is_count(const Json& j) {
  return j.is_number_unsigned() &&
         j.get<std::uint64_t>() <= std::uint64_t(std::numeric_limits<std::int64_t>::max());
}

class Header {
 public:
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;

  Header(const std::string& path, const std::string& text, std::uint64_t data_bytes)
      : path_(path), data_bytes_(data_bytes) {
    if (text.front() != '{') lost(path_, "its header does not begin with '{'");
    HeaderCheck check;
    if (!Json::sax_parse(text, &check)) lost(path_, check.trouble);
    const Json json = Json::parse(text);
    for (const auto& [name, value] : json.items()) {
      if (name == kMetadata) read_metadata(value);
      else entries.push_back(entry_of(name, value));
    }
    check_layout();
  }

 private:
  void read_metadata(const Json& value) {
    if (!value.is_object()) lost(path_, "its metadata is no JSON object");
    for (const auto& [name, string] : value.items()) {
      if (!string.is_string()) lost(path_, fmt::format("its metadata '{}' is no string", name));
      metadata[name] = string.get<std::string>();
    }
  }

  Entry entry_of(const std::string& name, const Json& value) const {
    auto refuse = [&](const std::string& why) {
      lost(path_, fmt::format("tensor '{}' {}", name, why));
    };
    if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets"))
      refuse("lacks a dtype, a shape or data offsets");
    const Json& shape = value["shape"];
    const Json& offsets = value["data_offsets"];
    if (!value["dtype"].is_string()) refuse("has a dtype that is no string");
    if (!shape.is_array() || !std::all_of(shape.begin(), shape.end(), is_count))
      refuse("has a shape that is no list of extents");
    if (!offsets.is_array() || offsets.size() != 2 || !is_count(offsets[0]) ||
        !is_count(offsets[1]))
      refuse("has data offsets that are no two positions");

    Entry e{name,
            dtype_of_entry(name, value["dtype"].get<std::string>()),
            {},
            offsets[0].get<std::uint64_t>(),
            offsets[1].get<std::uint64_t>()};
    if (e.begin > e.end || e.end > data_bytes_)
      refuse(fmt::format("lies at [{}, {}), but the file holds {} bytes of data", e.begin, e.end,
                         data_bytes_));
    if (shape.size() > Shape::kMaxRank)
      throw Error(Code::unimplemented,
                  fmt::format("'{}': tensor '{}' has {} axes; Troupe has up to {}", path_, name,
                              shape.size(), Shape::kMaxRank));
    std::uint64_t bytes = size_of(e.dtype);
    for (const Json& extent : shape) {
      e.shape.push_back(extent.get<std::int64_t>());
      if (__builtin_mul_overflow(bytes, extent.get<std::uint64_t>(), &bytes) ||
          bytes > std::uint64_t(std::numeric_limits<std::int64_t>::max()))
        refuse("has a shape of more bytes than can be counted");
    }
    if (bytes != e.end - e.begin)
      refuse(fmt::format("is {}{}, which takes {} bytes, but has {}", name_of(e.dtype),
                         e.shape.text(), bytes, e.end - e.begin));
    return e;
  }

  DType dtype_of_entry(const std::string& tensor, const std::string& name) const {
    if (const FormatType* type = type_named(name)) return type->dtype;
    if (std::find(std::begin(kForeignTypes), std::end(kForeignTypes), name) !=
        std::end(kForeignTypes))
      throw Error(
          Code::unimplemented,
          fmt::format(
              "'{}': tensor '{}' is {}, a dtype that Troupe does not have; convert it first", path_,
              tensor, name));
    lost(path_, fmt::format("tensor '{}' has the unknown dtype '{}'", tensor, name));
  }

  // Without gaps, overlaps, or anything after the last.
  void check_layout() {
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::uint64_t at = 0;
    for (const Entry& e : entries) {
      if (e.begin != at)
        lost(path_, fmt::format("tensor '{}' begins at {}, not at {}, where the one before ends",
                                e.name, e.begin, at));
      at = e.end;
    }
    if (at != data_bytes_)
      lost(path_,
           fmt::format("its tensors end at byte {} of the data, which has {}", at, data_bytes_));
  }

  const std::string& path_;
  std::uint64_t data_bytes_;
};

// Reads a file from its beginning on.
class FileCursor {
 public:
  explicit FileCursor(ReadableFile& file) : file_(file) {}
  std::uint64_t size() const { return file_.size(); }
  void read(void* data, std::size_t bytes) {
    file_.read(at_, data, bytes);
    at_ += bytes;
  }

 private:
  ReadableFile& file_;
  std::uint64_t at_ = 0;
};

Tensor read_tensor(FileCursor& file, const std::string& path, const Entry& e) {
  Tensor t = Tensor::empty(e.dtype, e.shape);
  if (t.bytes() > 0) file.read(t.raw_mutable(), t.bytes());
  if (e.dtype == DType::boolean) {
    auto* p = static_cast<const unsigned char*>(t.raw());
    if (std::any_of(p, p + t.bytes(), [](unsigned char b) { return b > 1; }))
      lost(path,
           fmt::format("tensor '{}' is bool, but has an element that is neither 0 nor 1", e.name));
  }
  return t;
}

// The header's text. `file` stands at the data after it.
std::string read_header(FileCursor& file, const std::string& path) {
  std::uint64_t length = 0;
  if (file.size() < 10)
    lost(path, fmt::format("it has {} bytes, too few for a header", file.size()));
  file.read(&length, 8);
  if (length > file.size() - 8 || length > kMaxHeader || length < 2)
    lost(path,
         fmt::format("its header should have {} bytes, the file has {}", length, file.size()));
  std::string text(length, '\0');
  file.read(text.data(), text.size());
  return text;
}

// The header's length and text.
std::string head_of(const std::string& header) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header;
}

}  // namespace

const Tensor& TensorFile::at(const std::string& name) const {
  for (const auto& [have, tensor] : tensors)
    if (have == name) return tensor;
  throw Error(Code::not_found, fmt::format("the file has no tensor '{}'", name));
}

TensorImage tensor_image(const std::string& path, const NamedTensors& tensors,
                         const std::map<std::string, std::string>& metadata) {
  TensorImage image;
  const auto order = ordered(path, tensors);
  image.head = head_of(header_of(path, order, metadata, false));
  image.bytes = image.head.size();
  for (const auto* entry : order) {
    image.bytes += entry->second.bytes();
    image.data.push_back(entry->second);
  }
  return image;
}

void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata) {
  auto order = ordered(path, tensors);
  std::string header = header_of(path, order, metadata, true);
  std::uint64_t bytes = 8 + header.size(), crc = crc64(header.data(), header.size());
  for (const auto* entry : order) {
    bytes += entry->second.bytes();
    crc = crc64(entry->second.raw(), entry->second.bytes(), crc);
  }
  header.replace(find_checksum(header, kNoChecksum), std::strlen(kNoChecksum),
                 fmt::format("{:016x}", crc));

  const std::unique_ptr<WritableFile> file = real_disk().create(path, bytes);
  const std::string head = head_of(header);
  file->write(head.data(), head.size());
  for (const auto* entry : order) file->write(entry->second.raw(), entry->second.bytes());
  file->place();
}

TensorFile load_safetensors(const std::string& path) {
  return load_tensors(*real_disk().open(path));
}

TensorFile load_tensors(ReadableFile& from) {
  const std::string& path = from.path();
  FileCursor file(from);
  std::string text = read_header(file, path);
  Header header(path, text, file.size() - 8 - text.size());

  TensorFile out;
  out.metadata = std::move(header.metadata);
  std::string checksum =
      out.metadata.contains(kChecksum) ? out.metadata.extract(kChecksum).mapped() : "";
  std::size_t at = checksum.empty() ? std::string::npos : find_checksum(text, checksum);
  if (at != std::string::npos && checksum.size() == std::strlen(kNoChecksum))
    text.replace(at, checksum.size(), kNoChecksum);
  std::uint64_t crc = crc64(text.data(), text.size());
  for (const Entry& e : header.entries) {
    out.tensors.emplace_back(e.name, read_tensor(file, path, e));
    crc = crc64(out.tensors.back().second.raw(), out.tensors.back().second.bytes(), crc);
  }
  if (!checksum.empty() && checksum != fmt::format("{:016x}", crc))
    lost(path, fmt::format("its checksum is {:016x}, not {} as written in it (a program that "
                           "changes the file has to drop the metadata '{}')",
                           crc, checksum, kChecksum));
  out.is_checked = !checksum.empty();
  return out;
}

TensorFileHead read_safetensors_head(const std::string& path) {
  const std::unique_ptr<ReadableFile> from = real_disk().open(path);
  FileCursor file(*from);
  const std::string text = read_header(file, path);
  Header header(path, text, file.size() - 8 - text.size());
  TensorFileHead head;
  head.metadata = std::move(header.metadata);
  head.metadata.erase(kChecksum);
  for (Entry& e : header.entries)
    head.tensors.push_back({std::move(e.name), e.dtype, std::move(e.shape)});
  return head;
}

}  // namespace troupe
