// A rank that shares no memory with this process: its mirror, and the messages that come from it, whatever carries
// them. See transport::Reach.
//
// Messages of one sender take effect in the order in which they were sent. A message that has not arrived, because it
// travels over another rail, or whose data is still being fetched, holds back those behind it. Large messages that are
// held back have their data stored meanwhile: it belongs to slots and announcements, which their writer writes again
// only after the reader has signalled, by a message of its own, that it is done with the old content. That was so when
// the message was sent, whatever else is on its way. Small messages are kept, because what a line says about them to a
// reader (for example that an entry of a table is gone, and its place reused) must be visible before them.
//
// The transport's lock for this peer guards all of it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "src/base/status.h"
#include "transports/remote/address.h"
#include "transports/remote/arrivals.h"
#include "transports/remote/memory.h"
#include "transports/remote/wire.h"
#include "transports/transport.h"

namespace axccl::remote {

class Reach : public transport::Reach, public std::enable_shared_from_this<Reach> {
 public:
  // A rank here and its peer: communicator, rank, peer.
  using Key = std::tuple<uint64_t, uint32_t, uint32_t>;

  ~Reach() override;

  Result<std::byte*> AddArea(uint64_t key, std::byte* own, uint64_t offset, uint64_t bytes,
                             std::shared_ptr<Area>* area) override;
  bool TryCalls(uint64_t, uint64_t) override { return true; }
  Status Read(void* to, uint64_t from, size_t bytes) override;
  // The peer holds nothing of this rank's block.
  bool InUse() const override { return sending(); }
  // Uses every lane, so that each is known to lead to the peer and back.
  void BeginFlush() final;
  void AwaitFlush(std::chrono::milliseconds patience) final;
  std::vector<sockaddr_storage> Doors() const override { return options_.doors; }
  std::string Place() const override;
  std::string Trouble() const override;
  std::string DescribeLoss(int self, int peer) const override;

  // ---- for the transport, with the lock held ----
  Key key() const { return {options_.comm, options_.self, options_.peer}; }
  void Lose(const std::string& why);
  // What a message is for. `memory`: null if it is for a channel that is gone, or for more of an area than there is: it
  // takes its turn, and nothing is stored.
  struct Admission {
    uint64_t number = 0;
    std::shared_ptr<Memory> memory;
  };
  // Whether the message may come now; if not, it is to be ignored: it has come before, or the peer may be lost.
  bool Admit(const Message& message, size_t bytes, Admission* admitted);
  // Takes a message that was admitted, with all its data.
  void Take(const Admission& admitted, const Message& message, const void* data, size_t bytes);
  // The data of one that was admitted are where they belong, and it takes effect in its turn.
  void TakeStored(const Admission& admitted, const Message& message);
  // A state without a turn. It may have been passed on by another process, and come late, or repeatedly. It is ignored
  // if a newer one of the same place has come, as all are that have a turn.
  void TakeState(const Message& message, const void* data, size_t bytes);
  // A flush, or the answer to one, has come that way.
  void TakeControl(const void* way, const WireControl& control);

 protected:
  // This process's copy of the peer: a heap of one page, and its block, laid out as its own.
  class Mirror;
  static Result<std::shared_ptr<Mirror>> MakeMirror(const ConnectOptions& options);

  Reach(std::mutex* mutex, ConnectOptions options, std::shared_ptr<Mirror> mirror);

  // What has not been handed to the transport is not sent any more.
  virtual void DropUnsent() = 0;
  virtual void AnswerFlush(const void* way, const WireControl& answer) = 0;
  // A flush has been answered.
  void Flushed() { changed().notify_all(); }
  // Notified then, and when the peer fails.
  virtual std::condition_variable& changed() = 0;
  virtual bool failed() const = 0;
  // 0: nothing can be sent any more, or nothing has been.
  virtual size_t lanes() const = 0;
  virtual void SendFlush(size_t lane, uint32_t number) = 0;
  // Waits until what was sent without a lane is on its way, or the peer is lost.
  virtual void AwaitAside(std::chrono::steady_clock::time_point) {}
  // Receives what has come, and leaves what follows to the transport's thread. May release the lock meanwhile.
  virtual void ReceiveOnce(std::unique_lock<std::mutex>* lock) = 0;

  // Applies all messages up to the first that is missing.
  void Settle();
  void Deliver(const Memory& memory, const WireHeader& header);

  std::mutex& mutex() const { return *mutex_; }
  const ConnectOptions options_;
  const std::shared_ptr<Memory>& block_memory() const { return block_; }
  Arrivals arrivals_;
  bool detached_ = false, lost_ = false;

 private:
  static constexpr uint32_t kInTurn = ~uint32_t{0};

  std::shared_ptr<Memory> Find(uint64_t area) const;
  bool HasComeBefore(const Message& message) const;
  bool NoteState(const Message& message, uint32_t number);

  std::mutex* const mutex_;
  const std::shared_ptr<Mirror> mirror_;
  const std::shared_ptr<Memory> block_;
  std::map<uint64_t, std::weak_ptr<Memory>> areas_;
  std::map<uint64_t, uint32_t> states_;  // the newest so far, by place; kInTurn: one with a turn
  std::string trouble_;
  uint32_t flushes_ = 0, flushed_ = 0;
};

}  // namespace axccl::remote
