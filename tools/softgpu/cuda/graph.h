// CUDA graphs: operations with edges between them, built by hand or by capture, and their executable form. Guarded by
// the lock of stream.h.
#pragma once

#include <memory>
#include <vector>

#include "tools/softgpu/cuda/cuda_api.h"
#include "tools/softgpu/cuda/operation.h"

namespace softgpu::cuda {

// An object of the program that lives while references exist, also in graphs.
class UserObject {
 public:
  UserObject(void* object, CUhostFn destroy, unsigned references)
      : object_(object), destroy_(destroy), references_(references) {}
  void Retain(unsigned count);
  // The last release calls the destructor, on a host thread of the driver. Returns false if there are not so many
  // references.
  bool Release(unsigned count);

 private:
  void* object_;
  CUhostFn destroy_;
  std::mutex mutex_;
  uint64_t references_;
};

// A reference that ends with its owner.
using UserObjectHold = std::shared_ptr<UserObject>;

struct Graph;

struct Node {
  Graph* graph = nullptr;
  OperationPtr operation;
  std::vector<Node*> dependencies;
  std::shared_ptr<Graph> child;  // of a child graph node; then operation is empty
};
using NodePtr = std::shared_ptr<Node>;

struct Graph {
  explicit Graph(uint64_t id) : id(id) {}
  ~Graph();
  Node* Add(OperationPtr operation, std::vector<Node*> dependencies);
  bool Owns(const Node* node) const;

  const uint64_t id;
  std::vector<NodePtr> nodes;  // in the order of their creation
  std::vector<std::pair<UserObjectHold, unsigned>> holds;
};
using GraphPtr = std::shared_ptr<Graph>;

GraphPtr NewGraph();
// Returns a copy with nodes of its own; `copies` (may be null) maps nodes to their copies.
GraphPtr CloneGraph(const Graph& graph);

// The form that is launched. Two launches of one never overlap.
class GraphExec {
 public:
  // Returns null if the edges form a cycle.
  static std::shared_ptr<GraphExec> Instantiate(const Graph& graph);
  ~GraphExec();
  // Starts it after `after`; the returned task ends when all of it is done.
  TaskPtr Launch(std::vector<TaskPtr> after);
  // Takes over the operations of a graph of the same structure; false if the structure differs.
  bool Update(const Graph& graph);
  // Returns false if `node` is not part of the graph that this was made from.
  bool Replace(const Node* node, OperationPtr operation);
  // Keeps it until the last launch is done.
  static void Retire(std::shared_ptr<GraphExec> exec);
  unsigned long long flags = 0;

 private:
  struct Step {
    const Node* node;  // for Replace() only; may be gone
    OperationPtr operation;
    std::vector<size_t> dependencies;
  };

  static bool Flatten(const Graph& graph, std::vector<size_t> entry, std::vector<Step>* steps,
                      std::vector<size_t>* leaves);
  static std::vector<size_t> RecordsOf(const std::vector<Step>& steps);

  std::vector<Step> steps_;
  std::vector<size_t> records_;  // the steps that record events, in the order in which they count as recorded
  std::vector<size_t> leaves_;
  std::vector<std::pair<UserObjectHold, unsigned>> holds_;
  TaskPtr last_;
};

}  // namespace softgpu::cuda
