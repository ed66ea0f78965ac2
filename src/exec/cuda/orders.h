// The orders in which a rank's launches on its device follow each other, whichever streams they are enqueued on: those
// on the default channel and for its messages have one, those on each created channel another.
//
// A launch that is captured into a graph takes its place when the graph is launched: the graph waits for the event that
// ends the order's last launch, and records it again. CUDA counts both when the graph is launched, as NCCL does for its
// mixture of graphs and other calls. Within a capture, launches follow each other by an event of the capture.
//
// Used by one thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "src/device/host/timeline.h"

namespace axccl::exec {

// The stream of a launch.
struct OrderedStream {
  // `capture`: the id of the stream's (CaptureOf); 0: none.
  static Result<OrderedStream> Of(CUstream stream, uint64_t capture);

  CUstream stream = nullptr;
  uint64_t capture = 0;
  // Outside of captures. A new stream may have the handle of one that was destroyed while its work goes on, so handles
  // do not tell whether two launches follow each other by themselves.
  unsigned long long id = 0;
};

class CudaOrders {
 public:
  explicit CudaOrders(const device::cuda::Device* device) : device_(device) {}
  ~CudaOrders();
  CudaOrders(const CudaOrders&) = delete;
  CudaOrders& operator=(const CudaOrders&) = delete;

  const device::cuda::Device* device() const { return device_; }

  // Makes what follows on the stream wait for what was launched in that order.
  Status Follow(const device::host::Timeline* timeline, const OrderedStream& stream);
  // Records that work was enqueued on the stream. Returns the event that has recorded it.
  Result<CUevent> Launched(const device::host::Timeline* timeline, const OrderedStream& stream);
  // An event for ordering one stream behind another. A wait refers to the last record, so one event can be reused.
  Result<CUevent> OrderingEvent();

  // Whether everything that was launched is done: in all orders, or in one.
  bool AreDone() const;
  bool IsDone(const device::host::Timeline* timeline) const;
  // Events that occur when it is.
  std::vector<CUevent> Ends() const;
  // No launch in that order will follow, and it is done.
  void Forget(const device::host::Timeline* timeline);

 private:
  struct Order {
    const device::host::Timeline* of = nullptr;  // null: unused at present
    CUevent done = nullptr;                      // of the last launch
    unsigned long long stream = 0;               // OrderedStream::id of the last launch
    bool launched = false;                       // outside of graphs
    bool in_graphs = false;                      // captured, so that a graph may record `done` at any time
    uint64_t capture = 0;                        // the last one
    CUevent captured = nullptr;                  // of the last launch in it
  };

  static Status FollowInGraph(const Order& order, CUstream stream, uint64_t capture);
  Status LaunchedInGraph(Order* order, CUstream stream, uint64_t capture);

  Result<Order*> OrderOf(const device::host::Timeline* timeline);
  static bool IsDone(const Order& order);

  const device::cuda::Device* const device_;
  std::vector<Order> orders_;
  CUevent ordering_ = nullptr;
};

}  // namespace axccl::exec
