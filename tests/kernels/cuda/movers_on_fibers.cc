// The device's movers, compiled for fibers.
#include "tests/kernels/cuda/movers_on_fibers.h"

#include <algorithm>

#include "kernels/cuda/reduce.h"
#include "tests/harness/fibers/fibers.h"

namespace axccl::kernels::cuda {

bool ReduceOnFibers(const ReduceRequest& request, uint32_t threads, uint64_t seed) {
  fibers::Launch launch;
  launch.threads = threads;
  launch.body = [&request] {
    AXCCL_SHARED(Move, move);
    if (ThreadIndex() == 0) {
      move = Move{};
      move.count = request.count;
      move.divisor = request.post_divisor;
      move.element = static_cast<uint32_t>(ElementSize(request.type));
      move.num_dst = static_cast<uint32_t>(request.num_dst);
      move.num_src = static_cast<uint32_t>(request.num_src);
      move.type = request.type;
      move.combine = request.combine;
      move.scaled = request.pre != nullptr;
      move.round_factored = request.round_factored;
      for (int d = 0; d < request.num_dst; ++d) move.place[d] = static_cast<uint8_t*>(request.dst[d]);
      for (int k = 0; k < request.num_src; ++k) {
        const int i = request.num_dst + k;
        move.place[i] = static_cast<uint8_t*>(const_cast<void*>(request.src[k]));
        if (request.pre != nullptr) move.factor[i] = request.pre[k];
      }
    }
    Barrier();
    if (move.IsCopy()) {
      CopyElements(move);
    } else {
      ReduceElements(move);
    }
  };
  fibers::Options options;
  options.seed = seed;
  return fibers::Run({{launch}}, options);
}

}  // namespace axccl::kernels::cuda
