// Launches, attributes of functions and occupancy.
#include <algorithm>
#include <vector>

#include "tools/softgpu/cuda/runtime/runtime.h"

namespace softgpu::runtime {
namespace {

bool GridIsPossible(const dim3& grid, const dim3& block) {
  const bool some = grid.x > 0 && grid.y > 0 && grid.z > 0 && block.x > 0 && block.y > 0 && block.z > 0;
  return some && grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535 && block.x <= 1024 && block.y <= 1024 &&
         block.z <= 64 && block.x * block.y * block.z <= 1024;
}

CUlaunchConfig DriverConfig(const dim3& grid, const dim3& block, size_t shared_bytes, cudaStream_t stream) {
  CUlaunchConfig config = {};
  config.gridDimX = grid.x;
  config.gridDimY = grid.y;
  config.gridDimZ = grid.z;
  config.blockDimX = block.x;
  config.blockDimY = block.y;
  config.blockDimZ = block.z;
  config.sharedMemBytes = static_cast<unsigned>(shared_bytes);
  config.hStream = stream;
  return config;
}

// The runtime's launch attributes have the numbers and the layout of the driver's.
static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute));

cudaError_t LaunchConfigured(CUkernel kernel, CUlaunchConfig* config, const dim3& grid, const dim3& block,
                             void** arguments) {
  // The runtime has an error of its own for this.
  if (!GridIsPossible(grid, block)) return cudaErrorInvalidConfiguration;
  return static_cast<cudaError_t>(cuLaunchKernelEx(config, reinterpret_cast<CUfunction>(kernel), arguments, nullptr));
}

// Configurations of <<<>>> launches whose kernel has not been called yet.
struct Configuration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> t_configurations;

// Calls `use` with the driver's function for `function`.
template <typename Use>
cudaError_t WithFunction(const void* function, const Use& use) {
  return Call([&] {
    CUkernel kernel = nullptr;
    const cudaError_t error = FindKernel(function, &kernel);
    return error != cudaSuccess ? error : static_cast<cudaError_t>(use(reinterpret_cast<CUfunction>(kernel)));
  });
}

}  // namespace

cudaError_t Launch(CUkernel kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes, cudaStream_t stream,
                   bool cooperative) {
  CUlaunchConfig config = DriverConfig(grid, block, shared_bytes, stream);
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = cooperative ? 1 : 0;
  return LaunchConfigured(kernel, &config, grid, block, arguments);
}

}  // namespace softgpu::runtime

using namespace softgpu::runtime;  // NOLINT: the C entry points

namespace {

cudaError_t LaunchFunction(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                           cudaStream_t stream, bool cooperative) {
  return Call([&] {
    CUkernel kernel = nullptr;
    const cudaError_t error = FindKernel(function, &kernel);
    if (error != cudaSuccess) return error;
    return Launch(kernel, grid, block, arguments, shared_bytes, stream, cooperative);
  });
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, CUstream_st* stream) {
  t_configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  if (t_configurations.empty()) return Finish(cudaErrorMissingConfiguration);
  const Configuration& last = t_configurations.back();
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  t_configurations.pop_back();
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                               cudaStream_t stream) {
  return LaunchFunction(kernel, grid, block, arguments, shared_bytes, stream, false);
}

cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                                    cudaStream_t stream) {
  return LaunchFunction(kernel, grid, block, arguments, shared_bytes, stream == nullptr ? cudaStreamPerThread : stream,
                        false);
}

}  // extern "C"
#pragma GCC visibility pop

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                             cudaStream_t stream) {
  return LaunchFunction(function, grid, block, arguments, shared_bytes, stream, false);
}

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                        size_t shared_bytes, cudaStream_t stream) {
  return LaunchFunction(function, grid, block, arguments, shared_bytes, stream, true);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  return Call([&] {
    CUkernel kernel = nullptr;
    const cudaError_t error = FindKernel(function, &kernel);
    if (error != cudaSuccess) return error;
    CUlaunchConfig translated =
        DriverConfig(config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream);
    translated.attrs = reinterpret_cast<CUlaunchAttribute*>(config->attrs);
    translated.numAttrs = config->numAttrs;
    return LaunchConfigured(kernel, &translated, config->gridDim, config->blockDim, arguments);
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return Call([&] { return cuLaunchHostFunc(stream, function, data); });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return WithFunction(function, [&](CUfunction found) {
    return cuFuncSetAttribute(found, static_cast<CUfunction_attribute>(attribute), value);
  });
}

cudaError_t cudaFuncSetCacheConfig(const void* function, cudaFuncCache) {
  return WithFunction(function, [](CUfunction) { return CUDA_SUCCESS; });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return WithFunction(function, [&](CUfunction found) {
    const auto get = [found](CUfunction_attribute attribute) {
      int value = 0;
      cuFuncGetAttribute(&value, attribute, found);
      return value;
    };
    *attributes = {};
    attributes->sharedSizeBytes = static_cast<size_t>(get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
    attributes->constSizeBytes = static_cast<size_t>(get(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES));
    attributes->localSizeBytes = static_cast<size_t>(get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
    attributes->maxThreadsPerBlock = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    attributes->numRegs = get(CU_FUNC_ATTRIBUTE_NUM_REGS);
    attributes->ptxVersion = get(CU_FUNC_ATTRIBUTE_PTX_VERSION);
    attributes->binaryVersion = get(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
    attributes->maxDynamicSharedSizeBytes = get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    attributes->preferredShmemCarveout = get(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
    // A kernel that cannot be loaded has no attributes.
    CUfunctionLoadingState state;
    return cuFuncIsLoaded(&state, found);
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads,
                                                          size_t shared) {
  return WithFunction(function, [&](CUfunction found) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, found, threads, shared);
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int threads,
                                                                   size_t shared, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* function, int blocks, int threads) {
  return WithFunction(function, [&](CUfunction found) {
    return cuOccupancyAvailableDynamicSMemPerBlock(bytes, found, blocks, threads);
  });
}

cudaError_t cudaOccupancyMaxPotentialClusterSize(int* size, const void* function, const cudaLaunchConfig_t*) {
  return WithFunction(function,
                      [&](CUfunction found) { return cuOccupancyMaxPotentialClusterSize(size, found, nullptr); });
}

cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* function, const cudaLaunchConfig_t* config) {
  const CUlaunchConfig translated =
      DriverConfig(config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream);
  return WithFunction(function,
                      [&](CUfunction found) { return cuOccupancyMaxActiveClusters(clusters, found, &translated); });
}
