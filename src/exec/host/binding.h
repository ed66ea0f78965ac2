// A call that is bound to a channel, to the plan that runs it, and step by step to the members' operands. The parts of
// an operation share it; the operation owns it.
#pragma once

#include <cstdint>

#include "src/exec/host/channel.h"

namespace axccl::exec {

// How a reduction scales what it reads and what it writes.
struct Scales {
  bool averages = false;  // for floats: inputs are multiplied by 1/n
  bool inputs = false;    // some inputs are multiplied as they are read
  bool result = false;    // the result is multiplied by `factor`; calls on views only
  Factor factor{};
  uint64_t divisor = 0;  // for integers: what the result is divided by; 0: nothing
};

struct Binding {
  // Not an aggregate, because that would be zeroed first; every operation makes a Binding.
  Binding(Channel* bound_to, const Call& bound) : channel(bound_to), host(HostChannel::Of(*bound_to)), call(bound) {}

  Channel* channel;
  HostChannel* host;                   // what the host keeps for it
  Call call;                           // for an uneven call, `count` is valid once all members have announced theirs
  const Prepared* prepared = nullptr;  // the plan that runs
  uint64_t sequence = 0;
  uint64_t behind = 0;           // it still waits for signals of the operation that many before it
  uint32_t form_hash = 0;        // for a call on views
  uint64_t announced_words = 0;  // in addition to those of every op record
  bool around_cache = false;     // outputs are written around the cache
  bool reads_by_call = false;    // some announced buffer is read by system call
  // A message between ranks that share no memory (message_end.h).
  bool sends_ahead = false;    // the sender puts off its last waits
  bool receives = false;       // this rank is the receiver
  bool keeps_signals = false;  // which keeps its last signals
  Scales scales;

  // Whether it is the last turn of the plan that runs.
  bool IsLast(uint64_t turn) const { return turn + 1 == host->turns().next() + prepared->turns; }
  Workspace& workspace() const { return host->workspace(); }
  plan::Contract contract() const { return {call.kind, channel->size(), call.root}; }
  // Whether a call without views has its smaller buffer at the place in the larger one where that costs no copy.
  bool InPlace() const {
    int from = 0, to = 0;
    if (call.views != nullptr || !plan::InPlaceBlocks(contract(), channel->self(), &from, &to)) return false;
    const uint64_t block = call.count * ElementSize(call.type);
    return reinterpret_cast<uintptr_t>(call.input) + static_cast<uint64_t>(from) * block ==
           reinterpret_cast<uintptr_t>(call.output) + static_cast<uint64_t>(to) * block;
  }
};

}  // namespace axccl::exec
