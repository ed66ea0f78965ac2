#include "transports/remote/arrivals.h"

#include <utility>

namespace axccl::remote {

void Arrivals::Hold(uint64_t number, std::shared_ptr<Incoming> incoming) { held_[number] = std::move(incoming); }

std::shared_ptr<Incoming> Arrivals::TakeFirst() {
  const auto first = held_.begin();
  if (first->first != next_ || !first->second->here) return nullptr;
  std::shared_ptr<Incoming> next = std::move(first->second);
  held_.erase(first);
  ++next_;
  return next;
}

void Arrivals::Drop() {
  std::erase_if(held_, [](const auto& entry) { return !entry.second->fetching(); });
}

}  // namespace axccl::remote
