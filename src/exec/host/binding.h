// A call that is bound: to a channel, to what runs for it, and step by step to the members' operands. What the parts of
// an operation share; the operation owns it.
#pragma once

#include <cstdint>

#include "src/exec/channel.h"

namespace axccl::exec {

// How a reduction scales what it reads and what it writes.
struct Scales {
  bool averages = false;  // of floats: inputs are multiplied by 1/n
  bool inputs = false;    // some inputs are multiplied as they are read
  bool result = false;    // the result is multiplied by `factor`; calls on views only
  Factor factor{};
  uint64_t divisor = 0;  // of integers, what the result is divided by; 0: by nothing
};

struct Binding {
  // Not an aggregate, which would be zeroed first: one is made for every operation.
  Binding(Channel* bound_to, const Call& bound) : channel(bound_to), call(bound) {}

  Channel* channel;
  Call call;                           // in an uneven one, `count` is right once all members have announced theirs
  const Prepared* prepared = nullptr;  // what runs
  uint64_t sequence = 0;
  uint32_t form_hash = 0;        // of a call on views
  uint64_t announced_words = 0;  // besides those of every op record
  bool around_cache = false;     // outputs go past it
  bool reads_by_call = false;    // some announced buffer is reached by system call
  Scales scales;

  Workspace& workspace() const { return channel->workspace(); }
  plan::Contract contract() const { return {call.kind, channel->size(), call.root}; }
};

}  // namespace axccl::exec
