// How far the starts of a pipeline on a GPU have come: stamps in memory of the host, which the device stores and any
// rank of the machine reads (comm/op_board.h), also while the rank hangs, is stopped, or is dead.
//
// A stamp is the number of a start, from 1 on, or of a launch of a graph, on a count of its own. Each word has that of
// the last start that got so far; so a start resets nothing, and words of earlier ones do not count. Every word has one
// writer at a time. Nothing read here is used but to be shown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "src/base/sizes.h"
#include "src/exec/layout.h"

namespace axccl::exec {

// Where a record says that the stamps of its start are. The words are those of a record.
struct RecordedStamps {
  uint64_t offset = 0;    // in the heap of the rank's process; 0: no other rank reads them
  uint64_t identity = 0;  // of the pipeline, see NewIdentity
  uint32_t stamp = 0;     // of the start
  bool in_graph = false;  // it is part of a graph: the last launch counts, whichever that is

  static RecordedStamps Of(const std::atomic<uint64_t>* words);
  void Write(std::atomic<uint64_t>* words) const;
};

// Of one part of a pipeline: these words, then one for each chunk of the input, and of the output. A view of memory.
class StartStamps {
 public:
  struct Progress {
    OpRecord::State state = OpRecord::kEnqueued;
    uint32_t seen = 0, came = 0;  // chunks of the input and of the output
  };

  static constexpr size_t kMostChunks = 65536;  // of a side

  StartStamps() = default;
  StartStamps(void* memory, size_t num_in, size_t num_out)
      : words_(static_cast<uint32_t*>(memory)), num_in_(num_in), num_out_(num_out) {}
  static size_t Bytes(size_t num_in, size_t num_out) {
    return RoundUp((kWords + 2 * (num_in + num_out)) * sizeof(uint32_t), kCacheLine);
  }

  const void* memory() const { return words_; }
  // Of the last start that has begun, and ended well: outside of graphs, and in them.
  uint32_t* begun() const { return words_ + kBegun; }
  uint32_t* ended() const { return words_ + kEnded; }
  // Of the last one in which each chunk of the input was seen to be ready, and of the output came.
  uint32_t* seen() const { return words_ + kWords; }
  uint32_t* came() const { return seen() + num_in_; }

  // For Begin: a number that no other pipeline of the process gets, and that two stamps side by side are not.
  static uint64_t NewIdentity();
  // For the owner. No stamp is there, and the stamps are a pipeline's; what they were before, nobody counts any more.
  void Begin(uint64_t identity) const;
  void Forget() const;
  // From now on, readers see what is there now, apart from starts that begin: what comes later has failed.
  void Break() const;
  bool broken() const { return Load(kBroken) != 0; }
  // Of a chunk of the output.
  uint32_t CameBefore(size_t chunk) const { return __atomic_load_n(before() + num_in_ + chunk, __ATOMIC_RELAXED); }

  // Of the start that is under way: "; 3 of 16 chunks of the output are there". Empty if none is.
  std::string ChunksThere() const;

  // Empty if they are not that pipeline's any more.
  std::optional<Progress> Read(const RecordedStamps& start) const;

 private:
  enum Word : size_t {
    kIdentity,
    kBroken = kIdentity + 2,
    kBegun,
    kEnded = kBegun + 2,
    kEndedBefore = kEnded + 2,
    kWords = 16
  };
  static_assert(kEndedBefore + 2 <= kWords && kWords * sizeof(uint32_t) == kCacheLine);

  // What the words of chunks were when this was broken.
  uint32_t* before() const { return came() + num_out_; }
  uint64_t* identity() const { return reinterpret_cast<uint64_t*>(words_ + kIdentity); }
  uint32_t Load(size_t word) const { return __atomic_load_n(words_ + word, __ATOMIC_ACQUIRE); }
  Progress Count(uint32_t stamp, bool in_graph, const uint32_t* chunks, size_t ended) const;

  uint32_t* words_ = nullptr;
  size_t num_in_ = 0, num_out_ = 0;
};

}  // namespace axccl::exec
