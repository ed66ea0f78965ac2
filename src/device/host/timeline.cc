#include "src/device/host/timeline.h"

#include <utility>

namespace axccl::device::host {

void Timeline::SetError(Status status) {
  std::lock_guard lock(error_mutex_);
  if (!error_.ok()) return;
  error_ = std::move(status);
  has_error_.store(true, std::memory_order_release);
}

Status Timeline::TakeError() {
  if (!has_error_.load(std::memory_order_acquire)) return Status();
  std::lock_guard lock(error_mutex_);
  has_error_.store(false, std::memory_order_relaxed);
  return std::exchange(error_, Status());
}

}  // namespace axccl::device::host
