// Reads what nvcc embeds in programs: containers with code for several architectures, of which the PTX is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace softgpu::cuda {

struct PtxImage {
  int arch = 0;  // the target, compute capability times ten
  std::string text;
};

enum class ImageError : uint8_t {
  kNone,
  kInvalid,  // not a known container, or damaged
  kNoPtx,    // no PTX, or none for this arch or an older one
};

struct ImageResult {
  ImageError error = ImageError::kNone;
  std::string explanation;  // of an error
  PtxImage image;
};

// `data` is the argument of cuModuleLoadData: a fat binary, with or without nvcc's wrapper, or PTX as text that ends
// with a zero byte. Chooses the PTX of the highest target that is at most `arch`.
ImageResult ReadImage(const void* data, int arch);

// ---- the parts, for tests ----
// Returns false if `packed` is damaged or does not unpack to `bytes` bytes.
bool UnpackLz4(const uint8_t* packed, size_t packed_bytes, size_t bytes, std::string* unpacked);
bool UnpackZstd(const uint8_t* packed, size_t packed_bytes, size_t bytes, std::string* unpacked);

}  // namespace softgpu::cuda
