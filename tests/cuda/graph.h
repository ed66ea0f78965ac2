// Calls captured on a stream, to be launched any number of times.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "tests/harness/client.h"
#include "tests/harness/gpu_driver.h"

namespace axccl::tests {

class Graph {
 public:
  Graph() = default;
  ~Graph() { Destroy(); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Captures the calls that `calls` enqueues on `stream`.
  void Capture(axcclStream_t stream, const std::function<void()>& calls) {
    constexpr int kThreadLocal = 1;
    ASSERT_NE(driver_, nullptr);
    ASSERT_EQ(driver_->begin_capture(stream, kThreadLocal), 0);
    calls();
    void* graph = nullptr;
    ASSERT_EQ(driver_->end_capture(stream, &graph), 0);
    ASSERT_NE(graph, nullptr);
    ASSERT_EQ(driver_->instantiate(&executable_, graph, 0), 0);
    ASSERT_EQ(driver_->destroy_graph(graph), 0);
  }
  void Launch(axcclStream_t stream) { ASSERT_EQ(driver_->launch_graph(executable_, stream), 0); }
  void Destroy() {
    if (executable_ == nullptr) return;
    EXPECT_EQ(driver_->destroy_executable(executable_), 0);
    executable_ = nullptr;
  }

 private:
  const harness::GpuDriver* const driver_ = harness::EnterGpu();
  void* executable_ = nullptr;
};

}  // namespace axccl::tests
