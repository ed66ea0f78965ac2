// The blocks that a rank of a tree gathers in an exchange: its own, and those of all ranks below it.
//
// An exchange is open from the first contribution, complete once this rank and all its children have contributed, and
// over at Finish; the next one follows. The first exchange shows all ranks that all have joined, and is none of the
// user's. Everything runs on the service thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/boot/tree.h"

namespace axccl::boot {

class TreeExchange {
 public:
  // The exchanges of `rank`, whose `branch` must outlive this object.
  TreeExchange(int rank, const Branch& branch);

  // This rank's block, at most once for each exchange. Returns an error if another rank's has a different size.
  Status AddOwn(std::span<const std::byte> mine);
  // The blocks of all ranks below a child, which errors call `name`. Returns an error if the child has contributed
  // already, or if their size is wrong. Nothing that a child sent is added then.
  Status AddChild(size_t child, std::span<const std::byte> blocks, const std::string& name);
  // Ends the exchange. The blocks stay until the next contribution.
  void Finish();

  bool HasOwn() const { return own_; }
  bool HasChild(size_t child) const { return children_[child]; }
  bool complete() const;
  // The blocks of this rank and of all ranks below it, in the order of ranks.
  std::span<const std::byte> blocks() const { return blocks_; }
  // The size of one block.
  size_t block_bytes() const { return bytes_; }
  // Exchanges that are over: all of them, and those of the user.
  int finished() const { return finished_; }
  int user_exchanges() const { return std::max(finished_ - 1, 0); }

 private:
  Status Open(size_t bytes, int rank);

  const int rank_;
  const Branch& branch_;
  int finished_ = 0;
  bool open_ = false;
  bool own_ = false;            // this rank has contributed
  std::vector<bool> children_;  // those that have contributed
  size_t bytes_ = 0;
  int first_ = -1;  // the rank that contributed first
  std::vector<std::byte> blocks_;
};

}  // namespace axccl::boot
