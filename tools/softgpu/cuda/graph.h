// CUDA graphs: operations with edges between them, built by hand or by capture, and the executable form of one.
// Guarded by the lock of stream.h.
#pragma once

#include <memory>
#include <vector>

#include "tools/softgpu/cuda/cuda_api.h"
#include "tools/softgpu/cuda/operation.h"

namespace softgpu::cuda {

// Something of the program's that lives as long as anybody holds a reference, graphs among them.
class UserObject {
 public:
  UserObject(void* object, CUhostFn destroy, unsigned references)
      : object_(object), destroy_(destroy), references_(references) {}
  void Retain(unsigned count);
  // Calls the destructor, on a host thread of the driver, when the last one goes. False when there are not so many.
  bool Release(unsigned count);

 private:
  void* object_;
  CUhostFn destroy_;
  std::mutex mutex_;
  uint64_t references_;
};

// A reference that ends with its holder.
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
  std::vector<NodePtr> nodes;  // in the order of their making
  std::vector<std::pair<UserObjectHold, unsigned>> holds;
};
using GraphPtr = std::shared_ptr<Graph>;

GraphPtr NewGraph();
// A copy with nodes of its own; `copies` (may be null) tells which copy belongs to which node.
GraphPtr CloneGraph(const Graph& graph);

// What is launched. Two launches of one never overlap.
class GraphExec {
 public:
  // Null when the edges form a circle.
  static std::shared_ptr<GraphExec> Instantiate(const Graph& graph);
  ~GraphExec();
  // Starts it after `after`; the task returned ends when all of it is done.
  TaskPtr Launch(std::vector<TaskPtr> after);
  // Takes over the operations of a graph of the same form; false when its form differs.
  bool Update(const Graph& graph);
  // False when `node` is not of the graph this was made from.
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

  std::vector<Step> steps_;
  std::vector<size_t> leaves_;
  std::vector<std::pair<UserObjectHold, unsigned>> holds_;
  TaskPtr last_;
};

}  // namespace softgpu::cuda
