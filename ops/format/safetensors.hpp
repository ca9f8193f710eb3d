// The safetensors file format: named tensors and strings, in one file any tool can read.
//
//   save_safetensors("model.safetensors", {{"w", w}, {"b", b}}, {{"step", "100"}});
//   TensorFile file = load_safetensors("model.safetensors");
//   const Tensor& w = file.at("w");
//
//   8 bytes   n, the header's length, little endian
//   n bytes   JSON: {"__metadata__": {name: string, ...},
//             name: {"dtype", "shape", "data_offsets": [begin, end]}, ...},
//             filled up with spaces to a multiple of 8
//   the rest  the tensors' elements, little endian, row-major, one after the other without gaps
//
// Source: https://github.com/huggingface/safetensors, which orders tensors by falling alignment,
// then by name; so does this writer. It adds the metadata `troupe.crc64`: CRC-64/XZ, in
// hexadecimal, of the header with that value all zeros, then the data. A file without it is read
// unchecked.
//
// Invariants: 1. a file is whole or not there: it is written under another name in the same
// directory, synced, then renamed over the earlier one, and a failure does not change that one; 2.
// nothing in a file is trusted: no allocation is larger than the file itself.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <troupe/devices/tensor/tensor.hpp>

namespace troupe {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

struct TensorFile {
  NamedTensors tensors;  // in the order of the data
  std::map<std::string, std::string> metadata;
  bool is_checked = false;  // the file has a checksum, which fits
  /// Throws not_found.
  const Tensor& at(const std::string& name) const;
};

/// Keeps the mode of an existing file; for a symbolic link, replaces the file that it points to.
/// Throws invalid_argument for a name twice, a tensor of c128 or strings, or not on the host,
/// resource_exhausted when the disk is full, failed_precondition if the file cannot be written.
void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata = {});

/// Throws not_found if there is no file, failed_precondition if it cannot be read, data_loss if it
/// is truncated, corrupted or no such file, unimplemented for a dtype Troupe does not have.
TensorFile load_safetensors(const std::string& path);

/// The description of a file: metadata, and names, dtypes and shapes in the order of the data.
struct TensorFileHead {
  struct Entry {
    std::string name;
    DType dtype;
    Shape shape;
  };
  std::vector<Entry> tensors;
  std::map<std::string, std::string> metadata;
};
/// Reads the header alone, so the checksum is not verified. Throws as load_safetensors.
TensorFileHead read_safetensors_head(const std::string& path);

}  // namespace troupe
