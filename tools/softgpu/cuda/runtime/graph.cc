// Graphs.
#include "tools/softgpu/cuda/runtime/runtime.h"

using namespace softgpu::runtime;  // NOLINT: the C entry points

namespace {

CUDA_MEMCPY3D Line(void* to, const void* from, size_t bytes) {
  CUDA_MEMCPY3D line = {};
  line.srcMemoryType = line.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  line.srcDevice = Address(from);
  line.dstDevice = Address(to);
  line.WidthInBytes = bytes;
  line.Height = line.Depth = 1;
  return line;
}

cudaError_t KernelParameters(const cudaKernelNodeParams& p, CUDA_KERNEL_NODE_PARAMS* driver) {
  *driver = {};
  driver->gridDimX = p.gridDim.x;
  driver->gridDimY = p.gridDim.y;
  driver->gridDimZ = p.gridDim.z;
  driver->blockDimX = p.blockDim.x;
  driver->blockDimY = p.blockDim.y;
  driver->blockDimZ = p.blockDim.z;
  driver->sharedMemBytes = p.sharedMemBytes;
  driver->kernelParams = p.kernelParams;
  driver->extra = p.extra;
  return FindKernel(p.func, &driver->kern);
}

CUDA_MEMSET_NODE_PARAMS FillParameters(const cudaMemsetParams& p) {
  CUDA_MEMSET_NODE_PARAMS driver = {};
  driver.dst = Address(p.dst);
  driver.pitch = p.pitch;
  driver.value = p.value;
  driver.elementSize = p.elementSize;
  driver.width = p.width;
  driver.height = p.height;
  return driver;
}

CUDA_HOST_NODE_PARAMS HostParameters(const cudaHostNodeParams& p) { return {p.fn, p.userData}; }

}  // namespace

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
  return Call([&] { return cuGraphCreate(graph, flags); });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return Call([&] { return cuGraphDestroy(graph); });
}
cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t graph) {
  return Call([&] { return cuGraphClone(clone, graph); });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return Call([&] { return cuGraphInstantiate(exec, graph, flags); });
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiate(exec, graph, flags);
}
cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* exec, cudaGraph_t graph,
                                           cudaGraphInstantiateParams* parameters) {
  static_assert(sizeof *parameters == sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS));
  return Call([&] {
    return cuGraphInstantiateWithParams(exec, graph, reinterpret_cast<CUDA_GRAPH_INSTANTIATE_PARAMS*>(parameters));
  });
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  return Call([&] { return cuGraphUpload(exec, stream); });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return Call([&] { return cuGraphLaunch(exec, stream); });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return Call([&] { return cuGraphExecDestroy(exec); });
}
cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t exec, unsigned long long* flags) {
  return Call([&] {
    cuuint64_t value = 0;
    const CUresult error = cuGraphExecGetFlags(exec, &value);
    *flags = value;
    return error;
  });
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
  static_assert(sizeof *info == sizeof(CUgraphExecUpdateResultInfo));
  return Call([&] { return cuGraphExecUpdate(exec, graph, reinterpret_cast<CUgraphExecUpdateResultInfo*>(info)); });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return Call([&] { return cuGraphGetNodes(graph, nodes, count); });
}
cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return Call([&] { return cuGraphGetRootNodes(graph, nodes, count); });
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return Call([&] { return cuGraphNodeGetType(node, reinterpret_cast<CUgraphNodeType*>(type)); });
}
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned flags) {
  return Call([&] { return cuGraphDebugDotPrint(graph, path, flags); });
}
cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
  return Call([&] { return cuGraphDestroyNode(node); });
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                  size_t count) {
  return Call([&] { return cuGraphAddEmptyNode(node, graph, dependencies, count); });
}
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                   size_t count, const cudaKernelNodeParams* parameters) {
  return Call([&] {
    CUDA_KERNEL_NODE_PARAMS driver;
    const cudaError_t error = KernelParameters(*parameters, &driver);
    if (error != cudaSuccess) return error;
    return static_cast<cudaError_t>(cuGraphAddKernelNode(node, graph, dependencies, count, &driver));
  });
}
cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const cudaKernelNodeParams* parameters) {
  return Call([&] {
    CUDA_KERNEL_NODE_PARAMS driver;
    const cudaError_t error = KernelParameters(*parameters, &driver);
    return error != cudaSuccess ? error : static_cast<cudaError_t>(cuGraphKernelNodeSetParams(node, &driver));
  });
}
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* parameters) {
  return Call([&] {
    CUDA_KERNEL_NODE_PARAMS driver;
    const cudaError_t error = KernelParameters(*parameters, &driver);
    return error != cudaSuccess ? error : static_cast<cudaError_t>(cuGraphExecKernelNodeSetParams(exec, node, &driver));
  });
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                     size_t count, void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  const CUDA_MEMCPY3D line = Line(to, from, bytes);
  return Call([&] { return cuGraphAddMemcpyNode(node, graph, dependencies, count, &line, nullptr); });
}
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node, void* to, const void* from,
                                               size_t bytes, cudaMemcpyKind) {
  const CUDA_MEMCPY3D line = Line(to, from, bytes);
  return Call([&] { return cuGraphExecMemcpyNodeSetParams(exec, node, &line, nullptr); });
}
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                   size_t count, const cudaMemsetParams* parameters) {
  const CUDA_MEMSET_NODE_PARAMS driver = FillParameters(*parameters);
  return Call([&] { return cuGraphAddMemsetNode(node, graph, dependencies, count, &driver, nullptr); });
}
cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaMemsetParams* parameters) {
  const CUDA_MEMSET_NODE_PARAMS driver = FillParameters(*parameters);
  return Call([&] { return cuGraphExecMemsetNodeSetParams(exec, node, &driver, nullptr); });
}
cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                 size_t count, const cudaHostNodeParams* parameters) {
  const CUDA_HOST_NODE_PARAMS driver = HostParameters(*parameters);
  return Call([&] { return cuGraphAddHostNode(node, graph, dependencies, count, &driver); });
}
cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                           const cudaHostNodeParams* parameters) {
  const CUDA_HOST_NODE_PARAMS driver = HostParameters(*parameters);
  return Call([&] { return cuGraphExecHostNodeSetParams(exec, node, &driver); });
}
cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                        size_t count, cudaEvent_t event) {
  return Call([&] { return cuGraphAddEventRecordNode(node, graph, dependencies, count, event); });
}
cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                      size_t count, cudaEvent_t event) {
  return Call([&] { return cuGraphAddEventWaitNode(node, graph, dependencies, count, event); });
}
cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                       size_t count, cudaGraph_t child) {
  return Call([&] { return cuGraphAddChildGraphNode(node, graph, dependencies, count, child); });
}

// Graphs have no conditional nodes.
cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle*, cudaGraph_t, unsigned, unsigned) {
  return Call([] { return CUDA_ERROR_NOT_SUPPORTED; });
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* handle, void* object, cudaHostFn_t destroy, unsigned references,
                                 unsigned flags) {
  return Call([&] { return cuUserObjectCreate(handle, object, destroy, references, flags); });
}
cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned count) {
  return Call([&] { return cuUserObjectRetain(object, count); });
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
  return Call([&] { return cuUserObjectRelease(object, count); });
}
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags) {
  return Call([&] { return cuGraphRetainUserObject(graph, object, count, flags); });
}
cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count) {
  return Call([&] { return cuGraphReleaseUserObject(graph, object, count); });
}
