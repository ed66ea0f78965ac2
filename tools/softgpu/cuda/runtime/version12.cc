// The functions whose form is special to version 12. The headers are those of version 13, which do not declare them.
#define cudaStreamUpdateCaptureDependencies cudaStreamUpdateCaptureDependencies_of_13
#define cudaGraphAddDependencies cudaGraphAddDependencies_of_13
#define cudaGraphRemoveDependencies cudaGraphRemoveDependencies_of_13
#define cudaGraphGetEdges cudaGraphGetEdges_of_13
#define cudaGraphNodeGetDependencies cudaGraphNodeGetDependencies_of_13
#define cudaMemPrefetchAsync cudaMemPrefetchAsync_of_13
#define cudaMemAdvise cudaMemAdvise_of_13
#include "tools/softgpu/cuda/runtime/properties.h"
#include "tools/softgpu/cuda/runtime/runtime.h"
#undef cudaStreamUpdateCaptureDependencies
#undef cudaGraphAddDependencies
#undef cudaGraphRemoveDependencies
#undef cudaGraphGetEdges
#undef cudaGraphNodeGetDependencies
#undef cudaMemPrefetchAsync
#undef cudaMemAdvise

using namespace softgpu::runtime;  // NOLINT: the C entry points

namespace {

// cudaDeviceProp of CUDA 12, which has members that 13 dropped.
struct Properties12 {
  char name[256];
  CUuuid uuid;
  char luid[8];
  unsigned luidDeviceNodeMask;
  size_t totalGlobalMem;
  size_t sharedMemPerBlock;
  int regsPerBlock;
  int warpSize;
  size_t memPitch;
  int maxThreadsPerBlock;
  int maxThreadsDim[3];
  int maxGridSize[3];
  int clockRate;
  size_t totalConstMem;
  int major;
  int minor;
  size_t textureAlignment;
  size_t texturePitchAlignment;
  int deviceOverlap;
  int multiProcessorCount;
  int kernelExecTimeoutEnabled;
  int integrated;
  int canMapHostMemory;
  int computeMode;
  int textures[40];  // maxTexture1D to maxSurfaceCubemapLayered
  size_t surfaceAlignment;
  int concurrentKernels;
  int ECCEnabled;
  int pciBusID;
  int pciDeviceID;
  int pciDomainID;
  int tccDriver;
  int asyncEngineCount;
  int unifiedAddressing;
  int memoryClockRate;
  int memoryBusWidth;
  int l2CacheSize;
  int persistingL2CacheMaxSize;
  int maxThreadsPerMultiProcessor;
  int streamPrioritiesSupported;
  int globalL1CacheSupported;
  int localL1CacheSupported;
  size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor;
  int managedMemory;
  int isMultiGpuBoard;
  int multiGpuBoardGroupID;
  int hostNativeAtomicSupported;
  int singleToDoublePrecisionPerfRatio;
  int pageableMemoryAccess;
  int concurrentManagedAccess;
  int computePreemptionSupported;
  int canUseHostPointerForRegisteredMem;
  int cooperativeLaunch;
  int cooperativeMultiDeviceLaunch;
  size_t sharedMemPerBlockOptin;
  int pageableMemoryAccessUsesHostPageTables;
  int directManagedMemAccessFromHost;
  int maxBlocksPerMultiProcessor;
  int accessPolicyMaxWindowSize;
  size_t reservedSharedMemPerBlock;
  int hostRegisterSupported;
  int sparseCudaArraySupported;
  int hostRegisterReadOnlySupported;
  int timelineSemaphoreInteropSupported;
  int memoryPoolsSupported;
  int gpuDirectRDMASupported;
  unsigned gpuDirectRDMAFlushWritesOptions;
  int gpuDirectRDMAWritesOrdering;
  unsigned memoryPoolSupportedHandleTypes;
  int deferredMappingCudaArraySupported;
  int ipcEventSupported;
  int clusterLaunch;
  int unifiedFunctionPointers;
  int reserved[63];
};
static_assert(sizeof(Properties12) == 1032, "cudaDeviceProp of CUDA 12");

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaGetDeviceProperties_v2(Properties12* properties, int device) {
  const cudaError_t error = GetProperties(properties, device);
  if (error == cudaSuccess) {
    cuDeviceGetAttribute(&properties->clockRate, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device);
    cuDeviceGetAttribute(&properties->memoryClockRate, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, device);
    properties->deviceOverlap = 1;
  }
  return Finish(error);
}

cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                        cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                        const cudaGraphEdgeData** edges, size_t* count) {
  return Call([&] {
    cuuint64_t driver_id = 0;
    const CUresult error =
        cuStreamGetCaptureInfo(stream, reinterpret_cast<CUstreamCaptureStatus*>(status), &driver_id, graph,
                               dependencies, reinterpret_cast<const CUgraphEdgeData**>(edges), count);
    if (id != nullptr) *id = driver_id;
    return error;
  });
}
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                        cudaGraph_t* graph, const cudaGraphNode_t** dependencies, size_t* count) {
  return cudaStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, nullptr, count);
}
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* dependencies, size_t count,
                                                unsigned flags) {
  return Call([&] { return cuStreamUpdateCaptureDependencies(stream, dependencies, nullptr, count, flags); });
}
cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                     size_t count) {
  return Call([&] { return cuGraphAddDependencies(graph, from, to, nullptr, count); });
}
cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                        size_t count) {
  return Call([&] { return cuGraphRemoveDependencies(graph, from, to, nullptr, count); });
}
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, size_t* count) {
  return Call([&] { return cuGraphGetEdges(graph, from, to, nullptr, count); });
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes, size_t* count) {
  return Call([&] { return cuGraphNodeGetDependencies(node, nodes, nullptr, count); });
}
cudaError_t cudaMemPrefetchAsync(const void* pointer, size_t bytes, int device, cudaStream_t stream) {
  const CUmemLocation place = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return Call([&] { return cuMemPrefetchAsync(Address(pointer), bytes, place, 0, stream); });
}
cudaError_t cudaMemAdvise(const void* pointer, size_t bytes, cudaMemoryAdvise advice, int device) {
  const CUmemLocation place = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return Call([&] { return cuMemAdvise(Address(pointer), bytes, static_cast<CUmem_advise>(advice), place); });
}

}  // extern "C"
#pragma GCC visibility pop
