// Messages between pretended processes that share no memory: what a transport does, without one.
//
// They are delivered when the receiver takes them in, some at a time, and what is in them is read no sooner than that:
// a rank that writes again what it has sent, before it knows that it has arrived, sends the new bytes. Two ranks'
// messages keep their order, those of different ranks come in any. Whoever sends must poll, or nobody would see to what
// cannot be sent at once. Not thread-safe.
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

// Between `ranks` ranks, each with a block of so many bytes.
class Post {
 public:
  Post(int ranks, size_t block_bytes);
  ~Post();

  // How `viewer` sees `rank`. `own`: the viewer's block.
  transport::Reach* Connect(int viewer, int rank, std::byte* own);

  uint64_t messages() const { return messages_; }
  uint64_t bytes() const { return bytes_; }  // of stretches
  // The n-th message from now on loses its first stretch that is no record.
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
  uint64_t messages_ = 0, bytes_ = 0, lose_ = 0;
  bool lost_ = false;
};

}  // namespace axccl::exec
