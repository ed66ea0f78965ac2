// The orders in which a rank's launches on its device follow each other, whichever streams they are enqueued on: those
// on the default channel and for its messages have one, those on each created channel another.
//
// Used by one thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "src/device/host/timeline.h"

namespace axccl::exec {

class CudaOrders {
 public:
  explicit CudaOrders(const device::cuda::Device* device) : device_(device) {}
  ~CudaOrders();
  CudaOrders(const CudaOrders&) = delete;
  CudaOrders& operator=(const CudaOrders&) = delete;

  const device::cuda::Device* device() const { return device_; }

  // Makes what follows on `stream` wait for what was launched in that order.
  Status Follow(const device::host::Timeline* timeline, CUstream stream);
  // Records that work was enqueued on `stream`, outside of graphs.
  Status Launched(const device::host::Timeline* timeline, CUstream stream);
  // An event for ordering one stream behind another. A wait refers to the last record, so one event can be reused.
  Result<CUevent> OrderingEvent();

  // Whether everything that was launched outside of graphs is done: in all orders, or in one.
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
    unsigned long long stream = 0;               // its id: a new stream may have the handle of one that was destroyed
    bool launched = false;
  };

  Result<Order*> OrderOf(const device::host::Timeline* timeline);
  static bool IsDone(const Order& order);

  const device::cuda::Device* const device_;
  std::vector<Order> orders_;
  CUevent ordering_ = nullptr;
};

}  // namespace axccl::exec
