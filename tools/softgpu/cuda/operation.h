// Operations on a stream or in a graph: descriptions that may be run any number of times.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tools/softgpu/cuda/context.h"
#include "tools/softgpu/cuda/cuda_api.h"
#include "tools/softgpu/cuda/scheduler.h"

namespace softgpu::cuda {

// Immutable; shared by the graphs and launches that use it.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual CUgraphNodeType type() const = 0;
  // Returns null for an operation that only joins.
  virtual std::unique_ptr<Work> Begin() const = 0;
  // Adds what must be done before, besides what precedes it in its stream. Under the lock of stream.h.
  virtual void AddPrerequisites(std::vector<TaskPtr>* after) const {}
  // Called with the task that it has become. Under the lock of stream.h.
  virtual void Submitted(const TaskPtr& task) const {}
};
using OperationPtr = std::shared_ptr<const Operation>;

// Runs a function once, unless the context has failed.
class FunctionWork : public Work {
 public:
  FunctionWork(ContextPtr context, std::function<void()> function, int host_thread = -1)
      : context_(std::move(context)), function_(std::move(function)), host_thread_(host_thread) {}
  Progress Advance() override {
    if (context_->error() == CUDA_SUCCESS) function_();
    return Progress::kDone;
  }
  int host_thread() const override { return host_thread_; }

 private:
  ContextPtr context_;
  std::function<void()> function_;
  int host_thread_;
};

// ---- the kinds ----

class EmptyOperation : public Operation {
 public:
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_EMPTY; }
  std::unique_ptr<Work> Begin() const override { return nullptr; }
};

// Rows of bytes from one place to another.
struct CopyShape {
  uint64_t to = 0, from = 0;
  size_t width = 0, height = 1, depth = 1;
  size_t to_pitch = 0, from_pitch = 0;  // between rows
  size_t to_slice = 0, from_slice = 0;  // between layers
};

// Copies at once.
void Copy(const CopyShape& shape);

class CopyOperation : public Operation {
 public:
  CopyOperation(ContextPtr context, const CopyShape& shape) : context_(std::move(context)), shape_(shape) {}
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_MEMCPY; }
  std::unique_ptr<Work> Begin() const override;

 private:
  ContextPtr context_;
  CopyShape shape_;
};

struct FillShape {
  uint64_t to = 0;
  uint32_t value = 0;
  unsigned element = 1;                     // bytes: 1, 2 or 4
  size_t width = 0, height = 1, pitch = 0;  // width in elements, pitch in bytes
};

class FillOperation : public Operation {
 public:
  FillOperation(ContextPtr context, const FillShape& shape) : context_(std::move(context)), shape_(shape) {}
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_MEMSET; }
  std::unique_ptr<Work> Begin() const override;
  const FillShape& shape() const { return shape_; }

 private:
  ContextPtr context_;
  FillShape shape_;
};

class HostOperation : public Operation {
 public:
  HostOperation(ContextPtr context, CUhostFn function, void* data)
      : context_(std::move(context)), function_(function), data_(data) {}
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_HOST; }
  std::unique_ptr<Work> Begin() const override;
  CUDA_HOST_NODE_PARAMS parameters() const { return {function_, data_}; }

 private:
  ContextPtr context_;
  CUhostFn function_;
  void* data_;
};

// Any function, for operations without a kind of their own.
class CallOperation : public Operation {
 public:
  CallOperation(ContextPtr context, std::function<void()> function, int host_thread = -1)
      : context_(std::move(context)), function_(std::move(function)), host_thread_(host_thread) {}
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_HOST; }
  std::unique_ptr<Work> Begin() const override {
    return std::make_unique<FunctionWork>(context_, function_, host_thread_);
  }

 private:
  ContextPtr context_;
  std::function<void()> function_;
  int host_thread_;
};

// Writes and waits of memory words, in order.
class MemoryWordsOperation : public Operation {
 public:
  MemoryWordsOperation(ContextPtr context, std::vector<CUstreamBatchMemOpParams> words)
      : context_(std::move(context)), words_(std::move(words)) {}
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP; }
  std::unique_ptr<Work> Begin() const override;

 private:
  ContextPtr context_;
  std::vector<CUstreamBatchMemOpParams> words_;
};

}  // namespace softgpu::cuda
