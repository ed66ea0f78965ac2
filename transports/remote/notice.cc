#include "transports/remote/notice.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>

namespace axccl::remote {
namespace {

NoticeTag TagOf(const Notice& notice, uint64_t number, const NoticeWriter::Key& key) {
  std::array<uint8_t, sizeof(Notice) + sizeof(number)> text;
  std::memcpy(text.data(), &notice, sizeof(notice));
  std::memcpy(text.data() + sizeof(notice), &number, sizeof(number));
  NoticeTag tag;
  crypto_generichash(tag.data(), tag.size(), text.data(), text.size(), key.data(), key.size());
  return tag;
}

}  // namespace

void NoticeWriter::Write(const Notice& notice, std::vector<std::byte>* bytes) {
  const NoticeTag tag = TagOf(notice, number_++, key_);
  bytes->push_back(kNoticeByte);
  const auto append = [&](const void* from, size_t size) {
    const auto* const first = static_cast<const std::byte*>(from);
    bytes->insert(bytes->end(), first, first + size);
  };
  append(&notice, sizeof(notice));
  append(tag.data(), tag.size());
}

bool NoticeReader::Read(std::span<const std::byte> bytes, std::vector<Notice>* notices) {
  while (!bytes.empty()) {
    if (!inside_) {
      if (bytes[0] != kBeatByte && bytes[0] != kNoticeByte) return false;
      inside_ = bytes[0] == kNoticeByte;
      bytes = bytes.subspan(1);
      continue;
    }
    const size_t some = std::min(bytes.size(), buffer_.size() - have_);
    std::copy_n(bytes.begin(), some, buffer_.begin() + static_cast<ptrdiff_t>(have_));
    bytes = bytes.subspan(some);
    have_ += some;
    if (have_ < buffer_.size()) return true;
    Notice notice;
    std::memcpy(&notice, buffer_.data(), sizeof(notice));
    const NoticeTag expected = TagOf(notice, number_++, key_);
    if (sodium_memcmp(buffer_.data() + sizeof(notice), expected.data(), expected.size()) != 0) return false;
    notices->push_back(notice);
    have_ = 0;
    inside_ = false;
  }
  return true;
}

}  // namespace axccl::remote
