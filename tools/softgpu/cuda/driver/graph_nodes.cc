// Making graphs by hand: cuGraphAdd*Node and the parameters of nodes.
#include "tools/softgpu/cuda/driver/graph_nodes.h"

#include "tools/softgpu/cuda/driver/copy.h"

namespace softgpu::cuda {

CUresult ContextOf(CUcontext handle, ContextPtr* context) {
  if (handle == nullptr) return UsableContext(context);
  *context = HandlesOf<Context>().Find(handle);
  return *context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult KernelFromNode(const CUDA_KERNEL_NODE_PARAMS& p, OperationPtr* operation) {
  ContextPtr context;
  if (const CUresult error = ContextOf(p.func == nullptr ? p.ctx : nullptr, &context); error != CUDA_SUCCESS)
    return error;
  const CUfunction handle = p.func != nullptr ? p.func : reinterpret_cast<CUfunction>(p.kern);
  FunctionPtr function;
  if (const CUresult error = ResolveFunction(handle, context, &function); error != CUDA_SUCCESS) return error;
  const LaunchShape shape = {
      {p.gridDimX, p.gridDimY, p.gridDimZ}, {p.blockDimX, p.blockDimY, p.blockDimZ}, p.sharedMemBytes, false};
  if (const CUresult error = CheckLaunch(*function, shape); error != CUDA_SUCCESS) return error;
  std::vector<std::byte> arguments;
  if (const CUresult error = PackArguments(*function, p.kernelParams, p.extra, &arguments); error != CUDA_SUCCESS)
    return error;
  *operation = std::make_shared<KernelOperation>(function, shape, std::move(arguments));
  return CUDA_SUCCESS;
}

CUresult CopyFromNode(const CUDA_MEMCPY3D& parameters, CUcontext handle, OperationPtr* operation) {
  ContextPtr context;
  if (const CUresult error = ContextOf(handle, &context); error != CUDA_SUCCESS) return error;
  CopyShape shape;
  Sides sides;
  if (const CUresult error = ReadCopy(parameters, &shape, &sides); error != CUDA_SUCCESS) return error;
  if (const CUresult error = CheckCopy(shape, sides); error != CUDA_SUCCESS) return error;
  *operation = std::make_shared<CopyOperation>(context, shape);
  return CUDA_SUCCESS;
}

CUresult FillFromNode(const CUDA_MEMSET_NODE_PARAMS& p, CUcontext handle, OperationPtr* operation) {
  ContextPtr context;
  if (const CUresult error = ContextOf(handle, &context); error != CUDA_SUCCESS) return error;
  if (p.elementSize != 1 && p.elementSize != 2 && p.elementSize != 4) return CUDA_ERROR_INVALID_VALUE;
  const FillShape shape = {p.dst, p.value, p.elementSize, p.width, p.height, p.pitch};
  if (const CUresult error = CheckFill(shape); error != CUDA_SUCCESS) return error;
  *operation = std::make_shared<FillOperation>(context, shape);
  return CUDA_SUCCESS;
}

CUresult HostFromNode(const CUDA_HOST_NODE_PARAMS& parameters, OperationPtr* operation) {
  ContextPtr context;
  if (const CUresult error = UsableContext(&context); error != CUDA_SUCCESS) return error;
  if (parameters.fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *operation = std::make_shared<HostOperation>(context, parameters.fn, parameters.userData);
  return CUDA_SUCCESS;
}

namespace {

CUresult AddNode(CUgraphNode* handle, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                 OperationPtr operation, const GraphPtr& child = nullptr) {
  return WithGraph(graph, [&](const GraphPtr& found) {
    std::vector<Node*> after;
    if (const CUresult error = ReadNodes(dependencies, count, &after); error != CUDA_SUCCESS) return error;
    for (const Node* node : after) {
      if (!found->Owns(node)) return CUDA_ERROR_INVALID_VALUE;
    }
    const StreamLock lock = LockStreams();
    Node* node = found->Add(std::move(operation), std::move(after));
    if (child != nullptr) node->child = CloneGraph(*child);
    *handle = HandleOf(node);
    return CUDA_SUCCESS;
  });
}

// For the kinds whose parameters can be queried.
template <typename Kind>
std::shared_ptr<const Kind> OperationOf(const NodePtr& node) {
  return std::dynamic_pointer_cast<const Kind>(node->operation);
}

CUresult Replace(CUgraphNode handle, const OperationPtr& operation) {
  return WithNode(handle, [&](const NodePtr& node) {
    if (node->operation->type() != operation->type()) return CUDA_ERROR_INVALID_VALUE;
    const StreamLock lock = LockStreams();
    node->operation = operation;
    return CUDA_SUCCESS;
  });
}

CUresult ReplaceIn(CUgraphExec exec, CUgraphNode handle, const OperationPtr& operation) {
  return WithExec(exec, [&](const std::shared_ptr<GraphExec>& found) {
    const StreamLock lock = LockStreams();
    return found->Replace(reinterpret_cast<const Node*>(handle), operation) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

}  // namespace
}  // namespace softgpu::cuda

using namespace softgpu::cuda;  // NOLINT: the C entry points

CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count) {
  return AddNode(node, graph, dependencies, count, std::make_shared<EmptyOperation>());
}

CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS* parameters) {
  OperationPtr operation;
  const CUresult error = KernelFromNode(*parameters, &operation);
  return error != CUDA_SUCCESS ? error : AddNode(node, graph, dependencies, count, operation);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                              const CUDA_MEMCPY3D* parameters, CUcontext context) {
  OperationPtr operation;
  const CUresult error = CopyFromNode(*parameters, context, &operation);
  return error != CUDA_SUCCESS ? error : AddNode(node, graph, dependencies, count, operation);
}

CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS* parameters, CUcontext context) {
  OperationPtr operation;
  const CUresult error = FillFromNode(*parameters, context, &operation);
  return error != CUDA_SUCCESS ? error : AddNode(node, graph, dependencies, count, operation);
}

CUresult cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                            const CUDA_HOST_NODE_PARAMS* parameters) {
  OperationPtr operation;
  const CUresult error = HostFromNode(*parameters, &operation);
  return error != CUDA_SUCCESS ? error : AddNode(node, graph, dependencies, count, operation);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                   CUevent handle) {
  return WithEvent(
      handle, [&](const EventPtr& event) { return AddNode(node, graph, dependencies, count, RecordOperation(event)); });
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                 CUevent handle) {
  return WithEvent(handle, [&](const EventPtr& event) {
    return AddNode(node, graph, dependencies, count, WaitOperation(event->context, event));
  });
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* p) {
  ContextPtr context;
  if (const CUresult error = ContextOf(p->ctx, &context); error != CUDA_SUCCESS) return error;
  std::vector<CUstreamBatchMemOpParams> words(p->paramArray, p->paramArray + p->count);
  return AddNode(node, graph, dependencies, count, std::make_shared<MemoryWordsOperation>(context, std::move(words)));
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, size_t count,
                                  CUgraph child) {
  return WithGraph(child, [&](const GraphPtr& found) {
    return AddNode(node, graph, dependencies, count, std::make_shared<EmptyOperation>(), found);
  });
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* graph) {
  return WithNode(handle, [&](const NodePtr& node) {
    if (node->child == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *graph = AddGraph(node->child);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS* p) {
  return WithNode(handle, [&](const NodePtr& node) {
    const auto kernel = OperationOf<KernelOperation>(node);
    if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
    kernel->Describe(p);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* parameters) {
  OperationPtr operation;
  const CUresult error = KernelFromNode(*parameters, &operation);
  return error != CUDA_SUCCESS ? error : Replace(node, operation);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* parameters) {
  OperationPtr operation;
  const CUresult error = KernelFromNode(*parameters, &operation);
  return error != CUDA_SUCCESS ? error : ReplaceIn(exec, node, operation);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* parameters) {
  OperationPtr operation;
  const CUresult error = CopyFromNode(*parameters, nullptr, &operation);
  return error != CUDA_SUCCESS ? error : Replace(node, operation);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* parameters,
                                        CUcontext context) {
  OperationPtr operation;
  const CUresult error = CopyFromNode(*parameters, context, &operation);
  return error != CUDA_SUCCESS ? error : ReplaceIn(exec, node, operation);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS* p) {
  return WithNode(handle, [&](const NodePtr& node) {
    const auto fill = OperationOf<FillOperation>(node);
    if (fill == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const FillShape& shape = fill->shape();
    *p = {shape.to, shape.pitch, shape.value, shape.element, shape.width, shape.height};
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* parameters) {
  OperationPtr operation;
  const CUresult error = FillFromNode(*parameters, nullptr, &operation);
  return error != CUDA_SUCCESS ? error : Replace(node, operation);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* parameters,
                                        CUcontext context) {
  OperationPtr operation;
  const CUresult error = FillFromNode(*parameters, context, &operation);
  return error != CUDA_SUCCESS ? error : ReplaceIn(exec, node, operation);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode handle, CUDA_HOST_NODE_PARAMS* p) {
  return WithNode(handle, [&](const NodePtr& node) {
    const auto host = OperationOf<HostOperation>(node);
    if (host == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *p = host->parameters();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* parameters) {
  OperationPtr operation;
  const CUresult error = HostFromNode(*parameters, &operation);
  return error != CUDA_SUCCESS ? error : Replace(node, operation);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* parameters) {
  OperationPtr operation;
  const CUresult error = HostFromNode(*parameters, &operation);
  return error != CUDA_SUCCESS ? error : ReplaceIn(exec, node, operation);
}
