// What the node of a rank has for the rank's own thread: the start of the rendezvous, that all links stand, the blocks
// of an exchange, and the reason of the end.
//
// The service thread puts these in; the rank's thread waits for them. The two serialise here, and share nothing else.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include "src/boot/dial.h"
#include "src/boot/wire.h"

namespace axccl::boot {

class Mailbox {
 public:
  // `kEnd` is only the end, which ends a wait for any of the others, too.
  enum class News { kStart, kLinks, kBlocks, kEnd };

  Mailbox(int rank, int nranks) : rank_(rank), nranks_(nranks) {}

  // ---- by the service thread ----
  // A hub has sent the start. At most one of them knows the parent.
  void PutStart(const StartBody& start);
  void PutLinks();
  // The blocks of all ranks.
  void PutBlocks(std::vector<std::byte> blocks);
  // The rendezvous has failed. The first reason counts.
  void PutFailure(const Status& reason);

  // ---- by the rank's thread ----
  // One more hub will send the start.
  void ExpectStart();
  // Blocks of earlier exchanges do not count any more.
  void ExpectBlocks();
  // Waits for news. `what` completes the error of a deadline or a stop.
  Status Await(News news, const Patience& patience, const char* what);
  // Waits for news a moment longer than for `seen`, the error of such a wait, in case another rank is about to send the
  // reason. Returns `seen` if neither comes.
  Status AwaitReason(News news, const Status& seen, const service::Stop& stop);
  // The parent, after the start.
  StartBody start();
  // Copies the blocks, after they have come.
  Status CopyBlocks(std::span<std::byte> all);
  // The reason of the end; ok if there is none.
  Status failure();

 private:
  bool Has(News news) const;

  const int rank_;
  const int nranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Status failure_;
  int starts_awaited_ = 0;
  StartBody start_;
  bool linked_ = false;
  std::vector<std::byte> blocks_;  // empty: have not come
};

}  // namespace axccl::boot
