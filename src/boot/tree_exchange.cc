#include "src/boot/tree_exchange.h"

#include "src/boot/wire.h"

namespace axccl::boot {

TreeExchange::TreeExchange(int rank, const Branch& branch)
    : rank_(rank), branch_(branch), children_(branch.children.size()) {}

Status TreeExchange::Open(size_t bytes, int rank) {
  if (!open_) {
    open_ = true;
    bytes_ = bytes;
    first_ = rank;
    blocks_.resize(bytes * static_cast<size_t>(branch_.end - rank_));
    return Status();
  }
  if (bytes == bytes_) return Status();
  return MakeStatus(Code::kInternalError, "exchange %d: rank %d contributed %zu bytes, rank %d %zu", user_exchanges(),
                    rank, bytes, first_, bytes_);
}

Status TreeExchange::AddOwn(std::span<const std::byte> mine) {
  AXCCL_RETURN_IF_ERROR(Open(mine.size(), rank_));
  std::copy(mine.begin(), mine.end(), blocks_.begin());
  own_ = true;
  return Status();
}

Status TreeExchange::AddChild(size_t child, std::span<const std::byte> blocks, const std::string& name) {
  const int rank = branch_.children[child];
  const auto ranks = static_cast<size_t>(branch_.ends[child] - rank);
  if (children_[child] || blocks.empty() || blocks.size() % ranks != 0 || blocks.size() / ranks > kMaxContribution) {
    return MakeStatus(Code::kRemoteError, "%s contributed to an exchange at the wrong time", name.c_str());
  }
  AXCCL_RETURN_IF_ERROR(Open(blocks.size() / ranks, rank));
  children_[child] = true;
  std::copy(blocks.begin(), blocks.end(),
            blocks_.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(rank - rank_) * bytes_));
  return Status();
}

bool TreeExchange::complete() const {
  return own_ && std::find(children_.begin(), children_.end(), false) == children_.end();
}

void TreeExchange::Finish() {
  open_ = own_ = false;
  children_.assign(children_.size(), false);
  ++finished_;
}

}  // namespace axccl::boot
