// Entry points in the forms that older headers declare, for programs built with CUDA 11 and 12.
#define __CUDA_API_VERSION_INTERNAL
#include "tools/softgpu/cuda/cuda_api.h"

CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  return cuCtxCreate_v4(context, nullptr, flags, device);
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, start, end);
}

CUresult cuGetProcAddress(const char* symbol, void** pointer, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, pointer, version, flags, nullptr);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return cuStreamGetCaptureInfo_v3(stream, status, id, nullptr, nullptr, nullptr, nullptr);
}
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                   const CUgraphNode** dependencies, size_t* count) {
  return cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, nullptr, count);
}
CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* dependencies, size_t count, unsigned flags) {
  return cuStreamUpdateCaptureDependencies_v2(stream, dependencies, nullptr, count, flags);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char*, size_t) {
  if (error_node != nullptr) *error_node = nullptr;
  return cuGraphInstantiateWithFlags(exec, graph, 0);
}
CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node, CUgraphExecUpdateResult* result) {
  CUgraphExecUpdateResultInfo info = {};
  const CUresult error = cuGraphExecUpdate_v2(exec, graph, &info);
  if (error_node != nullptr) *error_node = info.errorNode;
  if (result != nullptr) *result = info.result;
  return error;
}
namespace {

CUDA_KERNEL_NODE_PARAMS_v2 Newer(const CUDA_KERNEL_NODE_PARAMS_v1& p) {
  return {p.func,      p.gridDimX,       p.gridDimY,     p.gridDimZ, p.blockDimX, p.blockDimY,
          p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra,    nullptr,     nullptr};
}

}  // namespace

CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  const CUDA_KERNEL_NODE_PARAMS_v2 newer = Newer(*parameters);
  return cuGraphAddKernelNode_v2(node, graph, dependencies, count, &newer);
}
CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* p) {
  CUDA_KERNEL_NODE_PARAMS_v2 newer = {};
  const CUresult error = cuGraphKernelNodeGetParams_v2(node, &newer);
  if (error != CUDA_SUCCESS) return error;
  *p = {newer.func,      newer.gridDimX,  newer.gridDimY,       newer.gridDimZ,     newer.blockDimX,
        newer.blockDimY, newer.blockDimZ, newer.sharedMemBytes, newer.kernelParams, newer.extra};
  return error;
}
CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  const CUDA_KERNEL_NODE_PARAMS_v2 newer = Newer(*parameters);
  return cuGraphKernelNodeSetParams_v2(node, &newer);
}
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  const CUDA_KERNEL_NODE_PARAMS_v2 newer = Newer(*parameters);
  return cuGraphExecKernelNodeSetParams_v2(exec, node, &newer);
}
CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  return cuGraphAddDependencies_v2(graph, from, to, nullptr, count);
}
CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  return cuGraphRemoveDependencies_v2(graph, from, to, nullptr, count);
}
CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  return cuGraphGetEdges_v2(graph, from, to, nullptr, count);
}
CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
  return cuGraphNodeGetDependencies_v2(node, nodes, nullptr, count);
}
CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* nodes, size_t* count) {
  return cuGraphNodeGetDependentNodes_v2(node, nodes, nullptr, count);
}

// The first forms of these do not differ from the second in any relevant way.
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return cuStreamWaitValue32_v2(stream, address, value, flags);
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return cuStreamWaitValue64_v2(stream, address, value, flags);
}
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return cuStreamWriteValue32_v2(stream, address, value, flags);
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return cuStreamWriteValue64_v2(stream, address, value, flags);
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }
CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream) {
  const CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return cuMemPrefetchAsync_v2(address, bytes, location, 0, stream);
}
