// Messages between simulated processes that share no memory, without a real transport.
//
// They are delivered when the receiver takes them in, some at a time, and their contents are not read earlier: a rank
// that overwrites what it has sent, before it knows that it has arrived, sends the new bytes. A message that may wait
// waits until its sender sends another one. Messages between two
// ranks keep their order; messages of different ranks arrive in any order. A rank that sends must poll, because no
// other code sends what cannot be sent at once. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/random.h"
#include "transports/transport.h"

namespace axccl::exec {

// Messages between `ranks` ranks, each with a block of so many bytes.
class Post {
 public:
  Post(int ranks, size_t block_bytes);
  ~Post();

  // The view that `viewer` has of `rank`. `own`: the viewer's block.
  transport::Reach* Connect(int viewer, int rank, std::byte* own);

  uint64_t messages() const { return messages_; }
  uint64_t bytes() const { return bytes_; }  // total size of the stretches sent
  uint64_t kept() const { return kept_; }    // messages that might wait for another one
  // The n-th message from now on loses its first stretch that is neither a record nor zeros.
  void LoseStretchOf(uint64_t nth) { lose_ = messages_ + nth; }
  bool lost() const { return lost_; }

 private:
  class Inbox;
  class Mirror;
  class Reach;
  friend class Inbox;
  friend class Reach;
  void Deliver(int to);

  const int ranks_;
  const size_t block_bytes_;
  std::vector<std::unique_ptr<Reach>> reaches_;  // [viewer * ranks + rank]
  std::vector<std::unique_ptr<Inbox>> inboxes_;  // [viewer]
  harness::Random random_{harness::Scramble(harness::Seed(), 0x90057)};
  uint64_t messages_ = 0, bytes_ = 0, lose_ = 0, kept_ = 0;
  bool lost_ = false;
};

}  // namespace axccl::exec
