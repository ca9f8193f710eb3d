// The cuDNN of the plug-in. The tests' fake runtime has a stand-in for this file.
#include <troupe/devices/cuda/libraries/cudnn_library.hpp>

namespace troupe::cuda {

const CudnnLibrary& cudnn_library() {
  static const CudnnLibrary library = load_cudnn();  // again after a failure
  return library;
}

}  // namespace troupe::cuda
