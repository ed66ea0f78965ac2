#include "src/exec/cuda/orders.h"

#include <algorithm>

namespace axccl::exec {
namespace {

// What a stream's next node would depend on.
struct CapturedEnd {
  CUgraph graph = nullptr;
  const CUgraphNode* dependencies = nullptr;
  size_t count = 0;
};

Result<CapturedEnd> EndOfCapture(CUstream stream) {
  const device::cuda::Driver& driver = device::cuda::Driver::Loaded();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CapturedEnd end;
  AXCCL_RETURN_IF_CUDA_ERROR(
      driver.cuStreamGetCaptureInfo(stream, &status, &id, &end.graph, &end.dependencies, &end.count));
  return end;
}

}  // namespace

using device::cuda::Check;
using device::cuda::Driver;
using device::cuda::OnStream;
using device::cuda::Scope;
using device::host::Timeline;

CudaOrders::End::~End() {
  if (in_graphs.load(std::memory_order_relaxed)) return;
  const Scope scope(*device);
  Driver::Loaded().cuEventDestroy(event);
}

CudaOrders::~CudaOrders() {
  const Driver& driver = Driver::Loaded();
  const Scope scope(*device_);
  for (const Order& order : orders_) {
    for (const Capture& capture : order.captures) driver.cuEventDestroy(capture.captured);
  }
  if (ordering_ != nullptr) driver.cuEventDestroy(ordering_);
}

bool CudaOrders::IsDone(const Order& order) {
  const auto pending = [](const std::shared_ptr<End>& end) {
    return end != nullptr && Driver::Loaded().cuEventQuery(end->event) == CUDA_ERROR_NOT_READY;
  };
  if (!order.launched && !order.in_graphs) return true;
  return !pending(order.done) && !pending(order.before);
}

// The watchdog's thread asks, too, and CUDA counts queries of events among the calls that break the captures of other
// threads.
bool CudaOrders::AreDone() const {
  const Scope scope(*device_);
  return std::all_of(orders_.begin(), orders_.end(), [](const Order& order) { return IsDone(order); });
}

bool CudaOrders::IsDone(const Timeline* timeline) const {
  return std::all_of(orders_.begin(), orders_.end(),
                     [=](const Order& order) { return order.of != timeline || IsDone(order); });
}

std::vector<std::shared_ptr<const CudaOrders::End>> CudaOrders::Ends() const {
  std::vector<std::shared_ptr<const End>> ends;
  for (const Order& order : orders_) {
    for (const auto& end : {order.done, order.before}) {
      if (end != nullptr) ends.push_back(end);
    }
  }
  return ends;
}

void CudaOrders::Forget(const Timeline* timeline) {
  for (Order& order : orders_) {
    if (order.of != timeline) continue;
    order.of = nullptr;
    if (!order.in_graphs) order.done = nullptr;
  }
}

// Forgotten entries are reused.
CudaOrders::Order* CudaOrders::OrderOf(const Timeline* timeline) {
  Order* free = nullptr;
  for (Order& order : orders_) {
    if (order.of == timeline) return &order;
    if (order.of == nullptr) free = &order;
  }
  if (free == nullptr) free = &orders_.emplace_back();
  free->of = timeline;
  free->launched = false;
  for (Capture& capture : free->captures) capture.id = 0;
  return free;
}

Result<std::shared_ptr<CudaOrders::End>> CudaOrders::MakeEnd() {
  const Scope scope(*device_);
  CUevent event = nullptr;
  AXCCL_RETURN_IF_CUDA_ERROR(Driver::Loaded().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
  return ends_.emplace_back(std::make_shared<End>(device_, event));
}

// For a launch in these orders, some of which are this object's: one that ends no launch in another order. Other
// threads may only let go of it meanwhile, or hold it for a while.
Result<std::shared_ptr<CudaOrders::End>> CudaOrders::EndFor(std::span<const Place> places) {
  for (const std::shared_ptr<End>& end : ends_) {
    const auto ends = [&](const Place& place) { return place.orders->OrderOf(place.timeline)->done == end; };
    const auto here = std::count_if(places.begin(), places.end(), ends);
    if (end.use_count() != 1 + here) continue;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (!end->in_graphs.load(std::memory_order_relaxed)) return end;
  }
  return MakeEnd();
}

// The legacy stream has two handles and cannot be destroyed.
Result<OrderedStream> OrderedStream::Of(const device::cuda::Device& device, CUstream stream, uint64_t capture) {
  OrderedStream ordered{stream, capture};
  if (capture != 0) return ordered;
  constexpr unsigned long long kLegacy = ~0ull;
  if (stream == nullptr || stream == CU_STREAM_LEGACY) {
    ordered.id = kLegacy;
  } else {
    const CUresult result = OnStream(device, [&] { return Driver::Loaded().cuStreamGetId(stream, &ordered.id); });
    AXCCL_RETURN_IF_ERROR(Check(result, "cuStreamGetId"));
  }
  return ordered;
}

// A group's orders mostly have one end.
Status CudaOrders::Follow(std::span<const Place> places, const OrderedStream& stream) {
  std::vector<const End*> awaited;
  const auto wait = [&](const std::shared_ptr<End>& end) {
    if (end == nullptr || std::count(awaited.begin(), awaited.end(), end.get()) != 0) return Status();
    awaited.push_back(end.get());
    const auto call = [&] { return Driver::Loaded().cuStreamWaitEvent(stream.stream, end->event, 0); };
    return Check(OnStream(*end->device, call), "cuStreamWaitEvent");
  };
  for (const Place& place : places) {
    Order* const order = place.orders->OrderOf(place.timeline);
    if (stream.capture != 0) {
      AXCCL_RETURN_IF_ERROR(place.orders->FollowInGraph(order, stream.stream, stream.capture));
      continue;
    }
    if (!order->in_graphs && (!order->launched || stream.id == order->stream)) continue;
    AXCCL_RETURN_IF_ERROR(wait(order->done));
    AXCCL_RETURN_IF_ERROR(wait(order->before));
  }
  return Status();
}

// Recorded at once: when another stream has to follow, the application may have destroyed this one, and work that it
// has enqueued here meanwhile would be waited for, too.
Result<CUevent> CudaOrders::Launched(std::span<const Place> places, const OrderedStream& stream) {
  std::shared_ptr<End> end;  // of all orders that are not in graphs
  CUevent recorded = nullptr;
  for (const Place& place : places) {
    Order* const order = place.orders->OrderOf(place.timeline);
    if (stream.capture != 0) {
      AXCCL_RETURN_IF_ERROR(place.orders->LaunchedInGraph(order, stream.stream, stream.capture));
      recorded = order->captures.back().captured;
      continue;
    }
    if (order->in_graphs || end == nullptr) {
      if (!order->in_graphs) {
        AXCCL_ASSIGN_OR_RETURN(end, place.orders->EndFor(places));
      }
      recorded = order->in_graphs ? order->done->event : end->event;
      const auto call = [&] { return Driver::Loaded().cuEventRecord(recorded, stream.stream); };
      AXCCL_RETURN_IF_ERROR(Check(OnStream(*place.orders->device_, call), "cuEventRecord"));
    }
    if (!order->in_graphs) order->done = end;
    order->before = nullptr;
    order->stream = stream.id;
    order->launched = true;
  }
  return recorded;
}

// From now on the order has an end of its own. Its last one is never recorded again, because graphs will wait for it.
Status CudaOrders::TakeIntoGraphs(Order* order) {
  if (order->in_graphs) return Status();
  order->before = std::move(order->done);
  if (order->before != nullptr) order->before->in_graphs.store(true, std::memory_order_relaxed);
  AXCCL_ASSIGN_OR_RETURN(order->done, MakeEnd());
  order->done->in_graphs.store(true, std::memory_order_relaxed);
  order->in_graphs = true;
  return Status();
}

Status CudaOrders::FollowInGraph(Order* order, CUstream stream, uint64_t capture) {
  const Driver& driver = Driver::Loaded();
  if (const Capture* const known = FindCapture(order, capture); known != nullptr)
    return Check(driver.cuStreamWaitEvent(stream, known->captured, 0), "cuStreamWaitEvent");
  if (!mixes_graphs_) return Status();
  AXCCL_RETURN_IF_ERROR(TakeIntoGraphs(order));
  for (const auto& end : {order->done, order->before}) {
    if (end == nullptr) continue;
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamWaitEvent(stream, end->event, CU_EVENT_WAIT_EXTERNAL));
  }
  return Status();
}

CudaOrders::Capture* CudaOrders::FindCapture(Order* order, uint64_t id) {
  const auto found = std::find_if(order->captures.begin(), order->captures.end(),
                                  [=](const Capture& capture) { return capture.id == id; });
  return found != order->captures.end() ? &*found : nullptr;
}

// That one or a new one, which becomes the last.
Result<CudaOrders::Capture*> CudaOrders::CaptureFor(Order* order, uint64_t id) {
  std::vector<Capture>& all = order->captures;
  const Capture* used = FindCapture(order, id);
  if (used == nullptr) {
    if (all.size() < kMostCaptures && (all.empty() || all.front().id != 0)) {
      const Scope scope(*device_);
      CUevent captured = nullptr;
      AXCCL_RETURN_IF_CUDA_ERROR(Driver::Loaded().cuEventCreate(&captured, CU_EVENT_DISABLE_TIMING));
      all.insert(all.begin(), {0, captured, nullptr});
    }
    all.front() = {id, all.front().captured, nullptr};
    used = all.data();
  }
  const auto at = all.begin() + (used - all.data());
  std::rotate(at, at + 1, all.end());
  return &all.back();
}

// The record is a node beside the stream's way, so that what follows on the stream does not wait for it. It follows the
// one before it.
Status CudaOrders::LaunchedInGraph(Order* order, CUstream stream, uint64_t capture) {
  const Driver& driver = Driver::Loaded();
  AXCCL_ASSIGN_OR_RETURN(Capture * of_capture, CaptureFor(order, capture));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventRecord(of_capture->captured, stream));
  overlooks_graphs_ |= !mixes_graphs_;
  if (!mixes_graphs_) return Status();
  AXCCL_ASSIGN_OR_RETURN(const CapturedEnd end, EndOfCapture(stream));
  std::vector<CUgraphNode> follows(end.dependencies, end.dependencies + end.count);
  if (of_capture->recorded != nullptr) follows.push_back(of_capture->recorded);
  return Check(driver.cuGraphAddEventRecordNode(&of_capture->recorded, end.graph, follows.data(), follows.size(),
                                                order->done->event),
               "cuGraphAddEventRecordNode");
}

Result<CUevent> CudaOrders::OrderingEvent() {
  if (ordering_ != nullptr) return ordering_;
  const Scope scope(*device_);
  AXCCL_RETURN_IF_CUDA_ERROR(Driver::Loaded().cuEventCreate(&ordering_, CU_EVENT_DISABLE_TIMING));
  return ordering_;
}

}  // namespace axccl::exec
