#include "src/program/buffer_pool.h"

#include <algorithm>
#include <utility>

namespace axccl::program {
namespace {

thread_local BufferPool* g_pool_of_thread = nullptr;

}  // namespace

BufferPool::Use::Use(BufferPool* pool) : before_(std::exchange(g_pool_of_thread, pool)) {}
BufferPool::Use::~Use() { g_pool_of_thread = before_; }

BufferPool* BufferPool::OfThread() { return g_pool_of_thread; }

std::vector<uint8_t> BufferPool::Take(size_t bytes) {
  std::vector<uint8_t> buffer;
  if (const auto kept = buffers_.find(bytes); kept != buffers_.end()) {
    buffer = std::move(kept->second);
    buffers_.erase(kept);
    kept_ -= bytes;
    ++reused_;
    std::fill(buffer.begin(), buffer.end(), uint8_t{0});
  } else {
    const size_t most = std::max(most_given_, given_ + bytes);
    while (!buffers_.empty() && given_ + bytes + kept_ > most) {
      const auto largest = std::prev(buffers_.end());
      kept_ -= largest->first;
      buffers_.erase(largest);
    }
    buffer.resize(bytes);
  }
  given_ += bytes;
  most_given_ = std::max(most_given_, given_);
  return buffer;
}

void BufferPool::Put(std::vector<uint8_t> buffer) {
  const size_t bytes = buffer.size();
  given_ -= std::min(given_, bytes);
  if (bytes == 0 || given_ + kept_ + bytes > most_given_) return;
  kept_ += bytes;
  buffers_.emplace(bytes, std::move(buffer));
}

}  // namespace axccl::program
