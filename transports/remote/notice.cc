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

NoticeHead HeadOf(const Notice& notice) {
  return {notice.kind, notice.rank, notice.comm, notice.number, static_cast<uint32_t>(notice.text.size())};
}

Notice Join(const NoticeHead& head, std::vector<std::byte> text) {
  return {head.kind, head.rank, head.comm, head.number, std::move(text)};
}

}  // namespace

std::vector<std::byte> PackNotice(const Notice& notice) {
  const NoticeHead head = HeadOf(notice);
  std::vector<std::byte> bytes(sizeof head + notice.text.size());
  std::memcpy(bytes.data(), &head, sizeof head);
  std::copy(notice.text.begin(), notice.text.end(), bytes.begin() + sizeof head);
  return bytes;
}

bool UnpackNotice(std::span<const std::byte> bytes, Notice* notice) {
  NoticeHead head;
  if (bytes.size() < sizeof head) return false;
  std::memcpy(&head, bytes.data(), sizeof head);
  const auto text = bytes.subspan(sizeof head);
  if (head.bytes != text.size() || text.size() > Notice::kMostText) return false;
  *notice = Join(head, {text.begin(), text.end()});
  return true;
}

void NoticeWriter::Write(const Notice& notice, std::vector<std::byte>* bytes) {
  const NoticeHead head = HeadOf(notice);
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
  notices->push_back(Join(head_, std::move(buffer_)));
  buffer_.clear();
  head_ = {};
  expected_ = 0;
  return true;
}

}  // namespace axccl::remote
