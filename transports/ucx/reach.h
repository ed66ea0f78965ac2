// A rank that UCX leads to: what it is sent (sender.h), and what UCX fetches for it. See remote/reach.h.
#pragma once

#include <atomic>
#include <chrono>
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
  void Publish(const std::shared_ptr<Area>& area, std::span<const Stretch> stretches, uint64_t line) override;
  bool sending() const override { return fetching_.load(std::memory_order_acquire) != 0 || sender_.busy(); }
  void Flush(std::chrono::milliseconds patience) override;
  void Detach() override;

  // ---- for the worker, with its lock held ----
  // Sends what waited for the endpoint to open.
  void SendDelayed();
  ucs_status_t Take(const Rail& rail, const remote::Message& message, void* data, size_t bytes, bool to_fetch);

 private:
  struct Fetched;

  Reach(Worker* worker, remote::ConnectOptions options, std::shared_ptr<Mirror> mirror);
  // Gives the peer up if `status` is an error of UCX.
  void LoseOn(ucs_status_t status);
  ucs_status_t Fetch(const Rail& rail, std::shared_ptr<Fetched> message, void* data, size_t bytes);
  static void OnFetched(void* request, ucs_status_t status, size_t bytes, void* fetched);
  void DropUnsent() override { sender_.DropDelayed(); }
  void AnswerFlush(const void* rail, const remote::WireControl& answer) override;
  void Flushed() override { worker_->changed().notify_all(); }

  Worker* const worker_;
  std::shared_ptr<Endpoint> endpoint_;
  Sender sender_;
  std::atomic<int> fetching_{0};  // messages
};

}  // namespace axccl::ucx
