// A rank that UCX leads to: what it is sent (sender.h), and what UCX fetches for it. See remote/reach.h.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>

#include "src/base/status.h"
#include "transports/remote/reach.h"
#include "transports/ucx/sender.h"
#include "transports/ucx/worker.h"

namespace axccl::ucx {

class Reach final : public remote::Reach {
 public:
  static Result<std::shared_ptr<Reach>> Create(Worker* worker, remote::ConnectOptions options);
  ~Reach() override;

  const char* Name() const override { return "ucx"; }
  transport::Inbox* inbox() const override { return worker_; }
  DeviceAccess AccessTo(const std::string& pci_address) const override;
  Status Register(const DevicePart& part, std::byte* memory, uint64_t bytes) const override;
  void Publish(const std::shared_ptr<Area>& area, std::span<const Stretch> stretches, LineAt line) override;
  bool sending() const override { return fetching_.load(std::memory_order_acquire) != 0 || sender_.busy(); }
  void Detach() override;

  // ---- for the worker, with its lock held ----
  // Sends what waited for the endpoint to open.
  void SendDelayed();
  ucs_status_t Take(const Rail& rail, const remote::Message& message, void* data, size_t bytes, bool to_fetch);

 private:
  struct Fetched;

  Reach(Worker* worker, remote::ConnectOptions options, std::shared_ptr<Mirror> mirror);
  // Gives the peer's process up if `status` is an error of UCX.
  void LoseOn(ucs_status_t status);
  ucs_status_t Fetch(const Rail& rail, std::shared_ptr<Fetched> message, void* data, size_t bytes);
  // UCX has stored the data of a message.
  void EndFetch(Fetched* message);
  static void OnFetched(void* request, ucs_status_t status, size_t bytes, void* fetched);
  void DropUnsent() override { sender_.DropDelayed(); }
  void AnswerFlush(const void* rail, const remote::WireControl& answer) override;
  std::condition_variable& changed() override { return worker_->changed(); }
  bool failed() const override { return endpoint_->failed; }
  size_t lanes() const override { return worker_->ending() ? 0 : endpoint_->lanes.size(); }
  void SendFlush(size_t lane, uint32_t number) override { sender_.Flush(lane, number); }
  void ReceiveOnce(std::unique_lock<std::mutex>* lock) override;

  Worker* const worker_;
  std::shared_ptr<Endpoint> endpoint_;
  Sender sender_;
  std::atomic<int> fetching_{0};  // messages
};

}  // namespace axccl::ucx
