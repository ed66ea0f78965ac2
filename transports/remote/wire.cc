#include "transports/remote/wire.h"

#include <cstring>

namespace axccl::remote {
namespace {

constexpr uint64_t kLineBytes = transport::Reach::kLineBytes;
static_assert(sizeof(WireHeader::line_bytes) == kLineBytes);

bool Within(uint64_t offset, uint64_t bytes, uint64_t size) { return offset <= size && bytes <= size - offset; }

}  // namespace

bool ParseMessage(const void* header, size_t bytes, Message* message) {
  WireHeader& head = message->head;
  if (bytes < sizeof(head)) return false;
  std::memcpy(&head, header, sizeof(head));
  if (head.stretches > kMaxStretches || bytes != sizeof(head) + head.stretches * sizeof(WireStretch)) return false;
  std::memcpy(message->stretch.data(), static_cast<const std::byte*>(header) + sizeof(head), bytes - sizeof(head));
  return true;
}

bool MayCome(uint32_t turn, uint64_t next, uint64_t* number) {
  const uint32_t ahead = turn - static_cast<uint32_t>(next);
  *number = next + ahead;
  return ahead < kMostAhead;
}

bool FitsMemory(const Message& message, uint64_t memory_bytes, uint64_t data_bytes) {
  const uint64_t line = message.head.line;
  if (line != transport::Reach::kNoLine && (line % kLineBytes != 0 || !Within(line, kLineBytes, memory_bytes)))
    return false;
  uint64_t sum = 0;
  for (const WireStretch& stretch : message.stretches()) {
    if (!Within(stretch.offset, stretch.bytes, memory_bytes)) return false;
    if (stretch.on_device != 0 && !message.on_device()) return false;
    if (stretch.guarded != 0 && (stretch.bytes < sizeof(uint64_t) || stretch.offset % sizeof(uint64_t) != 0))
      return false;
    sum += stretch.bytes;
  }
  return sum == data_bytes;
}

}  // namespace axccl::remote
