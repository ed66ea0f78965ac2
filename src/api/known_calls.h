// The calls that a thread has made and that were found right. A program makes the same few again and again, with the
// same buffers or others; only what may have changed is checked then.
//
// What is kept holds for ever: a handle stands for one object, whose properties do not change, and gets no second one
// (handle_table.h); types and built-in operators are constants. Calls with an operator that the program made are not
// kept, because it may be destroyed. Whether the communicator and the stream still live, and whether the buffers are
// right, is checked each time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "src/base/handle_table.h"
#include "src/base/per_thread.h"
#include "src/comm/comm_handle.h"
#include "src/device/host/stream.h"
#include "src/exec/call/call.h"
#include "src/exec/platform/stream_call.h"

namespace axccl::api {

// The arguments that decide whether a call is right, but for its buffers.
struct CallKey {
  const void* comm = nullptr;  // the handle
  uint64_t count = 0;
  uint64_t type_and_op = 0;
  uint64_t kind_and_root = 0;
  bool operator==(const CallKey&) const = default;
};

// What the buffers of a call must be like.
struct BufferRule {
  size_t sent = 0, received = 0;  // bytes; 0: the pointer means nothing
  bool in_place = false;          // they may be the same memory: if recv - send is `apart`
  ptrdiff_t apart = 0;

  // Whether they are right beyond doubt.
  bool Allows(const void* send, const void* recv) const {
    const auto from = reinterpret_cast<uintptr_t>(send), to = reinterpret_cast<uintptr_t>(recv);
    if ((from == 0 && sent != 0) || (to == 0 && received != 0)) return false;
    if (from + sent <= to || to + received <= from || sent == 0 || received == 0) return true;
    return in_place && static_cast<ptrdiff_t>(to - from) == apart;
  }
};

struct alignas(256) KnownCall {  // of a size that makes the place of one cheap to compute
  CallKey key;
  HandleTable<comm::CommHandle>::Known comm;
  BufferRule buffers;
  exec::Call call;  // with the buffers of the last time
  // The stream of the last time.
  const void* stream_handle = nullptr;
  HandleTable<device::host::Stream>::Known stream;
  exec::StreamRef stream_ref;
};

class KnownCalls {
 public:
  // The calling thread's. Throws std::bad_alloc.
  static KnownCalls& OfThread() { return PerThread<KnownCalls>::Get(); }

  // The place of a call: the call itself, or another one that it may replace.
  KnownCall* PlaceOf(const CallKey& key) {
    const uint64_t words = reinterpret_cast<uint64_t>(key.comm) ^ key.kind_and_root ^ key.type_and_op ^ key.count;
    return &calls_[(words * 0x9e3779b97f4a7c15u) >> (64 - kBits)];
  }

 private:
  static constexpr int kBits = 4;
  std::array<KnownCall, 1 << kBits> calls_;
};

}  // namespace axccl::api
