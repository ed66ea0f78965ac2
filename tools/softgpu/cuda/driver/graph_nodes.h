// Handles of graphs and nodes, for the entry points.
#pragma once

#include <vector>

#include "tools/softgpu/cuda/driver/entry.h"
#include "tools/softgpu/cuda/graph.h"
#include "tools/softgpu/cuda/module.h"

namespace softgpu::cuda {

inline CUgraphNode HandleOf(Node* node) { return reinterpret_cast<CUgraphNode>(node); }
// Adding a graph that has a handle already changes nothing.
inline CUgraph AddGraph(GraphPtr graph) { return reinterpret_cast<CUgraph>(HandlesOf<Graph>().Add(std::move(graph))); }

template <typename Function>
CUresult WithGraph(CUgraph handle, const Function& function) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  const GraphPtr graph = HandlesOf<Graph>().Find(handle);
  return graph == nullptr ? CUDA_ERROR_INVALID_VALUE : function(graph);
}

template <typename Function>
CUresult WithNode(CUgraphNode handle, const Function& function) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  const NodePtr node = HandlesOf<Node>().Find(handle);
  return node == nullptr ? CUDA_ERROR_INVALID_VALUE : function(node);
}

template <typename Function>
CUresult WithExec(CUgraphExec handle, const Function& function) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  const std::shared_ptr<GraphExec> exec = HandlesOf<GraphExec>().Find(handle);
  return exec == nullptr ? CUDA_ERROR_INVALID_VALUE : function(exec);
}

inline CUresult ReadNodes(const CUgraphNode* handles, size_t count, std::vector<Node*>* nodes) {
  for (size_t i = 0; i < count; ++i) {
    const NodePtr node = HandlesOf<Node>().Find(handles[i]);
    if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
    nodes->push_back(node.get());
  }
  return CUDA_SUCCESS;
}

// Returns the context of a handle; the current one for null.
CUresult ContextOf(CUcontext handle, ContextPtr* context);

// ---- operations from the parameters of nodes ----
CUresult KernelFromNode(const CUDA_KERNEL_NODE_PARAMS& parameters, OperationPtr* operation);
CUresult CopyFromNode(const CUDA_MEMCPY3D& parameters, CUcontext context, OperationPtr* operation);
CUresult FillFromNode(const CUDA_MEMSET_NODE_PARAMS& parameters, CUcontext context, OperationPtr* operation);
CUresult HostFromNode(const CUDA_HOST_NODE_PARAMS& parameters, OperationPtr* operation);

}  // namespace softgpu::cuda
