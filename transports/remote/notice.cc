#include "transports/remote/notice.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace axccl::remote {
namespace {

NoticeTag TagOf(std::span<const std::byte> part, uint64_t number, const NoticeWriter::Key& key) {
  crypto_generichash_state state;
  crypto_generichash_init(&state, key.data(), key.size(), sizeof(NoticeTag));
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(part.data()), part.size());
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(&number), sizeof(number));
  NoticeTag tag;
  crypto_generichash_final(&state, tag.data(), tag.size());
  return tag;
}

}  // namespace

void NoticeWriter::Write(const Notice& notice, std::vector<std::byte>* bytes) {
  const NoticeHead head{notice.kind, notice.rank, notice.comm, notice.number,
                        static_cast<uint32_t>(notice.text.size())};
  bytes->push_back(kNoticeByte);
  Append(std::as_bytes(std::span(&head, 1)), bytes);
  if (!notice.text.empty()) Append(notice.text, bytes);
}

void NoticeWriter::Append(std::span<const std::byte> part, std::vector<std::byte>* bytes) {
  const NoticeTag tag = TagOf(part, number_++, key_);
  const auto tag_bytes = std::as_bytes(std::span(tag));
  bytes->insert(bytes->end(), part.begin(), part.end());
  bytes->insert(bytes->end(), tag_bytes.begin(), tag_bytes.end());
}

bool NoticeReader::Read(std::span<const std::byte> bytes, std::vector<Notice>* notices) {
  while (!bytes.empty()) {
    if (expected_ == 0) {
      if (bytes[0] != kBeatByte && bytes[0] != kNoticeByte) return false;
      if (bytes[0] == kNoticeByte) expected_ = sizeof(NoticeHead);
      bytes = bytes.subspan(1);
      continue;
    }
    const size_t some = std::min(bytes.size(), expected_ + sizeof(NoticeTag) - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(some));
    bytes = bytes.subspan(some);
    if (buffer_.size() == expected_ + sizeof(NoticeTag) && !TakePart(notices)) return false;
  }
  return true;
}

// The head or the text of a notice has come, and its tag.
bool NoticeReader::TakePart(std::vector<Notice>* notices) {
  const auto part = std::span(buffer_).first(expected_);
  const NoticeTag tag = TagOf(part, number_++, key_);
  if (sodium_memcmp(buffer_.data() + expected_, tag.data(), tag.size()) != 0) return false;
  if (head_.bytes == 0) {
    std::memcpy(&head_, part.data(), sizeof(head_));
    if (head_.bytes > Notice::kMostText) return false;
    expected_ = head_.bytes;
    buffer_.clear();
    if (head_.bytes != 0) return true;
  }
  buffer_.resize(expected_);
  notices->push_back({head_.kind, head_.rank, head_.comm, head_.number, std::move(buffer_)});
  buffer_.clear();
  head_ = {};
  expected_ = 0;
  return true;
}

}  // namespace axccl::remote
