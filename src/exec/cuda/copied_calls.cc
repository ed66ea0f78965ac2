#include "src/exec/cuda/copied_calls.h"

#include <algorithm>

#include "src/base/add_once.h"
#include "src/base/hash.h"
#include "src/base/sizes.h"

namespace axccl::exec {

using plan::Kind;

// ---- windows ----

void CudaWindows::Add(const OwnShare& share, const Window& window) {
  std::erase_if(shares_, [](const Share& known) { return known.life.expired(); });
  std::erase_if(lives_, [](const auto& life) { return life.expired(); });
  lives_.push_back(window.life());
  const Places places = window.places();
  const auto begin = reinterpret_cast<uint64_t>(share.memory);
  if (places->symmetric && places->team.size == places->ranks)
    shares_.push_back({begin, begin + share.bytes, window.life(), places});
}

// Of several, all ranks find the same one.
CudaWindows::Found CudaWindows::Find(const void* memory, uint64_t bytes) const {
  const auto begin = reinterpret_cast<uint64_t>(memory);
  Found first;
  for (const Share& share : shares_) {
    if (begin < share.begin || begin > share.end || bytes > share.end - begin) continue;
    Found found{share.places.lock(), begin - share.begin};
    if (share.life.expired() || found.places == nullptr) continue;
    const std::vector<uint64_t>& sizes = found.places->bytes;
    if (found.offset + bytes > *std::min_element(sizes.begin(), sizes.end())) continue;
    if (first.places == nullptr || found.places->id < first.places->id) first = std::move(found);
  }
  return first;
}

void CudaWindows::Keep(const Places& places, bool captured) { AddOnce(captured ? &kept_for_graphs_ : &kept_, places); }

void CudaWindows::Clear() {
  kept_.clear();
  kept_for_graphs_.clear();
}

// ---- calls ----

namespace {

struct Copying {
  const Call& call;
  const int rank, ranks;
  const uint64_t bytes = call.count * ElementSize(call.type);  // of a block
  const uint64_t output = reinterpret_cast<uint64_t>(call.output);
  CudaWindows::Found found{};

  bool in_place() const {
    const auto input = reinterpret_cast<uint64_t>(call.input);
    return call.kind == Kind::kAllGather && input == output + static_cast<uint64_t>(rank) * bytes;
  }
  // The buffer that others read, and its size.
  std::pair<const void*, uint64_t> Read() const {
    const uint64_t all = bytes * static_cast<uint64_t>(ranks);
    if (call.kind == Kind::kBroadcast) return {call.output, bytes};
    if (call.kind == Kind::kAllToAll) return {call.input, all};
    return in_place() ? std::pair{static_cast<const void*>(call.output), all} : std::pair{call.input, bytes};
  }

  // Ranks begin with the next one, so that each reads from another.
  std::vector<CopiedCall::Stage> Gather() const {
    CopiedCall::Stage reads;
    for (int step = 1; step <= ranks; ++step) {
      const int from = (rank + step) % ranks;
      const int block = call.kind == Kind::kAllToAll ? rank : in_place() ? from : 0;
      if (from == rank && in_place()) continue;
      const uint64_t read = from == rank ? reinterpret_cast<uint64_t>(call.input) : found.At(from);
      Add(static_cast<uint64_t>(from) * bytes, read + static_cast<uint64_t>(block) * bytes, bytes, &reads);
    }
    return {{}, std::move(reads)};
  }

  std::vector<CopiedCall::Stage> Broadcast() const {
    const int others = ranks - 1;
    std::vector<CopiedCall::Stage> stages(others == 1 ? 2 : 3);
    if (rank == call.root) {
      const auto input = reinterpret_cast<uint64_t>(call.input);
      if (input != output) Add(0, input, bytes, stages.data());
      return stages;
    }
    const uint64_t most = RoundUp(bytes / static_cast<uint64_t>(others) + 1, kCacheLine);
    const int self = (rank - call.root + ranks) % ranks - 1;  // among the others, who begin behind the root
    for (int step = 0; step < others; ++step) {
      const int part = (self + step) % others;
      const int from = step == 0 ? call.root : (call.root + 1 + part) % ranks;
      const uint64_t begin = std::min(static_cast<uint64_t>(part) * most, bytes), end = std::min(begin + most, bytes);
      Add(begin, found.At(from) + begin, end - begin, &stages[step == 0 ? 1 : 2]);
    }
    return stages;
  }

  // To `offset` of the output.
  void Add(uint64_t offset, uint64_t from, uint64_t size, CopiedCall::Stage* stage) const {
    if (size == 0) return;
    Plane plane;
    plane.to = output + offset;
    plane.from = from;
    plane.width = size;
    stage->push_back(plane);
  }
};

}  // namespace

std::optional<CopiedCall> CopiedCall::Of(const Call& call, int rank, int ranks, const CudaWindows& windows) {
  const bool moves = call.kind == Kind::kAllGather || call.kind == Kind::kAllToAll || call.kind == Kind::kBroadcast;
  if (!moves || call.views != nullptr || ranks < 2) return std::nullopt;
  Copying copying{call, rank, ranks};
  const auto [memory, bytes] = copying.Read();
  copying.found = windows.Find(memory, bytes);
  if (copying.found.places == nullptr) return std::nullopt;
  CopiedCall copied;
  copied.stages = call.kind == Kind::kBroadcast ? copying.Broadcast() : copying.Gather();
  for (const uint64_t word : {call.Packed(), call.count, copying.found.places->id, copying.found.offset,
                              uint64_t{copying.in_place()}, copied.stages.size()})
    copied.signature = static_cast<uint32_t>(Mix(Mix(kHashSeed, copied.signature), word) >> 32);
  copied.window = copying.found.places;
  return copied;
}

}  // namespace axccl::exec
