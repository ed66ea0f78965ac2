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
using device::cuda::Scope;
using device::host::Timeline;

CudaOrders::~CudaOrders() {
  const Driver& driver = Driver::Loaded();
  const Scope scope(*device_);
  for (const Order& order : orders_) {
    // A graph may outlive its communicator, with what it has of the event.
    if (!order.in_graphs) driver.cuEventDestroy(order.done);
    if (order.captured != nullptr) driver.cuEventDestroy(order.captured);
  }
  if (ordering_ != nullptr) driver.cuEventDestroy(ordering_);
}

bool CudaOrders::IsDone(const Order& order) {
  return (!order.launched && !order.in_graphs) || Driver::Loaded().cuEventQuery(order.done) != CUDA_ERROR_NOT_READY;
}

bool CudaOrders::AreDone() const {
  return std::all_of(orders_.begin(), orders_.end(), [](const Order& order) { return IsDone(order); });
}

bool CudaOrders::IsDone(const Timeline* timeline) const {
  return std::all_of(orders_.begin(), orders_.end(),
                     [=](const Order& order) { return order.of != timeline || IsDone(order); });
}

std::vector<CUevent> CudaOrders::Ends() const {
  std::vector<CUevent> ends;
  for (const Order& order : orders_) ends.push_back(order.done);
  return ends;
}

void CudaOrders::Forget(const Timeline* timeline) {
  for (Order& order : orders_) {
    if (order.of == timeline) order.of = nullptr;
  }
}

// Forgotten entries are reused.
Result<CudaOrders::Order*> CudaOrders::OrderOf(const Timeline* timeline) {
  Order* free = nullptr;
  for (Order& order : orders_) {
    if (order.of == timeline) return &order;
    if (order.of == nullptr) free = &order;
  }
  if (free == nullptr) {
    const Scope scope(*device_);
    Order order;
    AXCCL_RETURN_IF_CUDA_ERROR(
        Driver::Loaded().cuEventCreate(&order.done, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
    free = &orders_.emplace_back(order);
  }
  free->of = timeline;
  free->launched = false;
  free->capture = 0;
  return free;
}

// The legacy stream has two handles and cannot be destroyed.
Result<OrderedStream> OrderedStream::Of(CUstream stream, uint64_t capture) {
  OrderedStream ordered{stream, capture};
  if (capture != 0) return ordered;
  constexpr unsigned long long kLegacy = ~0ull;
  if (stream == nullptr || stream == CU_STREAM_LEGACY) {
    ordered.id = kLegacy;
  } else {
    AXCCL_RETURN_IF_CUDA_ERROR(Driver::Loaded().cuStreamGetId(stream, &ordered.id));
  }
  return ordered;
}

Status CudaOrders::Follow(const Timeline* timeline, const OrderedStream& stream) {
  AXCCL_ASSIGN_OR_RETURN(const Order* order, OrderOf(timeline));
  if (stream.capture != 0) return FollowInGraph(*order, stream.stream, stream.capture);
  if (!order->in_graphs && (!order->launched || stream.id == order->stream)) return Status();
  return Check(Driver::Loaded().cuStreamWaitEvent(stream.stream, order->done, 0), "cuStreamWaitEvent");
}

// Recorded at once: when another stream has to follow, the application may have destroyed this one, and work that it
// has enqueued here meanwhile would be waited for, too.
Result<CUevent> CudaOrders::Launched(const Timeline* timeline, const OrderedStream& stream) {
  AXCCL_ASSIGN_OR_RETURN(Order * order, OrderOf(timeline));
  if (stream.capture != 0) {
    AXCCL_RETURN_IF_ERROR(LaunchedInGraph(order, stream.stream, stream.capture));
    return order->captured;
  }
  AXCCL_RETURN_IF_CUDA_ERROR(Driver::Loaded().cuEventRecord(order->done, stream.stream));
  order->stream = stream.id;
  order->launched = true;
  return order->done;
}

Status CudaOrders::FollowInGraph(const Order& order, CUstream stream, uint64_t capture) {
  const Driver& driver = Driver::Loaded();
  if (order.capture == capture) return Check(driver.cuStreamWaitEvent(stream, order.captured, 0), "cuStreamWaitEvent");
  return Check(driver.cuStreamWaitEvent(stream, order.done, CU_EVENT_WAIT_EXTERNAL), "cuStreamWaitEvent");
}

// The record is a node beside the stream's way, so that what follows on the stream does not wait for it.
Status CudaOrders::LaunchedInGraph(Order* order, CUstream stream, uint64_t capture) {
  const Driver& driver = Driver::Loaded();
  if (order->captured == nullptr) {
    const Scope scope(*device_);
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventCreate(&order->captured, CU_EVENT_DISABLE_TIMING));
  }
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventRecord(order->captured, stream));
  order->capture = capture;
  AXCCL_ASSIGN_OR_RETURN(const CapturedEnd end, EndOfCapture(stream));
  CUgraphNode node = nullptr;
  AXCCL_RETURN_IF_CUDA_ERROR(
      driver.cuGraphAddEventRecordNode(&node, end.graph, end.dependencies, end.count, order->done));
  order->in_graphs = true;
  return Status();
}

Result<CUevent> CudaOrders::OrderingEvent() {
  if (ordering_ != nullptr) return ordering_;
  const Scope scope(*device_);
  AXCCL_RETURN_IF_CUDA_ERROR(Driver::Loaded().cuEventCreate(&ordering_, CU_EVENT_DISABLE_TIMING));
  return ordering_;
}

}  // namespace axccl::exec
