#include "transports/tcp/outgoing.h"

#include <cstring>
#include <utility>

#include "transports/tcp/reach.h"

namespace axccl::tcp {

void Outgoing::Begin(FrameKind kind, const void* header, size_t header_bytes) {
  const FrameHead head{kind, static_cast<uint16_t>(header_bytes), 0};
  std::memcpy(head_.data(), &head, sizeof(head));
  std::memcpy(head_.data() + sizeof(head), header, header_bytes);
  head_bytes_ = bytes_ = sizeof(head) + header_bytes;
  pieces_ = sent_ = 0;
}

void Outgoing::Hold() {
  if (owner != nullptr && !std::exchange(held_, true)) owner->AddHeld(1);
}

void Outgoing::Release() {
  if (std::exchange(held_, false)) owner->AddHeld(-1);
  memory = nullptr;
  owner = nullptr;
}

void Outgoing::Add(const std::byte* data, size_t bytes) {
  if (bytes == 0) return;
  data_[pieces_++] = {const_cast<std::byte*>(data), bytes};
  bytes_ += bytes;
}

void Outgoing::End() {
  const auto data_bytes = static_cast<uint32_t>(bytes_ - head_bytes_);
  std::memcpy(head_.data() + offsetof(FrameHead, data_bytes), &data_bytes, sizeof(data_bytes));
}

void Outgoing::AppendData(std::vector<std::byte>* bytes) const {
  for (size_t i = 0; i < pieces_; ++i) {
    const auto* const from = static_cast<const std::byte*>(data_[i].iov_base);
    bytes->insert(bytes->end(), from, from + data_[i].iov_len);
  }
}

void Outgoing::CopyData() {
  copy_.clear();
  AppendData(&copy_);
  pieces_ = copy_.empty() ? 0 : 1;
  data_[0] = {copy_.data(), copy_.size()};
  memory = nullptr;
}

std::vector<std::byte> Outgoing::Copy() const {
  std::vector<std::byte> bytes(head_.data(), head_.data() + head_bytes_);
  AppendData(&bytes);
  return bytes;
}

size_t Outgoing::Pieces(iovec* pieces, size_t most) const {
  size_t count = 0, skip = sent_;
  const auto add = [&](std::byte* base, size_t bytes) {
    if (skip < bytes && count < most) pieces[count++] = {base + skip, bytes - skip};
    skip -= skip < bytes ? skip : bytes;
  };
  add(const_cast<std::byte*>(head_.data()), head_bytes_);
  for (size_t i = 0; i < pieces_; ++i) add(static_cast<std::byte*>(data_[i].iov_base), data_[i].iov_len);
  return count;
}

}  // namespace axccl::tcp
