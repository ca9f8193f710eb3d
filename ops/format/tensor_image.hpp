// The bytes of a safetensors file as its header and its tensors, for callers that bring them to a
// disk or take them from one themselves.
//
//   TensorImage image = tensor_image("shard.safetensors", {{"w", w}}, {{"troupe.step", "40"}});
//   file.write(image.head.data(), image.head.size());
//   for (const Tensor& t : image.data) file.write(t.raw(), t.bytes());
//   TensorFile read = load_tensors(readable_file);
//
// Threads: any. Ownership: an image shares the tensors' buffers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <troupe/ops/format/disk.hpp>
#include <troupe/ops/format/safetensors.hpp>

namespace troupe {

struct TensorImage {
  std::string head;          // the header's length and the header
  std::vector<Tensor> data;  // in the order of the file
  std::uint64_t bytes = 0;   // head and data
};

/// Returns the image of a file without a checksum of its own. `path` is for error texts. Throws
/// invalid_argument as save_safetensors.
TensorImage tensor_image(const std::string& path, const NamedTensors& tensors,
                         const std::map<std::string, std::string>& metadata);

/// Throws as load_safetensors does for a file that is open.
TensorFile load_tensors(detail::ReadableFile& file);

}  // namespace troupe
