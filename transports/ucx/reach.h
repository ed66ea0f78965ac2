// A rank that shares no memory with this process: its mirror, and the messages in both directions (sender.h,
// arrivals.h). See transport::Reach.
//
// Messages of one sender take effect in the order in which they were sent. A message that has not arrived, because it
// travels over another rail, or whose data is still being fetched (UCX's rendezvous), holds back those behind it. Large
// messages that are held back have their data stored meanwhile: it belongs to slots and announcements, which their
// writer writes again only after the reader has signalled, by a message of its own, that it is done with the old
// content. That was so when the message was sent, whatever else is on its way. Small messages are kept, because what a
// line says about them to a reader (for example that an entry of a table is gone, and its place reused) must be visible
// before them.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "src/base/status.h"
#include "transports/transport.h"
#include "transports/ucx/arrivals.h"
#include "transports/ucx/connect.h"
#include "transports/ucx/memory.h"
#include "transports/ucx/sender.h"
#include "transports/ucx/wire.h"
#include "transports/ucx/worker.h"

namespace axccl::ucx {

class Reach final : public transport::Reach, public std::enable_shared_from_this<Reach> {
 public:
  static Result<std::shared_ptr<Reach>> Create(Worker* worker, ConnectOptions options);
  ~Reach() override;

  const char* Name() const override { return "ucx"; }
  transport::Inbox* inbox() const override { return worker_; }
  Result<std::byte*> AddArea(uint64_t key, std::byte* own, uint64_t offset, uint64_t bytes,
                             std::shared_ptr<Area>* area) override;
  bool TryCalls(uint64_t, uint64_t) override { return true; }
  Status Read(void* to, uint64_t from, size_t bytes) override;
  void Publish(const std::shared_ptr<Area>& area, std::span<const Stretch> stretches, uint64_t line) override;
  bool sending() const override { return fetching_.load(std::memory_order_acquire) != 0 || sender_.busy(); }
  void Flush(std::chrono::milliseconds patience) override;
  void Detach() override;
  // The peer holds nothing of this rank's block.
  bool InUse() const override { return sending(); }
  std::string Place() const override;
  std::string Trouble() const override;
  std::string DescribeLoss(int self, int peer) const override;

  // ---- for the worker, with its lock held ----
  void Lose(const std::string& why);
  // Sends what waited for the endpoint to open.
  void SendDelayed();
  ucs_status_t Take(const Rail& rail, const Message& message, void* data, size_t bytes, bool to_fetch);
  void TakeControl(const Rail& rail, const WireControl& control);

 private:
  // This process's copy of the peer: a heap of one page, and its block, laid out as its own.
  class Mirror;

  Reach(Worker* worker, ConnectOptions options, std::unique_ptr<Mirror> mirror);
  Worker::Key key() const { return {options_.comm, options_.self, options_.peer}; }
  // Gives the peer up if `status` is an error of UCX.
  void LoseOn(ucs_status_t status);
  std::shared_ptr<Memory> Find(uint64_t area) const;
  ucs_status_t Fetch(const Rail& rail, std::shared_ptr<Incoming> message, void* data, size_t bytes);
  static void OnFetched(void* request, ucs_status_t status, size_t bytes, void* incoming);
  void Settle();
  void AnswerFlush(const Rail* rail, const WireControl& flush);
  void Deliver(const Memory& memory, const WireHeader& header);

  Worker* const worker_;
  const ConnectOptions options_;
  const std::unique_ptr<Mirror> mirror_;
  const std::shared_ptr<Memory> block_;
  std::map<uint64_t, std::weak_ptr<Memory>> areas_;
  std::shared_ptr<Endpoint> endpoint_;
  Sender sender_;
  Arrivals arrivals_;
  std::atomic<int> fetching_{0};  // messages
  std::string trouble_;
  bool detached_ = false, lost_ = false;
  uint32_t flushes_ = 0, flushed_ = 0;
};

}  // namespace axccl::ucx
