// What happened when in a traced round of overlap_perf, as Chrome trace events (ui.perfetto.dev opens them): a process
// for each rank, with a line for matrix products and one for communication.
//
// One Trace for each rank; one thread at a time. Watcher has a thread of its own and adds to the trace when it ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "perf/common/exchange.h"

namespace axccl::perf::overlap {

enum class Happened {
  kMatmul,      // a span
  kCollective,  // a span: the whole collective
  kCalled,      // the collective of a slice was called
  kReady,       // an input chunk was declared ready
  kSeen,        // an output chunk, or the collective of a slice, was seen to be there
};

class Trace {
 public:
  // Seconds since an arbitrary moment, the same for all processes of a machine.
  static double Now();

  // What follows belongs to this mode.
  void BeginMode(int mode) { mode_ = mode; }
  // `number`: of a chunk or slice, -1: all.
  void Span(Happened what, int64_t number, double begin) { Add(what, number, begin, Now()); }
  void Instant(Happened what, int64_t number) { Add(what, number, Now(), Now()); }

  // Collective over the exchange: the first participant writes the events of all. `mode_names`: by number.
  void Write(const std::string& path, Exchange* exchange, const std::vector<std::string>& mode_names) const;

 private:
  friend class Watcher;
  struct Event {
    double mode, what, number, begin, end;
  };
  void Add(Happened what, int64_t number, double begin, double end) {
    events_.push_back({static_cast<double>(mode_), static_cast<double>(what), static_cast<double>(number), begin, end});
  }
  std::vector<std::vector<Event>> OfAll(Exchange* exchange) const;

  int mode_ = 0;
  std::vector<Event> events_;
};

// Looks at the words of output chunks every 50 us, and notes when each was seen.
class Watcher {
 public:
  Watcher(Trace* trace, const uint32_t* words, int64_t count);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

 private:
  void Watch();

  Trace* const trace_;
  const uint32_t* const words_;
  std::vector<double> seen_;  // 0: not yet
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace axccl::perf::overlap
