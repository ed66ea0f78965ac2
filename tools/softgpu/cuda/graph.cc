#include "tools/softgpu/cuda/graph.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <queue>
#include <thread>

namespace softgpu::cuda {
namespace {

void RetainAll(const std::vector<std::pair<UserObjectHold, unsigned>>& holds) {
  for (const auto& [object, count] : holds) object->Retain(count);
}

void ReleaseAll(const std::vector<std::pair<UserObjectHold, unsigned>>& holds) {
  for (const auto& [object, count] : holds) object->Release(count);
}

}  // namespace

void UserObject::Retain(unsigned count) {
  std::lock_guard lock(mutex_);
  references_ += count;
}

bool UserObject::Release(unsigned count) {
  {
    std::lock_guard lock(mutex_);
    if (count > references_) return false;
    references_ -= count;
    if (references_ > 0) return true;
  }
  HandlesOf<UserObject>().Remove(this);
  // Not on this thread: the caller may hold locks that the destructor needs.
  std::thread(destroy_, object_).detach();
  return true;
}

Graph::~Graph() {
  for (const NodePtr& node : nodes) HandlesOf<Node>().Remove(node.get());
  ReleaseAll(holds);
}

Node* Graph::Add(OperationPtr operation, std::vector<Node*> dependencies) {
  auto node = std::make_shared<Node>();
  node->graph = this;
  node->operation = std::move(operation);
  node->dependencies = std::move(dependencies);
  nodes.push_back(node);
  return HandlesOf<Node>().Add(node);
}

bool Graph::Owns(const Node* node) const {
  return std::any_of(nodes.begin(), nodes.end(), [&](const NodePtr& own) { return own.get() == node; });
}

GraphPtr NewGraph() {
  static std::atomic<uint64_t> last_id{0};
  return std::make_shared<Graph>(++last_id);
}

GraphPtr CloneGraph(const Graph& graph) {
  GraphPtr copy = NewGraph();
  std::map<const Node*, Node*> copies;
  for (const NodePtr& node : graph.nodes) {
    Node* twin = copy->Add(node->operation, {});
    if (node->child != nullptr) twin->child = CloneGraph(*node->child);
    copies[node.get()] = twin;
  }
  for (const NodePtr& node : graph.nodes) {
    for (const Node* before : node->dependencies) copies[node.get()]->dependencies.push_back(copies[before]);
  }
  copy->holds = graph.holds;
  RetainAll(copy->holds);
  return copy;
}

// Appends the nodes of `graph` in an order in which each follows those that it depends on. Nodes without dependencies
// follow `entry`.
bool GraphExec::Flatten(const Graph& graph, std::vector<size_t> entry, std::vector<Step>* steps,
                        std::vector<size_t>* leaves) {
  std::map<const Node*, size_t> place;
  std::map<const Node*, bool> has_dependent;
  for (const NodePtr& node : graph.nodes) {
    for (const Node* before : node->dependencies) has_dependent[before] = true;
  }
  size_t placed = 0;
  for (bool advanced = true; advanced && placed < graph.nodes.size();) {
    advanced = false;
    for (const NodePtr& node : graph.nodes) {
      const bool ready = std::all_of(node->dependencies.begin(), node->dependencies.end(),
                                     [&](const Node* before) { return place.contains(before); });
      if (!ready || place.contains(node.get())) continue;
      std::vector<size_t> after = node->dependencies.empty() ? entry : std::vector<size_t>();
      for (const Node* before : node->dependencies) after.push_back(place[before]);
      if (node->child != nullptr) {
        std::vector<size_t> ends;
        if (!Flatten(*node->child, after, steps, &ends)) return false;
        if (!ends.empty()) after = ends;
      }
      place[node.get()] = steps->size();
      if (!has_dependent[node.get()]) leaves->push_back(steps->size());
      steps->push_back({node.get(), node->operation, after});
      ++placed;
      advanced = true;
    }
  }
  return placed == graph.nodes.size();
}

// Of several records of an event the last one counts. CUDA does not say which that is where no dependency does: here it
// is the one that was added first.
std::vector<size_t> GraphExec::RecordsOf(const std::vector<Step>& steps) {
  std::vector<size_t> missing(steps.size()), records;
  std::vector<std::vector<size_t>> followers(steps.size());
  std::priority_queue<size_t> ready;
  for (size_t i = 0; i < steps.size(); ++i) {
    missing[i] = steps[i].dependencies.size();
    for (const size_t before : steps[i].dependencies) followers[before].push_back(i);
    if (missing[i] == 0) ready.push(i);
  }
  while (!ready.empty()) {
    const size_t step = ready.top();
    ready.pop();
    if (steps[step].operation->type() == CU_GRAPH_NODE_TYPE_EVENT_RECORD) records.push_back(step);
    for (const size_t follower : followers[step]) {
      if (--missing[follower] == 0) ready.push(follower);
    }
  }
  return records;
}

std::shared_ptr<GraphExec> GraphExec::Instantiate(const Graph& graph) {
  auto exec = std::make_shared<GraphExec>();
  if (!Flatten(graph, {}, &exec->steps_, &exec->leaves_)) return nullptr;
  exec->records_ = RecordsOf(exec->steps_);
  exec->holds_ = graph.holds;
  RetainAll(exec->holds_);
  return exec;
}

namespace {

struct HoldWork : Work {
  explicit HoldWork(std::shared_ptr<GraphExec> exec) : exec(std::move(exec)) {}
  Progress Advance() override { return Progress::kDone; }
  std::shared_ptr<GraphExec> exec;
};

}  // namespace

void GraphExec::Retire(std::shared_ptr<GraphExec> exec) {
  const TaskPtr last = exec->last_;
  Scheduler::Get().Submit(std::make_unique<HoldWork>(std::move(exec)), {last});
}

GraphExec::~GraphExec() { ReleaseAll(holds_); }

TaskPtr GraphExec::Launch(std::vector<TaskPtr> after) {
  Scheduler& scheduler = Scheduler::Get();
  after.push_back(last_);
  std::vector<TaskPtr> tasks;
  for (const Step& step : steps_) {
    std::vector<TaskPtr> before;
    for (const size_t index : step.dependencies) before.push_back(tasks[index]);
    if (before.empty()) before = after;
    step.operation->AddPrerequisites(&before);
    tasks.push_back(scheduler.Submit(step.operation->Begin(), before));
  }
  for (const size_t record : records_) steps_[record].operation->Submitted(tasks[record]);
  std::vector<TaskPtr> ends;
  for (const size_t leaf : leaves_) ends.push_back(tasks[leaf]);
  last_ = scheduler.Submit(nullptr, ends.empty() ? after : ends);
  return last_;
}

bool GraphExec::Update(const Graph& graph) {
  std::vector<Step> steps;
  std::vector<size_t> leaves;
  if (!Flatten(graph, {}, &steps, &leaves) || steps.size() != steps_.size()) return false;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].dependencies != steps_[i].dependencies) return false;
    if (steps[i].operation->type() != steps_[i].operation->type()) return false;
  }
  // The program may still set parameters by nodes of the first graph.
  for (size_t i = 0; i < steps.size(); ++i) steps_[i].operation = steps[i].operation;
  RetainAll(graph.holds);
  ReleaseAll(holds_);
  holds_ = graph.holds;
  return true;
}

bool GraphExec::Replace(const Node* node, OperationPtr operation) {
  for (Step& step : steps_) {
    if (step.node != node) continue;
    step.operation = std::move(operation);
    return true;
  }
  return false;
}

}  // namespace softgpu::cuda
