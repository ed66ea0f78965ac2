#include "src/exec/cuda/orders.h"

#include <algorithm>

namespace axccl::exec {

using device::cuda::Check;
using device::cuda::Driver;
using device::cuda::Scope;
using device::host::Timeline;

CudaOrders::~CudaOrders() {
  const Driver& driver = Driver::Loaded();
  const Scope scope(*device_);
  for (const Order& order : orders_) driver.cuEventDestroy(order.done);
  if (ordering_ != nullptr) driver.cuEventDestroy(ordering_);
}

bool CudaOrders::IsDone(const Order& order) {
  return !order.launched || Driver::Loaded().cuEventQuery(order.done) != CUDA_ERROR_NOT_READY;
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
    Order order;
    AXCCL_RETURN_IF_CUDA_ERROR(
        Driver::Loaded().cuEventCreate(&order.done, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
    free = &orders_.emplace_back(order);
  }
  free->of = timeline;
  free->launched = false;
  return free;
}

Status CudaOrders::Follow(const Timeline* timeline, CUstream stream) {
  const Driver& driver = Driver::Loaded();
  AXCCL_ASSIGN_OR_RETURN(const Order* order, OrderOf(timeline));
  unsigned long long id = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamGetId(stream, &id));
  if (!order->launched || id == order->stream) return Status();
  return Check(driver.cuStreamWaitEvent(stream, order->done, 0), "cuStreamWaitEvent");
}

Status CudaOrders::Launched(const Timeline* timeline, CUstream stream) {
  const Driver& driver = Driver::Loaded();
  AXCCL_ASSIGN_OR_RETURN(Order * order, OrderOf(timeline));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuEventRecord(order->done, stream));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamGetId(stream, &order->stream));
  order->launched = true;
  return Status();
}

Result<CUevent> CudaOrders::OrderingEvent() {
  if (ordering_ == nullptr)
    AXCCL_RETURN_IF_CUDA_ERROR(Driver::Loaded().cuEventCreate(&ordering_, CU_EVENT_DISABLE_TIMING));
  return ordering_;
}

}  // namespace axccl::exec
