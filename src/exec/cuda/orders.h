// The orders in which a rank's launches on its device follow each other, whichever streams they are enqueued on: those
// on the default channel and for its messages have one, those on each created channel another.
//
// A launch that is captured into a graph takes its place when the graph is launched: the graph waits for the event that
// ends the order's last launch, and records it again. CUDA counts both when the graph is launched, as NCCL does for its
// mixture of graphs and other calls. Within a capture, launches follow each other by an event of the capture. Several
// captures may be under way at a time, kMostCaptures of which are remembered.
//
// One event ends the launch of a group in the orders of all its ranks, as long as no graph records it. CUDA's rules
// about events on which this relies: a wait refers to the last record before it, and lasts even if the event is
// recorded again, or destroyed; an event that is recorded in a graph is recorded whenever the graph is launched. So an
// event may be recorded again only if all orders whose end it is take part, and one that a graph waits for, never. If
// several nodes of a graph record an event, the last one counts, and only dependencies say which that is.
//
// Used by one thread at a time, but orders of several ranks may share events.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "src/device/host/timeline.h"

namespace axccl::exec {

// The stream of a launch. If it is captured, or its handle stands for a stream of the current context, that of the
// device is current.
struct OrderedStream {
  // `capture`: the id of the stream's (CaptureOf); 0: none.
  static Result<OrderedStream> Of(const device::cuda::Device& device, CUstream stream, uint64_t capture);

  CUstream stream = nullptr;
  uint64_t capture = 0;
  // Outside of captures. A new stream may have the handle of one that was destroyed while its work goes on, so handles
  // do not tell whether two launches follow each other by themselves.
  unsigned long long id = 0;
};

class CudaOrders {
 public:
  // The end of a launch.
  struct End {
    End(const device::cuda::Device* d, CUevent e) : device(d), event(e) {}
    ~End();
    End(const End&) = delete;
    End& operator=(const End&) = delete;

    const device::cuda::Device* const device;
    const CUevent event;
    std::atomic<bool> in_graphs{false};  // a graph records it or waits for it; graphs may outlive their communicators
  };
  // An order of a rank.
  struct Place {
    CudaOrders* orders;
    const device::host::Timeline* timeline;
    friend bool operator==(const Place&, const Place&) = default;
  };

  // `mixes_graphs`: false: graphs have no place in an order, and get no nodes for it. (CUDA allows none in the bodies
  // of conditional nodes.) Within a capture, launches follow each other.
  CudaOrders(const device::cuda::Device* device, bool mixes_graphs) : device_(device), mixes_graphs_(mixes_graphs) {}
  ~CudaOrders();
  CudaOrders(const CudaOrders&) = delete;
  CudaOrders& operator=(const CudaOrders&) = delete;

  const device::cuda::Device* device() const { return device_; }

  // Makes what follows on the stream wait for what was launched in these orders.
  static Status Follow(std::span<const Place> places, const OrderedStream& stream);
  Status Follow(const device::host::Timeline* timeline, const OrderedStream& stream) {
    return Follow(std::array{Place{this, timeline}}, stream);
  }
  // Records that work was enqueued on the stream, in all of these orders. Returns an event that has recorded it.
  static Result<CUevent> Launched(std::span<const Place> places, const OrderedStream& stream);
  Result<CUevent> Launched(const device::host::Timeline* timeline, const OrderedStream& stream) {
    return Launched(std::array{Place{this, timeline}}, stream);
  }
  // An event for ordering one stream behind another. A wait refers to the last record, so one event can be reused.
  Result<CUevent> OrderingEvent();

  // Whether everything that was launched is done: in all orders, or in one.
  bool AreDone() const;
  bool IsDone(const device::host::Timeline* timeline) const;
  // Whether graphs may be under way of which AreDone does not know.
  bool overlooks_graphs() const { return overlooks_graphs_; }
  // When they occur, it is.
  std::vector<std::shared_ptr<const End>> Ends() const;
  // No launch in that order will follow, and it is done.
  void Forget(const device::host::Timeline* timeline);

 private:
  // What a capture has of an order.
  struct Capture {
    uint64_t id = 0;
    CUevent captured = nullptr;      // of the last launch
    CUgraphNode recorded = nullptr;  // by which the graph records the end of that launch, once it runs
  };
  static constexpr size_t kMostCaptures = 16;
  struct Order {
    const device::host::Timeline* of = nullptr;  // null: unused at present
    std::shared_ptr<End> done;                   // of the last launch; null: there was none
    unsigned long long stream = 0;               // OrderedStream::id of the last launch
    bool launched = false;                       // outside of graphs
    // Captured, so that a graph may record `done`, which is of this order alone, at any time.
    bool in_graphs = false;
    std::shared_ptr<End> before;    // of the last launch before that, which other orders may have, too
    std::vector<Capture> captures;  // the last one is the one that was used last
  };

  static Capture* FindCapture(Order* order, uint64_t id);
  Result<Capture*> CaptureFor(Order* order, uint64_t id);
  Status TakeIntoGraphs(Order* order);
  Status FollowInGraph(Order* order, CUstream stream, uint64_t capture);
  Status LaunchedInGraph(Order* order, CUstream stream, uint64_t capture);

  Order* OrderOf(const device::host::Timeline* timeline);
  Result<std::shared_ptr<End>> MakeEnd();
  Result<std::shared_ptr<End>> EndFor(std::span<const Place> places);
  static bool IsDone(const Order& order);

  const device::cuda::Device* const device_;
  const bool mixes_graphs_;
  bool overlooks_graphs_ = false;
  std::deque<Order> orders_;
  std::vector<std::shared_ptr<End>> ends_;  // all that this object has made
  CUevent ordering_ = nullptr;
};

}  // namespace axccl::exec
