// The exchange between ranks that are about to form a communicator, whatever connects them: the rendezvous of a unique
// id, a parent communicator, or the memory of one process.
//
// Used by one thread per rank. Every wait ends with data, a peer that is gone, an abort or a deadline; after an error
// the exchange is unusable, and the other ranks get an error, too.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "src/base/status.h"
#include "src/boot/boot.h"
#include "src/exec/platform/gather.h"

namespace axccl::comm {

class Exchange : public exec::Gather {
 public:
  // Sends the others the reason why this rank gives up.
  virtual void Fail(const Status& reason) = 0;
};

// Over a bootstrap session.
std::unique_ptr<Exchange> MakeBootExchange(std::unique_ptr<boot::Session> session);

// Among ranks that are threads of one call in this process.
class LocalMeeting {
 public:
  explicit LocalMeeting(int ranks) : ranks_(ranks) {}
  std::unique_ptr<Exchange> Join(int rank);

 private:
  class Seat;
  std::mutex mutex_;
  std::condition_variable changed_;
  const int ranks_;
  int arrived_ = 0;
  uint64_t round_ = 0;
  std::vector<std::byte> gathering_, gathered_;
  Status failure_;
};

}  // namespace axccl::comm
