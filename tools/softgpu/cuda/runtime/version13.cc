// The functions whose parameters changed in version 13.
#include "tools/softgpu/cuda/runtime/runtime.h"

using namespace softgpu::runtime;  // NOLINT: the C entry points

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
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
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* dependencies,
                                                const cudaGraphEdgeData*, size_t count, unsigned flags) {
  return Call([&] { return cuStreamUpdateCaptureDependencies(stream, dependencies, nullptr, count, flags); });
}
cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                     const cudaGraphEdgeData*, size_t count) {
  return Call([&] { return cuGraphAddDependencies(graph, from, to, nullptr, count); });
}
// Not for nodes of memory, conditions and semaphores, nor for copies and fills.
cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                             const cudaGraphEdgeData*, size_t count, cudaGraphNodeParams* parameters) {
  switch (parameters->type) {
    case cudaGraphNodeTypeKernel: {
      const cudaKernelNodeParamsV2& p = parameters->kernel;
      const cudaKernelNodeParams kernel = {p.func, p.gridDim, p.blockDim, p.sharedMemBytes, p.kernelParams, p.extra};
      return cudaGraphAddKernelNode(node, graph, dependencies, count, &kernel);
    }
    case cudaGraphNodeTypeHost: {
      const cudaHostNodeParams host = {parameters->host.fn, parameters->host.userData};
      return cudaGraphAddHostNode(node, graph, dependencies, count, &host);
    }
    case cudaGraphNodeTypeGraph:
      return cudaGraphAddChildGraphNode(node, graph, dependencies, count, parameters->graph.graph);
    case cudaGraphNodeTypeEmpty:
      return cudaGraphAddEmptyNode(node, graph, dependencies, count);
    case cudaGraphNodeTypeWaitEvent:
      return cudaGraphAddEventWaitNode(node, graph, dependencies, count, parameters->eventWait.event);
    case cudaGraphNodeTypeEventRecord:
      return cudaGraphAddEventRecordNode(node, graph, dependencies, count, parameters->eventRecord.event);
    default:
      return Call([] { return CUDA_ERROR_NOT_SUPPORTED; });
  }
}
cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                        const cudaGraphEdgeData*, size_t count) {
  return Call([&] { return cuGraphRemoveDependencies(graph, from, to, nullptr, count); });
}
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* data,
                              size_t* count) {
  return Call([&] { return cuGraphGetEdges(graph, from, to, reinterpret_cast<CUgraphEdgeData*>(data), count); });
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData* data,
                                         size_t* count) {
  return Call([&] { return cuGraphNodeGetDependencies(node, nodes, reinterpret_cast<CUgraphEdgeData*>(data), count); });
}
cudaError_t cudaMemPrefetchAsync(const void* pointer, size_t bytes, cudaMemLocation location, unsigned flags,
                                 cudaStream_t stream) {
  const CUmemLocation place = {static_cast<CUmemLocationType>(location.type), location.id};
  return Call([&] { return cuMemPrefetchAsync(Address(pointer), bytes, place, flags, stream); });
}
cudaError_t cudaMemAdvise(const void* pointer, size_t bytes, cudaMemoryAdvise advice, cudaMemLocation location) {
  const CUmemLocation place = {static_cast<CUmemLocationType>(location.type), location.id};
  return Call([&] { return cuMemAdvise(Address(pointer), bytes, static_cast<CUmem_advise>(advice), place); });
}
