// What a rank sends to a peer on another machine: numbers the messages, keeps those that wait for the endpoint to open,
// and counts those that UCX has not finished sending.
//
// The caller must hold the lock of worker.h, except for busy().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transports/remote/outgoing.h"
#include "transports/transport.h"
#include "transports/ucx/endpoint.h"
#include "transports/ucx/library.h"

namespace axccl::ucx {

class Worker;

class Sender {
 public:
  using Stretch = transport::Reach::Stretch;
  using LineAt = transport::Reach::LineAt;

  // Sends in the name of rank `self` of that communicator.
  Sender(Worker* worker, uint64_t comm, uint32_t self, uint32_t peer);
  ~Sender();
  // Must come first. `owner`, which this object is a part of, is kept alive while UCX sends.
  void Connect(std::shared_ptr<Endpoint> endpoint, std::weak_ptr<void> owner);

  // Sends the stretches, in as many messages as they need, and the line (may be kNoLine) with the last one. Returns the
  // first error of UCX.
  ucs_status_t Send(const std::shared_ptr<remote::Memory>& memory, std::span<const Stretch> stretches, LineAt line);
  // Sends a flush on that lane.
  void Flush(size_t lane, uint32_t number);
  // Sends what waited for the endpoint to open, or drops it.
  ucs_status_t SendDelayed();
  void DropDelayed();
  // Whether memory may still be read for a message.
  bool busy() const { return in_flight_.load(std::memory_order_acquire) != 0; }

 private:
  struct Outgoing;

  ucs_status_t SendOne(const std::shared_ptr<remote::Memory>& memory, std::span<const Stretch> stretches, LineAt line);
  ucs_status_t Post(std::unique_ptr<Outgoing> message);
  std::vector<std::unique_ptr<Outgoing>> TakeDelayed();
  static void OnSent(void* request, ucs_status_t status, void* outgoing);

  Worker* const worker_;
  const remote::Direction direction_;
  std::weak_ptr<void> owner_;
  std::shared_ptr<Endpoint> endpoint_;
  uint64_t sent_ = 0;                               // messages and flushes
  std::vector<std::unique_ptr<Outgoing>> delayed_;  // until the endpoint opens
  std::unique_ptr<Outgoing> spare_;                 // of a message that was sent at once, for the next one
  std::atomic<int> in_flight_{0};
};

// `endpoint`: that of `ep`. Null: it is known only to UCX; if the control is lost, the other side waits for it as long
// as it has patience.
void SendControl(Worker* worker, std::shared_ptr<Endpoint> endpoint, ucp_ep_h ep, const remote::WireControl& control);

}  // namespace axccl::ucx
