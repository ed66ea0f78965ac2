#include "src/exec/channel/start_stamps.h"

#include <algorithm>
#include <atomic>

namespace axccl::exec {
namespace {

void Store(uint32_t* word, uint32_t value) { __atomic_store_n(word, value, __ATOMIC_RELAXED); }

uint32_t CountOf(uint32_t stamp, const uint32_t* words, size_t num) {
  const auto has_stamp = [stamp](const uint32_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE) == stamp; };
  return static_cast<uint32_t>(std::count_if(words, words + num, has_stamp));
}

}  // namespace

RecordedStamps RecordedStamps::Of(const std::atomic<uint64_t>* words) {
  const auto word = [words](int w) { return words[w].load(std::memory_order_relaxed); };
  const uint64_t start = word(OpRecord::kStart);
  return {word(OpRecord::kStamps), word(OpRecord::kIdentity), static_cast<uint32_t>(start), start >> 32 != 0};
}

void RecordedStamps::Write(std::atomic<uint64_t>* words) const {
  words[OpRecord::kStamps].store(offset, std::memory_order_relaxed);
  words[OpRecord::kIdentity].store(identity, std::memory_order_relaxed);
  words[OpRecord::kStart].store(stamp | uint64_t{in_graph} << 32, std::memory_order_relaxed);
}

uint64_t StartStamps::NewIdentity() {
  static std::atomic<uint64_t> last{0xa5a5c3c3ull << 32};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

void StartStamps::Begin(uint64_t identity) const {
  Forget();
  for (size_t i = kBroken; i < kWords + 2 * (num_in_ + num_out_); ++i) Store(words_ + i, 0);
  __atomic_store_n(this->identity(), identity, __ATOMIC_RELEASE);
}

void StartStamps::Forget() const {
  __atomic_store_n(identity(), 0, __ATOMIC_RELAXED);
  std::atomic_thread_fence(std::memory_order_release);
}

void StartStamps::Break() const {
  for (size_t i : {0, 1}) Store(words_ + kEndedBefore + i, Load(kEnded + i));
  for (size_t i = 0; i < num_in_ + num_out_; ++i) Store(before() + i, Load(kWords + i));
  __atomic_store_n(words_ + kBroken, 1, __ATOMIC_RELEASE);
}

std::optional<StartStamps::Progress> StartStamps::Read(const RecordedStamps& start) const {
  if (__atomic_load_n(identity(), __ATOMIC_ACQUIRE) != start.identity) return std::nullopt;
  const uint32_t stamp = start.in_graph ? Load(kBegun + 1) : start.stamp;
  Progress progress = Count(stamp, start.in_graph, seen(), kEnded);
  // If it was broken meanwhile, what was counted may have come since then.
  if (broken()) progress = Count(stamp, start.in_graph, before(), kEndedBefore);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (__atomic_load_n(identity(), __ATOMIC_RELAXED) != start.identity) return std::nullopt;
  return progress;
}

std::string StartStamps::ChunksThere() const {
  for (const bool in_graph : {false, true}) {
    const uint32_t stamp = words_ != nullptr ? Load(kBegun + in_graph) : 0;
    if (stamp == 0) continue;
    const Progress progress = Count(stamp, in_graph, seen(), kEnded);
    if (progress.state != OpRecord::kUnderWay) continue;
    return "; " + std::to_string(progress.came) + " of " + std::to_string(num_out_) + " chunks of the output are there";
  }
  return "";
}

// The chunks before the end: the next start stamps them only after that.
StartStamps::Progress StartStamps::Count(uint32_t stamp, bool in_graph, const uint32_t* chunks, size_t ended) const {
  Progress progress;
  if (in_graph && stamp == 0) return progress;  // no launch so far
  progress.seen = CountOf(stamp, chunks, num_in_);
  progress.came = CountOf(stamp, chunks + num_in_, num_out_);
  const bool begun = Load(kBegun + in_graph) == stamp || progress.seen + progress.came != 0;
  if (begun) progress.state = OpRecord::kUnderWay;
  // Stamps of graphs have 31 bits that count.
  if (static_cast<int32_t>((Load(ended + in_graph) - stamp) << in_graph) < 0) return progress;
  return {OpRecord::kDone, static_cast<uint32_t>(num_in_), static_cast<uint32_t>(num_out_)};
}

}  // namespace axccl::exec
