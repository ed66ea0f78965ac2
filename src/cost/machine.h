// The abilities of a machine, as a few measured constants. Plain data: rank 0 broadcasts its bytes at init, so that all
// ranks of a communicator predict with the same numbers. For ranks on several machines, the prediction assumes that all
// machines equal this one and that all links between them equal the slowest that was measured.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/status.h"

namespace axccl::cost {

struct Machine {
  double signal_seconds = 1.5e-7;  // from the store of a line until another core sees it
  double op_seconds = 1.5e-8;      // fixed cost of one operation of a schedule
  double switch_seconds = 2e-6;    // handing a core to another rank, which costs time where ranks outnumber cores
  double cached_bytes_per_second = 4e10;    // copy, working set within the last-level cache share
  double memory_bytes_per_second = 1.2e10;  // copy, beyond it
  double call_seconds = 5e-7;               // one process_vm_readv
  double call_bytes_per_second = 8e9;       // its bandwidth, for pages that are in no cache here
  // Between machines, as in network.h; not part of the file. Fixed figures until communicators have measured.
  double network_signal_seconds = 1e-5;  // a message without data, until a rank of another machine sees it
  // Processor time of the rank that sends a message, and of the rank that receives it.
  double network_message_seconds = 1e-6;
  // What the ranks of a machine send to others in total; as much can arrive at the same time.
  double link_bytes_per_second = 2e9;
  uint64_t cache_bytes = 32u << 20;  // what stays in the caches of cores that share the last one: see usable_cache.h
  uint64_t cache_cores = 2;          // their number
  // Of GPUs; 0 elsewhere. One lane's copy from or to another GPU's memory; what a GPU reads and writes in its memory in
  // total; what it sends to other GPUs in total, and as much can arrive at the same time.
  double peer_bytes_per_second = 0;
  double gpu_memory_bytes_per_second = 0;
  double gpu_link_bytes_per_second = 0;
  // What it sends to all GPUs at once in total, and what can arrive of all at once: through NVLink SHARP.
  double gpu_multicast_bytes_per_second = 0;
  // A call of one step through scratch, if what travels brings its own flags. In words (NCCL's LL), of up to so many
  // bytes of a block, and of all blocks that a rank receives; others go in rows (LL128), which also takes the time in
  // which a lane waits for all that and loads it. 0: there is no such way.
  double packed_seconds = 0;
  uint64_t packed_block_bytes = 0, packed_bytes = 0;
  double rowed_bytes_per_second = 0;
  // What ranks share: a machine, or a GPU, whose cores are its multiprocessors.
  int32_t cores = 2;
  int32_t ranks = 2;  // of the communicator, that share them

  // What of that one rank has. Ranks that may be on cores with other caches are taken to share this one.
  uint64_t RankCacheBytes() const {
    const auto all = static_cast<uint64_t>(ranks > 1 ? ranks : 1), own = static_cast<uint64_t>(cores > 1 ? cores : 1);
    const uint64_t side_by_side = all < cache_cores ? all : cache_cores;
    // Ranks that share a core share its part; a process that is bound to few cores does not know how many there are.
    const uint64_t crowded = own < cache_cores ? 0 : all * cache_cores / own;
    return cache_bytes / (crowded > side_by_side ? crowded : side_by_side);
  }

  friend bool operator==(const Machine&, const Machine&) = default;
};

// Measures the constants, most of them in a few milliseconds, and the cache as in usable_cache.h; the caller sets cores
// and ranks. What cannot be measured here (there is only one core, or a system call is refused) keeps its default, and
// the cache is what the system says. Starts and joins threads; thread-safe.
Machine Measure();
// Returns the cached measurement of this machine; if there is none, measures and stores it first. The file is
// $AXCCL_CACHE_DIR, else $XDG_CACHE_HOME/axccl, else ~/.cache/axccl, /machine-<hash of CPU model, cores, version>. A
// corrupt file is replaced, and a file that cannot be written is never an error. Thread-safe; processes may race, the
// last file stays.
Machine MeasureOnce();

// What GpuMachine and the simulator assume of a GPU: an H100 SXM. Nothing is measured.
struct Gpu {
  static constexpr int kMultiprocessors = 132;              // NVIDIA's data sheet
  static constexpr double kMemoryBytesPerSecond = 3.35e12;  // likewise
  static constexpr double kLinkBytesPerSecond = 4.5e11;     // likewise: NVLink, 900 GB/s both ways
  // Assumed: of the link, for multimem instructions. At this rate an all-reduce has the bus bandwidth of 480 GB/s that
  // NCCL's NVLS is known for on eight H100, as its ranks send and receive 9/8 of the data each.
  static constexpr double kMulticastBytesPerSecond = 3.1e11;
  // A block waits for what it has requested: in copies, what its ring loads ahead (kernels/cuda/ring.h; the interpreter
  // asserts that it is this figure), in reductions 64 bytes for each of 512 threads (kernels/cuda/reduce.h). Plans have
  // both, and the model has one rate, that of the slower.
  static constexpr uint32_t kCopyBytesInFlight = 60 << 10, kReduceBytesInFlight = 32 << 10;
  static constexpr double kBytesInFlight = kReduceBytesInFlight;
  static_assert(kReduceBytesInFlight <= kCopyBytesInFlight);
  // Of a block that brings its own flags: in words, and in rows (kernels/cuda/launch.h). Of more ranks, blocks for each
  // other one do not go in rows, and of more than kMostReducedRanks there is no kernel that reduces in one step. What
  // comes in words is kept, and a block waits for so many bytes of rows at a time: 512 threads for a row each.
  static constexpr uint64_t kWordsBytes = 512, kRowsBytes = 8 << 10, kKeptBytes = 6 << 10;
  static constexpr int kMostRowedRanks = 16, kMostReducedRanks = 255;
  static constexpr double kRowBytesInFlight = 512 * 112;
  // Until it has come: assumed, of the cache, of the GPU's memory and of another GPU's memory over NVLink under load.
  static constexpr double kCacheSeconds = 3e-7, kMemorySeconds = 5e-7, kLinkSeconds = 1.5e-6;
};

// The model of one GPU with that many multiprocessors, on which so many ranks of the communicator live; others may live
// on other GPUs. The bandwidths are those of one block, its bytes in flight by the time that they take.
Machine GpuMachine(int multiprocessors, int ranks);

// The file in which MeasureOnce keeps its result; empty when the environment names no folder for it.
std::string CacheFile();
// As MeasureOnce, with the file given. An empty name: always measures.
Machine MeasureOnce(const std::string& file);

// Reads such a file. kSystemError when it cannot be read, otherwise as FromText, with the name of the file in the
// message.
Result<Machine> ReadMachine(const std::string& file);

// The text of the file: a line with name and version, then `name value` lines, in this order, with all digits.
std::string ToText(const Machine& machine);
// Parses such a text. kInvalidArgument with line and reason unless ToText could have written `text` and its values are
// possible.
Result<Machine> FromText(std::string_view text);

}  // namespace axccl::cost
