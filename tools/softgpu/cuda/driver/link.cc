// cuLink*: linking of one piece of PTX, which is all that compilers at run time need. The image is the PTX itself.
#include <cstring>
#include <memory>
#include <string>

#include "tools/softgpu/cuda/driver/entry.h"
#include "tools/softgpu/cuda/settings.h"

using namespace softgpu::cuda;  // NOLINT: the C entry points

namespace {

struct Link {
  std::string image;
};

template <typename Use>
CUresult WithLink(CUlinkState handle, const Use& use) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  const std::shared_ptr<Link> link = HandlesOf<Link>().Find(handle);
  return link == nullptr ? CUDA_ERROR_INVALID_HANDLE : use(link);
}

}  // namespace

CUresult cuLinkCreate(unsigned, CUjit_option*, void**, CUlinkState* handle) {
  return WithContext([&](const ContextPtr&) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *handle = reinterpret_cast<CUlinkState>(HandlesOf<Link>().Add(std::make_shared<Link>()));
    return CUDA_SUCCESS;
  });
}

CUresult cuLinkAddData(CUlinkState handle, CUjitInputType type, void* data, size_t bytes, const char*, unsigned,
                       CUjit_option*, void**) {
  return WithLink(handle, [&](const std::shared_ptr<Link>& link) {
    if (data == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_JIT_INPUT_PTX) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (!link->image.empty()) return CUDA_ERROR_NOT_SUPPORTED;
    link->image.assign(static_cast<const char*>(data), strnlen(static_cast<const char*>(data), bytes));
    return CUDA_SUCCESS;
  });
}

CUresult cuLinkComplete(CUlinkState handle, void** image, size_t* bytes) {
  return WithLink(handle, [&](const std::shared_ptr<Link>& link) {
    if (image == nullptr || link->image.empty()) return CUDA_ERROR_INVALID_VALUE;
    *image = link->image.data();
    if (bytes != nullptr) *bytes = link->image.size() + 1;
    return CUDA_SUCCESS;
  });
}

CUresult cuLinkDestroy(CUlinkState handle) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  return HandlesOf<Link>().Remove(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
