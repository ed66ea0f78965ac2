// cuGraph*: whole graphs, their structure, instantiation and launch; user objects.
#include <algorithm>
#include <fstream>

#include "tools/softgpu/cuda/driver/graph_nodes.h"

using namespace softgpu::cuda;  // NOLINT: the C entry points

namespace {

// Returns lists like CUDA: with a null list, only the count.
CUresult PutNodes(const std::vector<Node*>& nodes, CUgraphNode* handles, size_t* count) {
  if (handles == nullptr) {
    *count = nodes.size();
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < *count; ++i) handles[i] = i < nodes.size() ? HandleOf(nodes[i]) : nullptr;
  *count = std::min(*count, nodes.size());
  return CUDA_SUCCESS;
}

const char* NameOf(const Node& node) {
  if (node.child != nullptr) return "graph";
  switch (node.operation->type()) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return "kernel";
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return "copy";
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return "set";
    case CU_GRAPH_NODE_TYPE_HOST:
      return "host function";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "wait for an event";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "record an event";
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return "empty";
    default:
      return "other";
  }
}

CUresult Instantiate(CUgraphExec* handle, CUgraph graph, unsigned long long flags) {
  return WithGraph(graph, [&](const GraphPtr& found) {
    const StreamLock lock = LockStreams();
    std::shared_ptr<GraphExec> exec = GraphExec::Instantiate(*found);
    if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
    exec->flags = flags;
    *handle = reinterpret_cast<CUgraphExec>(HandlesOf<GraphExec>().Add(std::move(exec)));
    return CUDA_SUCCESS;
  });
}

template <typename Change>
CUresult ChangeEdges(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count,
                     const Change& change) {
  return WithGraph(graph, [&](const GraphPtr& found) {
    std::vector<Node*> sources, targets;
    CUresult error = ReadNodes(from, count, &sources);
    if (error == CUDA_SUCCESS) error = ReadNodes(to, count, &targets);
    if (error != CUDA_SUCCESS) return error;
    const StreamLock lock = LockStreams();
    for (size_t i = 0; i < count; ++i) {
      if (!found->Owns(sources[i]) || !found->Owns(targets[i])) return CUDA_ERROR_INVALID_VALUE;
      change(sources[i], &targets[i]->dependencies);
    }
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult cuGraphCreate(CUgraph* graph, unsigned flags) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *graph = AddGraph(NewGraph());
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  return HandlesOf<Graph>().Remove(graph) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph* clone, CUgraph graph) {
  return WithGraph(graph, [&](const GraphPtr& found) {
    const StreamLock lock = LockStreams();
    *clone = AddGraph(CloneGraph(*found));
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  return WithNode(handle, [&](const NodePtr& node) {
    *type = node->child != nullptr ? CU_GRAPH_NODE_TYPE_GRAPH : node->operation->type();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* handles, size_t* count) {
  return WithGraph(graph, [&](const GraphPtr& found) {
    std::vector<Node*> nodes;
    for (const NodePtr& node : found->nodes) nodes.push_back(node.get());
    return PutNodes(nodes, handles, count);
  });
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode* handles, size_t* count) {
  return WithGraph(graph, [&](const GraphPtr& found) {
    std::vector<Node*> nodes;
    for (const NodePtr& node : found->nodes) {
      if (node->dependencies.empty()) nodes.push_back(node.get());
    }
    return PutNodes(nodes, handles, count);
  });
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
  return WithGraph(graph, [&](const GraphPtr& found) {
    std::vector<Node*> sources, targets;
    for (const NodePtr& node : found->nodes) {
      for (Node* before : node->dependencies) {
        sources.push_back(before);
        targets.push_back(node.get());
      }
    }
    if (data != nullptr && from != nullptr) std::fill_n(data, std::min(*count, sources.size()), CUgraphEdgeData{});
    size_t room = *count;
    PutNodes(targets, to, &room);
    return PutNodes(sources, from, count);
  });
}

CUresult cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode* handles, CUgraphEdgeData* data, size_t* count) {
  return WithNode(handle, [&](const NodePtr& node) {
    if (data != nullptr) std::fill_n(data, std::min(*count, node->dependencies.size()), CUgraphEdgeData{});
    return PutNodes(node->dependencies, handles, count);
  });
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode handle, CUgraphNode* handles, CUgraphEdgeData* data, size_t* count) {
  return WithNode(handle, [&](const NodePtr& node) {
    std::vector<Node*> dependents;
    for (const NodePtr& other : node->graph->nodes) {
      const std::vector<Node*>& before = other->dependencies;
      if (std::find(before.begin(), before.end(), node.get()) != before.end()) dependents.push_back(other.get());
    }
    if (data != nullptr) std::fill_n(data, std::min(*count, dependents.size()), CUgraphEdgeData{});
    return PutNodes(dependents, handles, count);
  });
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData*,
                                size_t count) {
  return ChangeEdges(graph, from, to, count,
                     [](Node* source, std::vector<Node*>* dependencies) { dependencies->push_back(source); });
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData*, size_t count) {
  return ChangeEdges(graph, from, to, count,
                     [](Node* source, std::vector<Node*>* dependencies) { std::erase(*dependencies, source); });
}

CUresult cuGraphDestroyNode(CUgraphNode handle) {
  return WithNode(handle, [&](const NodePtr& node) {
    const StreamLock lock = LockStreams();
    for (const NodePtr& other : node->graph->nodes) std::erase(other->dependencies, node.get());
    HandlesOf<Node>().Remove(node.get());
    std::erase(node->graph->nodes, node);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return Instantiate(exec, graph, flags);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  const CUresult error = Instantiate(exec, graph, parameters->flags);
  parameters->result_out = error == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  parameters->hErrNode_out = nullptr;
  return error;
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
  return WithExec(handle, [&](const std::shared_ptr<GraphExec>& exec) {
    *flags = exec->flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  std::shared_ptr<GraphExec> exec = HandlesOf<GraphExec>().Remove(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphExec::Retire(std::move(exec));
  return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate(CUgraphExec handle, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  return WithExec(handle, [&](const std::shared_ptr<GraphExec>& exec) {
    return WithGraph(graph, [&](const GraphPtr& found) {
      const StreamLock lock = LockStreams();
      const bool same = exec->Update(*found);
      if (info != nullptr) {
        *info = {};
        info->result = same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
      }
      return same ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    });
  });
}

// In Graphviz's language; `flags` ask for more details than these.
CUresult cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return WithGraph(handle, [&](const GraphPtr& graph) {
    std::ofstream file(path);
    const StreamLock lock = LockStreams();
    file << "digraph graph_" << graph->id << " {\n";
    for (const NodePtr& node : graph->nodes) {
      file << "  node_" << node.get() << " [label=\"" << NameOf(*node) << "\"];\n";
      for (const Node* before : node->dependencies) file << "  node_" << before << " -> node_" << node.get() << ";\n";
    }
    file << "}\n";
    file.close();
    return file ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
  });
}

// There is no memory to upload to.
CUresult cuGraphUpload(CUgraphExec handle, CUstream stream) {
  return WithStream(stream, [&](const StreamPtr&) {
    return WithExec(handle, [](const std::shared_ptr<GraphExec>&) { return CUDA_SUCCESS; });
  });
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream) {
  return WithStream(stream, [&](const StreamPtr& found) {
    return WithExec(handle, [&](const std::shared_ptr<GraphExec>& exec) { return LaunchGraph(found, exec); });
  });
}

CUresult cuUserObjectCreate(CUuserObject* handle, void* object, CUhostFn destroy, unsigned references, unsigned flags) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  if (destroy == nullptr || references == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return CUDA_ERROR_INVALID_VALUE;
  *handle = reinterpret_cast<CUuserObject>(
      HandlesOf<UserObject>().Add(std::make_shared<UserObject>(object, destroy, references)));
  return CUDA_SUCCESS;
}

namespace {

template <typename Function>
CUresult WithUserObject(CUuserObject handle, unsigned count, const Function& function) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  const UserObjectHold object = HandlesOf<UserObject>().Find(handle);
  return object == nullptr || count == 0 ? CUDA_ERROR_INVALID_VALUE : function(object);
}

}  // namespace

CUresult cuUserObjectRetain(CUuserObject handle, unsigned count) {
  return WithUserObject(handle, count, [&](const UserObjectHold& object) {
    object->Retain(count);
    return CUDA_SUCCESS;
  });
}

CUresult cuUserObjectRelease(CUuserObject handle, unsigned count) {
  return WithUserObject(handle, count, [&](const UserObjectHold& object) {
    return object->Release(count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject handle, unsigned count, unsigned flags) {
  return WithGraph(graph, [&](const GraphPtr& found) {
    return WithUserObject(handle, count, [&](const UserObjectHold& object) {
      if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) object->Retain(count);
      const StreamLock lock = LockStreams();
      found->holds.emplace_back(object, count);
      return CUDA_SUCCESS;
    });
  });
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject handle, unsigned count) {
  return WithGraph(graph, [&](const GraphPtr& found) {
    return WithUserObject(handle, count, [&](const UserObjectHold& object) {
      const StreamLock lock = LockStreams();
      for (auto hold = found->holds.begin(); hold != found->holds.end(); ++hold) {
        if (hold->first != object || hold->second < count) continue;
        hold->second -= count;
        if (hold->second == 0) found->holds.erase(hold);
        object->Release(count);
        return CUDA_SUCCESS;
      }
      return CUDA_ERROR_INVALID_VALUE;
    });
  });
}
