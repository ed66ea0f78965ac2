// Launches and occupancy.
#include <algorithm>

#include "tools/softgpu/cuda/driver/counters.h"
#include "tools/softgpu/cuda/driver/entry.h"
#include "tools/softgpu/cuda/module.h"
#include "tools/softgpu/cuda/settings.h"

using namespace softgpu::cuda;  // NOLINT: the C entry points

namespace {

// Of this thread, for softgpu_parameter_bytes and softgpu_remote_launches.
thread_local uint64_t t_parameter_bytes = 0, t_remote_launches = 0;

CUresult Launch(CUfunction handle, const LaunchShape& shape, CUstream stream, void** arguments, void** extra) {
  return WithStream(stream, [&](const StreamPtr& found) {
    FunctionPtr function;
    if (const CUresult error = ResolveFunction(handle, found->context, &function); error != CUDA_SUCCESS) return error;
    // A function belongs to a context, and so does a stream, which must be current.
    if (function->module->context() != found->context || CurrentContext() != found->context)
      return CUDA_ERROR_INVALID_HANDLE;
    if (const CUresult error = CheckLaunch(*function, shape); error != CUDA_SUCCESS) return error;
    std::vector<std::byte> packed;
    if (const CUresult error = PackArguments(*function, arguments, extra, &packed); error != CUDA_SUCCESS) return error;
    t_parameter_bytes += packed.size();
    if (!function->launched.exchange(true)) SynchronizeFor(kSyncFirstLaunch);
    last_blocks = uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z;
    last_dynamic_shared = shape.shared_bytes;
    const auto threads = static_cast<int>(shape.block.x * shape.block.y * shape.block.z);
    last_blocks_together = static_cast<uint64_t>(Occupancy(*function, threads, shape.shared_bytes));
    return Enqueue(found, std::make_shared<KernelOperation>(function, shape, std::move(packed)));
  });
}

// What attributes request beyond a plain launch.
struct Extras {
  bool cooperative = false;
  std::vector<CUevent> events_after;
};

CUresult ReadAttribute(const CUlaunchAttribute& attribute, Extras* extras) {
  const CUlaunchAttributeValue& value = attribute.value;
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      extras->cooperative = value.cooperative != 0;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      if (value.clusterDim.x <= 1 && value.clusterDim.y <= 1 && value.clusterDim.z <= 1) return CUDA_SUCCESS;
      Explain("clusters of %u x %u x %u blocks are not supported, only of one block", value.clusterDim.x,
              value.clusterDim.y, value.clusterDim.z);
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      // The end of the kernel is the latest allowed time to trigger it.
      extras->events_after.push_back(value.programmaticEvent.event);
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      extras->events_after.push_back(value.launchCompletionEvent.event);
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      if (value.memSyncDomain != CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT &&
          value.memSyncDomain != CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE)
        return CUDA_ERROR_INVALID_VALUE;
      t_remote_launches += value.memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      return value.deviceUpdatableKernelNode.deviceUpdatable == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    default:
      // Hints for caches, scheduling and memory traffic.
      return CUDA_SUCCESS;
  }
}

}  // namespace

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** arguments,
                        void** extra) {
  const LaunchShape shape = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, false};
  return Launch(function, shape, stream, arguments, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                   CUstream stream, void** arguments) {
  const LaunchShape shape = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, true};
  return Launch(function, shape, stream, arguments, nullptr);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments, void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Extras extras;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (const CUresult error = ReadAttribute(config->attrs[i], &extras); error != CUDA_SUCCESS) return error;
  }
  const LaunchShape shape = {{config->gridDimX, config->gridDimY, config->gridDimZ},
                             {config->blockDimX, config->blockDimY, config->blockDimZ},
                             config->sharedMemBytes,
                             extras.cooperative};
  CUresult result = Launch(function, shape, config->hStream, arguments, extra);
  for (size_t i = 0; result == CUDA_SUCCESS && i < extras.events_after.size(); ++i)
    result = cuEventRecord(extras.events_after[i], config->hStream);
  return result;
}

namespace {

template <typename Use>
CUresult WithLaunchable(CUfunction handle, const Use& use) {
  return WithContext([&](const ContextPtr& context) {
    FunctionPtr function;
    const CUresult error = ResolveFunction(handle, context, &function);
    return error != CUDA_SUCCESS ? error : use(*function);
  });
}

}  // namespace

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads, size_t shared) {
  return WithLaunchable(handle, [&](const Function& function) {
    *blocks = Occupancy(function, threads, shared);
    return threads > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle, int threads,
                                                              size_t shared, unsigned) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, handle, threads, shared);
}

CUresult cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction handle, CUoccupancyB2DSize shared_of,
                                          size_t shared, int limit) {
  return WithLaunchable(handle, [&](const Function& function) {
    const int most = std::min(static_cast<int>(function.info().max_threads), limit > 0 ? limit : 1024);
    int best_threads = 0, best_blocks = 0;
    for (int threads = 32; threads <= most; threads += 32) {
      const int blocks = Occupancy(function, threads, shared_of != nullptr ? shared_of(threads) : shared);
      if (blocks * threads < best_blocks * best_threads) continue;
      best_threads = threads;
      best_blocks = blocks;
    }
    *block = best_threads;
    *grid = best_blocks * Knobs().multiprocessors;
    return CUDA_SUCCESS;
  });
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction handle,
                                                   CUoccupancyB2DSize shared_of, size_t shared, int limit, unsigned) {
  return cuOccupancyMaxPotentialBlockSize(grid, block, handle, shared_of, shared, limit);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks, int) {
  return WithLaunchable(handle, [&](const Function& function) {
    const int device = function.module->context()->device().ordinal;
    int of_processor = 0;
    DeviceAttribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device, &of_processor);
    const size_t share = blocks > 0 ? static_cast<size_t>(of_processor / blocks) : 0;
    const size_t taken = function.info().shared_bytes + ReservedSharedMemory(device);
    *bytes = share > taken ? share - taken : 0;
    return CUDA_SUCCESS;
  });
}

// Only clusters of one block exist.
CUresult cuOccupancyMaxPotentialClusterSize(int* size, CUfunction handle, const CUlaunchConfig*) {
  *size = 1;
  return WithLaunchable(handle, [](const Function&) { return CUDA_SUCCESS; });
}

CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction handle, const CUlaunchConfig* config) {
  return WithLaunchable(handle, [&](const Function& function) {
    const int threads = static_cast<int>(config->blockDimX * config->blockDimY * config->blockDimZ);
    *clusters = Occupancy(function, threads, config->sharedMemBytes) * Knobs().multiprocessors;
    return CUDA_SUCCESS;
  });
}

#define SOFTGPU_EXPORT extern "C" __attribute__((visibility("default")))

// Counters that no real driver has, for tests: of the launches of this thread, the bytes of their parameters, and how
// many were in the remote domain of memory.
SOFTGPU_EXPORT uint64_t softgpu_parameter_bytes() { return t_parameter_bytes; }
SOFTGPU_EXPORT uint64_t softgpu_remote_launches() { return t_remote_launches; }
