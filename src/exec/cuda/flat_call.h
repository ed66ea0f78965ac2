// Small calls on views as calls on plain buffers, whose slots can be packed (packing.h).
//
// A call on one view moves the same blocks as a plain call. All ranks decide alike, from what they agree on, that it is
// made as one. Each rank decides for itself on which buffers: the view's own, if its blocks lie there one after the
// other, or otherwise dense copies, to and from which local calls copy before and after it. Another one fills the
// output of a rank that gets nothing with zeros, where the call says so.
#pragma once

#include <cstddef>
#include <optional>

#include "kernels/cuda/launch.h"
#include "src/device/cuda/driver.h"
#include "src/exec/call/call.h"

namespace axccl::exec {

// The call without its view; nothing if it is not on one view, or is more than moving that view's blocks. The same on
// all ranks but for the buffers.
std::optional<Call> WithoutView(const Call& call);
// Whether slots may be packed for blocks of that size.
inline bool IsSmall(const Call& call) { return call.count * ElementSize(call.type) <= kernels::cuda::kRowedBytes; }

// A local copy between plain buffers as one on views, which a kernel makes.
Call OnView(const Call& copy);

// Of a call with WithoutView, on the rank at that position of its group of so many.
class FlatCall {
 public:
  FlatCall(const Call& call, int ranks, int position);

  // Of the dense copies that it needs.
  size_t bytes() const { return input_bytes_ + output_bytes_; }
  // How many local calls it needs.
  size_t local_calls() const { return size_t{input_bytes_ != 0} + size_t{output_bytes_ != 0 || fills_zeros_}; }
  // The call on these copies, and the local calls that must precede and follow it.
  struct Steps {
    Call call;
    std::optional<Call> before, after;
  };
  Steps On(CUdeviceptr copies) const;

 private:
  const Call& call_;
  const int inputs_, outputs_;                 // blocks
  size_t input_bytes_ = 0, output_bytes_ = 0;  // 0: in the view itself
  bool fills_zeros_ = false;
};

}  // namespace axccl::exec
